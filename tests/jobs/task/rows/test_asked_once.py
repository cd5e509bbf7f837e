"""What became of keys that were asked once for the whole job, as the tasks read it."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from jobs.errors import LedgerError
from jobs.ledger.keyed_file import write_keyed
from jobs.task.rows.asked_once import AskedFile, AskedOnce

ATTEMPTS = pa.list_(
    pa.struct([("start", pa.int64()), ("end", pa.int64()), ("throttled", pa.bool_())])
)


def asked(keys):
    count = len(keys)
    return pa.table(
        {
            "key": pa.array(keys, pa.string()),
            "outcome": pa.array(["ok", "error"] * count, pa.string())[:count],
            "error": pa.array([None, "it said 500"] * count, pa.string())[:count],
            "attempts": pa.array(
                [[{"start": n, "end": n + 5, "throttled": False}] for n in range(count)], ATTEMPTS
            ),
            "latency_ms": pa.array([n / 2 for n in range(count)], pa.float64()),
            "paused_ms": pa.array([0.0] * count, pa.float64()),
            "source_file": pa.array(
                [f"file:///day/{n % 3}.parquet" for n in range(count)], pa.string()
            ),
            "source_row": pa.array(range(count), pa.int64()),
            "answered_at": pa.array([7] * count, pa.int64()),
            "answer_0": pa.array([None if n % 2 else n / 4 for n in range(count)], pa.float64()),
            "answer_1": pa.array(
                [None if n % 2 else [str(n)] for n in range(count)], pa.list_(pa.string())
            ),
        }
    )


def batch_of(rows):
    """Rows by their file and number."""
    files, numbers = zip(*rows, strict=True) if rows else ((), ())
    return pa.record_batch(
        {"_source_file": pa.array(files, pa.string()), "_source_row": pa.array(numbers, pa.int64())}
    )


def found(file, keys, rows):
    """What became of each key: one column of outcomes for each of those that were asked."""
    known, outcomes = AskedOnce.open(file).find(
        pa.array(keys, pa.string()), batch_of(rows), np.arange(len(keys))
    )
    return known.tolist(), outcomes.to_pylist()


def test_each_prefetched_key_is_found_with_its_outcome_and_attempts(tmp_path):
    keys = [f'["{n}"]' for n in range(1000)]
    write_keyed(f"{tmp_path}/asked.arrow", asked(keys))
    wanted = [*reversed(keys), '["none"]', keys[1]]
    rows = [("file:///elsewhere", -1)] * 1000 + [("file:///day/1.parquet", 1)] * 2
    known, outcomes = found(AskedFile(f"{tmp_path}/asked.arrow", hidden=False), wanted, rows)
    assert known == [True] * 1000 + [False, True]
    answered_at = dt.datetime.fromtimestamp(7e-6, dt.UTC)
    nothing = {"latency_ms": None, "paused_ms": None, "attempts": []}
    assert outcomes[-1] == {
        "status": "error", "answered_at": answered_at, "source": "call", "latency_ms": 0.5,
        "paused_ms": 0.0, "attempts": [{"start": 1, "end": 6, "throttled": False}],
        "error": "it said 500", "answer_0": None, "answer_1": None,
    }  # fmt: skip
    assert outcomes[998] == outcomes[-1] | nothing | {"source": "shared"}
    assert outcomes[1] == {
        "status": "ok", "answered_at": answered_at, "source": "shared", "error": None,
        "answer_0": 249.5, "answer_1": ["998"],
    } | nothing  # fmt: skip


def test_a_torn_or_missing_prefetch_file_is_reported_in_one_sentence(tmp_path):
    write_keyed(f"{tmp_path}/asked.arrow", asked(["a"]))
    (tmp_path / "torn.arrow").write_bytes((tmp_path / "asked.arrow").read_bytes()[:-20])
    for name in ("torn", "gone"):
        with pytest.raises(
            LedgerError,
            match=(
                r"a file of this run cannot be read from "
                rf".*{name}\.arrow"
            ),
        ):
            AskedOnce.open(AskedFile(f"{tmp_path}/{name}.arrow", hidden=False))


def test_an_empty_prefetch_file_finds_no_key(tmp_path):
    write_keyed(f"{tmp_path}/asked.arrow", asked([]))
    assert found(AskedFile(f"{tmp_path}/asked.arrow", hidden=False), ["a"], [(None, None)]) == (
        [False],
        [],
    )


def test_one_row_of_a_key_has_the_attempts_of_its_call(tmp_path):
    write_keyed(f"{tmp_path}/asked.arrow", asked(["a", "b"]))
    rows = [
        ("file:///day/1.parquet", 1),
        ("file:///day/0.parquet", 1),
        ("file:///day/1.parquet", 5),
        (None, None),
    ]
    _, outcomes = found(AskedFile(f"{tmp_path}/asked.arrow", hidden=False), ["b"] * 4, rows)
    assert [len(outcome["attempts"]) for outcome in outcomes] == [1, 0, 0, 0]
    assert [outcome["source"] for outcome in outcomes] == ["call", "shared", "shared", "shared"]
