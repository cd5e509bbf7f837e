"""The answer inside a text is the JSON that stands there, or an error: never a guess."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.declare.answers.inner_answer import InnerAnswer
from jobs.errors import DeclarationError

INNER = InnerAnswer("$.choices[0].message.content")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8,
)  # fmt: skip
WORDS = st.text(max_size=20).filter(
    lambda text: not {"`", "{"} & {*text} and not text.lstrip().startswith("[")
)


def response(content):
    return {"choices": [{"message": {"content": content}}]}


@given(
    value=VALUES, indent=st.sampled_from([None, 2]),
    fence=st.none() | st.tuples(WORDS, st.sampled_from(["", "json", "JSON "]), WORDS),
    end=st.sampled_from(["\n", "\r\n"]), mark=st.sampled_from(["", "\ufeff"]),
)  # fmt: skip
def test_json_in_a_text_or_in_its_only_code_fence_is_read(value, indent, fence, end, mark):
    text = json.dumps({"answer": value}, indent=indent)
    if fence is not None:
        before, language, after = fence
        text = f"{before}\n```{language}\n{text}\n```\n{after}".replace("\n", end)
    assert INNER.read(response(mark + text)) == {"answer": value}


@given(value=VALUES, at=st.floats(0, 1), is_fenced=st.booleans())
def test_a_truncated_text_is_an_error(value, at, is_fenced):
    text = json.dumps({"answer": value, "last": "x"})
    text = f"```json\n{text}\n```" if is_fenced else text
    with pytest.raises(ValueError, match="is not JSON"):
        INNER.read(response(text[: int(at * (len(text) - 1))]))


@pytest.mark.parametrize(
    "thoughts",
    [
        '<think>\nFirst I try:\n```json\n{"a": 7}\n```\nNo.\n</think>\n\n',
        'Okay, {"a": 7} is too much.\n</think>\n',  # the template of the chat has the first mark
        "<think>\n\n</think>\n\n",
    ],
)
@pytest.mark.parametrize("text", ['{"a": 1, "b": "</think>"}', 'So:\n```json\n{"a": 1}\n```\n'])
def test_the_answer_is_what_follows_the_thoughts_of_a_model(thoughts, text):
    assert INNER.read(response(thoughts + text))["a"] == 1


@pytest.mark.parametrize("value", [{"a": "</think>"}, ["```json\n{}\n```"], {"a": ["```"]}, 7, "x"])
def test_marks_of_thoughts_or_fences_in_json_are_a_part_of_it(value):
    assert INNER.read(response(f" {json.dumps(value)}")) == value


def test_content_that_is_already_json_is_the_answer():
    for value in ({"a": 1}, [1], 7, True):
        assert INNER.read(response(value)) is value


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "nothing at \\$.choices\\[0\\].message.content"),
        ('{"a": 1}\n{"a": 2}', "Extra data"),
        ('{"a": 1, "a": 1}', 'an object has the member "a" twice'),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": 1e999}', "larger than any number"),
        (
            '```json\n{"a": 1}\n```\nor\n```json\n{"a": 2}\n```',
            "it has 2 blocks between ```, and must have one",
        ),
        ('```json\n{"a": 1}\n', "its block has no closing ```"),
        ('```json\n{"a": 1}\n```\n```json\n{"a": 2}', "one of its blocks has no closing ```"),
        ('As in\n```\n{"a": 1}\n```\nit is { "a": 2}', "an object after its block"),
        ('Here it is: {"a": 1}', "is not JSON"),
        ('<think>Maybe\n```json\n{"a": 1}\n```\n', "its <think> has no </think>"),
        ("", "is not JSON"),
    ],
)
def test_an_ambiguous_text_is_an_error(content, sentence):
    with pytest.raises(ValueError, match=sentence):
        INNER.read(response(content))


def test_numbers_in_a_text_keep_their_digits():
    read = INNER.read(response('{"a": 0.1234567890123456789, "b": 123456789012345678901234567890}'))
    assert (str(read["a"]), read["b"]) == ("0.1234567890123456789", 123456789012345678901234567890)


def test_a_malformed_path_of_the_inner_answer_is_refused():
    with pytest.raises(DeclarationError, match="answer: 'choices' is not a JSON path"):
        InnerAnswer("choices")
