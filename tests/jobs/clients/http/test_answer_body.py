"""A body that ends inside its JSON is broken off; a whole body that is not JSON is not."""

import json
import random

import pytest

from jobs.clients.http.answer_body import BrokenOff, loaded


def drawn(draw, depth=3):
    """Return a JSON value, as text."""
    kind = draw.randrange(7 if depth else 5)
    if kind == 0:
        return draw.choice(["true", "false", "null"])
    if kind < 3:
        whole, fraction = draw.choice(["0", "7", "-7", "120"]), draw.choice(["", ".5", "e3", "E-2"])
        return whole + draw.choice([fraction, fraction if "e" in fraction.lower() else ".25e+1"])
    if kind < 5:
        pieces = ["bad", "é", "\\u00e9", '\\"', "\\\\", " ", "\\ud83d\\ude00", "😀", "\\n"]
        return '"' + "".join(draw.choices(pieces, k=draw.randrange(4))) + '"'
    values = [drawn(draw, depth - 1) for _ in range(draw.randrange(4))]
    if kind == 5:
        return "[" + draw.choice([",", " , "]).join(values) + "]"
    return "{" + ",".join(f'"k{number}": {value}' for number, value in enumerate(values)) + "}"


@pytest.mark.parametrize("charset", [None, "utf-8", "utf-16-le", "iso-8859-1", "shift_jis"])
def test_each_prefix_of_a_json_body_is_recognized_as_broken_off_or_is_json(charset):
    draw = random.Random(charset)
    checked = 0
    while checked < 2_000:
        text = drawn(draw)
        if charset in ("iso-8859-1", "shift_jis"):
            text = text.encode(charset, "ignore").decode(charset)
        body = text.encode(charset or "utf-8")
        assert loaded(body, charset) == json.loads(text)
        # of UTF-16 the first four bytes tell which UTF it is
        for end in range(4 if charset == "utf-16-le" else 1, len(body)):
            checked += 1
            try:
                start = json.loads(body[:end].decode(charset or "utf-8"))
            except ValueError:
                with pytest.raises(BrokenOff):
                    loaded(body[:end], charset)
            else:
                assert loaded(body[:end], charset) == start


@pytest.mark.parametrize(
    "text",
    ["bad", "face", "e", "007", "[1] ab", "[1] tr", "{'a': 1}", "[1,]", "{} {}", "1 -", '"\\x41"',
     '{"a" 1}', '"\\ug000"', "nulls", "<html>", "dead", "[0x1]", '["a" "b"]', "ab,", "[1.5.",
     "[1e5.", "[1.5e3e"],
)  # fmt: skip
def test_a_whole_body_that_is_not_json_is_not_broken_off(text):
    with pytest.raises(ValueError, match="line 1 column") as failed:
        loaded(text.encode())
    assert not isinstance(failed.value, BrokenOff)


@pytest.mark.parametrize("charset", ["utf-8", "shift_jis", "us-ascii", "windows-1252"])
def test_a_whole_body_with_an_invalid_byte_is_not_broken_off(charset):
    wrong = {"windows-1252": b"\x81"}.get(charset, b"\xff")
    with pytest.raises(UnicodeDecodeError):
        loaded(b'{"a":1}' + wrong, charset)
