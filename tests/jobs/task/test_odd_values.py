"""One odd row costs one row: what a function returns or raises, a stored answer, a key, that no
other row has.
"""

import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from jobs.declare.answers.answer_json import dump
from jobs.input.keys.arrow_keys import UnreadKey, read_key_tuples
from jobs.ledger.answers import StoredAnswer, as_answers, as_table
from jobs.ledger.index import write_index
from jobs.ledger.keys import key_text
from jobs.ledger.store import LedgerFolder
from tests.jobs.task.lookup.test_task_ledger import kept, with_ledger
from tests.jobs.task.test_runner import Function, batch, batches, collected, lookup, plan
from tidegate import Retry

ONCE = Retry(retries=0)


@pytest.fixture
def folder(tmp_path):
    return LedgerFolder(f"{tmp_path}/ledger", "first", "f" * 16)


def by_key(rows):
    """Status, answer and error of each row, by the number of its row."""
    columns = ("id", "first_status", "first_x", "_first_error")
    return {
        place: answered
        for place, *answered in zip(*(rows[column].to_pylist() for column in columns), strict=True)
    }


@pytest.mark.parametrize(
    ("value", "returns", "error"),
    [
        (
            pd.NaT,
            "first_x TIMESTAMP",
            "the answer does not fit: first_x: expected TIMESTAMP (such as 2013-01-10T0",
        ),
        (pd.NaT, "first_x STRING", "the answer does not fit: first_x: expected STRING, got nan"),
        (
            pd.NA,
            "first_x BIGINT",
            "the answer does not fit: first_x: expected BIGINT, got a pandas._libs.missing",
        ),
        (
            object(),
            "first_x STRING",
            "the answer does not fit: first_x: expected STRING, got a builtins.object, which",
        ),
        (np.int64(7), "first_x BIGINT", None),
        (
            [[[[]]]],
            "first_x BIGINT",
            "the answer does not fit: first_x: expected BIGINT, got [[[[]]]]",
        ),
    ],
)
def test_an_odd_value_fails_one_row_and_is_not_called_again(folder, value, returns, error):
    def answer(key):
        return [{"first_x": value if key == 1 else None, "more": [value]}]

    function = Function(answer=answer)
    declared = plan(lookup(function, returns=returns, retry=ONCE))
    rows = by_key(collected(with_ledger(declared, folder), batches(3)))
    status, stored, said = rows[1]
    assert (status == "error") == (error is not None)
    assert (said or "").startswith(error or "")
    assert stored == (None if error else 7)
    assert rows[0] == rows[2] == ["ok", None, None]

    index = f"{folder.root}-index.arrow"
    write_index(index, as_table(kept(folder)))
    again = by_key(collected(with_ledger(declared, folder, run_id="r2", index=index), batches(3)))
    assert function.calls == 3  # of the first run
    assert [again[row][:2] for row in range(3)] == [rows[row][:2] for row in range(3)]


def test_an_answer_of_300_levels_is_stored_and_not_called_again(folder):
    deep = "end"
    for _ in range(300):
        deep = [deep]
    function = Function(answer=lambda key: [{"first_x": key, "deep": deep}])
    declared = plan(lookup(function))
    collected(with_ledger(declared, folder), batches(2))
    index = f"{folder.root}-index.arrow"
    write_index(index, as_table(kept(folder)))
    again = collected(with_ledger(declared, folder, run_id="r2", index=index), batches(2))
    assert function.calls == 2
    assert again["first_x"].to_pylist() == [0, 1]


@pytest.mark.parametrize("idempotent", [True, False])
def test_an_unreadable_stored_answer_fails_only_its_key(folder, caplog, idempotent):
    texts = {
        0: dump({"first_x": 5}),
        1: b'{"first_x": {"$datetime": "NaT"}}',
        2: b'{"first_x": ',
        3: dump({"first_x": 6}),
    }
    index = f"{folder.root}-index.arrow"
    write_index(
        index,
        as_table(
            [StoredAnswer(key_text((key,)), "ok", text, 9, "r0") for key, text in texts.items()]
        ),
    )
    function = Function()
    declared = plan(lookup(function, idempotent=idempotent, retry=ONCE))
    rows = by_key(collected(with_ledger(declared, folder, index=index), batches(4)))
    assert (rows[0][:2], rows[3][:2]) == (["ok", 5], ["ok", 6])
    if idempotent:
        assert function.calls == 2
        assert {rows[1][0], rows[2][0]} == {"ok"}
        assert "lookup first: the stored answer of key [1] cannot be read: " in caplog.text
        assert {answer.key for answer in as_answers(folder.read(folder.parts("r1")))} == {
            "[1]",
            "[2]",
        }
    else:
        assert function.calls == 0
        assert rows[1][0] == rows[2][0] == "unknown"
        assert rows[2][2].startswith("the stored answer of key [2] cannot be read: ")


def test_a_function_that_ends_the_process_fails_only_its_row(folder):
    def answer(key):
        if key == 1:
            sys.exit("no more")
        return [{"first_x": key}]

    line = answer.__code__.co_firstlineno + 2
    rows = by_key(
        collected(
            with_ledger(plan(lookup(Function(answer=answer), retry=ONCE)), folder), batches(3)
        )
    )
    assert rows == {
        0: ["ok", 0, None],
        1: ["error", None, f"SystemExit: no more (tests/jobs/task/test_odd_values.py:{line})"],
        2: ["ok", 2, None],
    }


@pytest.mark.parametrize("with_store", [True, False])
def test_a_key_that_is_not_utf8_fails_only_its_row(folder, with_store):
    texts = [b"caf\xc3\xa9", b"caf\xe9", b"ok", b"\xed\xa0\x80", None, b"caf\xe9"]
    one = batch(0, len(texts))
    keys = pa.array(texts, pa.binary()).view(pa.string())
    given = one.set_column(one.schema.get_field_index("k"), "k", keys)
    function = Function(answer=lambda key: [{"first_x": key}])
    declared = plan(lookup(function, returns="first_x STRING"))
    rows = by_key(collected(with_ledger(declared, folder) if with_store else declared, [given]))
    unread = "key k is not UTF-8 text: b'caf\\xe9'"
    assert rows == {
        0: ["ok", "café", None],
        1: ["error", None, unread],
        2: ["ok", "ok", None],
        3: ["error", None, "key k is not UTF-8 text: b'\\xed\\xa0\\x80'"],
        4: ["skipped", None, None],
        5: ["error", None, unread],
    }
    assert function.calls == 2
    assert [type(key) for key in read_key_tuples(given, ["k"])] == [
        tuple,
        UnreadKey,
        tuple,
        UnreadKey,
        type(None),
        UnreadKey,
    ]
