"""The key of an answer as text, and its hash."""

import datetime as dt
import decimal
import subprocess
import sys
import zoneinfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.ledger.keys import key_hashes, key_text, texts_in_bulk

HOUR = dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (("JFK", HOUR), '["JFK","2013-01-10T05:00:00Z"]'),
        ((HOUR.replace(tzinfo=None),), '["2013-01-10T05:00:00"]'),
        ((HOUR.replace(microsecond=7),), '["2013-01-10T05:00:00.000007Z"]'),
        ((1, 1.5, True), "[1,1.5,true]"),
        ((dt.date(2013, 1, 10), decimal.Decimal("1.10"), b"\x00"), '["2013-01-10","1.10","AA=="]'),
        (("Zürich\n",), '["Zürich\\n"]'),
        (([1, 2], {"b": 1, "a": 2}), '[[1,2],{"a":2,"b":1}]'),
        ((1 << 70,), "[1180591620717411303424]"),
        ((float("nan"), [None]), '["nan",[null]]'),
    ],
)
def test_a_key_is_canonical_json_that_a_person_can_read(key, text):
    assert key_text(key) == text


PART = st.one_of(
    st.none(), st.integers(), st.text(alphabet='a"[],\\\ud800'), st.floats(), st.dates(),
    st.lists(st.lists(st.integers())), st.sampled_from(["],[", "][", "null", "blake2b:"]),
)  # fmt: skip


@given(
    keys=st.lists(st.tuples(PART) | st.tuples(PART, PART) | st.tuples(st.integers())),
    hidden=st.booleans(),
)
def test_keys_have_the_same_texts_together_and_alone(keys, hidden):
    assert texts_in_bulk(keys, hidden=hidden) == [key_text(key, hidden=hidden) for key in keys]


def test_the_session_time_zone_does_not_alter_a_key():
    berlin = HOUR.astimezone(zoneinfo.ZoneInfo("Europe/Berlin"))
    assert key_text((berlin,)) == key_text((HOUR,))


def test_different_keys_have_different_texts():
    keys = [
        (1,),
        (1.0,),
        ("1",),
        (True,),
        ("true",),
        ("a", "b"),
        ('a","b',),
        (["a", "b"],),
        ("",),
        (" ",),
    ]
    assert len({key_text(key) for key in keys}) == len(keys)


def test_a_hidden_key_shows_nothing_and_differs_from_others():
    hidden = key_text(("Jane Doe",), hidden=True)
    assert hidden.startswith("blake2b:")
    assert "Jane" not in hidden
    assert hidden == key_text(("Jane Doe",), hidden=True)
    assert hidden != key_text(("John Doe",), hidden=True)


@pytest.mark.proof
@pytest.mark.process
def test_text_and_hash_of_a_key_are_the_same_in_every_process():
    code = """
import datetime as dt
from jobs.ledger.keys import key_hashes, key_text
text = key_text(("JFK", dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC)))
print(text, key_text(("x",), hidden=True), *key_hashes([text, "", "Zürich"]))
"""
    message = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    hashes = key_hashes(['["JFK","2013-01-10T05:00:00Z"]', "", "Zürich"])
    assert message == {
        (
            f'["JFK","2013-01-10T05:00:00Z"] {key_text(("x",), hidden=True)} '
            f"{' '.join(map(str, hashes))}\n"
        )
    }
    # whatever stands beside them
    assert (
        hashes.tolist()
        == key_hashes(["Zürich", "", '["JFK","2013-01-10T05:00:00Z"]'])[::-1].tolist()
    )


@pytest.mark.process
def test_keys_are_hashed_while_another_thread_imports_pandas():
    """As the thread does that imports the checks."""
    program = (
        "import threading, time; from jobs.ledger.keys import key_hashes; "
        "threading.Thread(target=__import__, args=['pandas']).start(); "
        "time.sleep(0.05); key_hashes(['a'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_hashes_of_many_keys_are_distinct_64_bit_numbers():
    hashes = key_hashes([f"[{number}]" for number in range(10_000)])
    assert hashes.dtype == np.uint64
    assert len(set(hashes.tolist())) == 10_000
