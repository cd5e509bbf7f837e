"""What became of keys that were asked once for the whole job, as the tasks read it."""

import pyarrow as pa
import pytest

from jobs.errors import LedgerError
from jobs.ledger.keys import key_text
from jobs.task.asked_once import AskedBefore, AskedFile, AskedKey, AskedOnce, write_asked_once

ATTEMPTS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("throttled", pa.bool_())]))


def asked(keys):
    count = len(keys)
    return pa.table(
        {
            "key": pa.array(keys, pa.string()),
            "outcome": pa.array(["ok", "error"] * count, pa.string())[:count],
            "error": pa.array([None, "it said 500"] * count, pa.string())[:count],
            "attempts": pa.array([[{"start": n, "end": n + 5, "throttled": False}] for n in range(count)], ATTEMPTS),
            "latency_ms": pa.array([n / 2 for n in range(count)], pa.float64()),
            "paused_ms": pa.array([0.0] * count, pa.float64()),
            "source_file": pa.array([f"file:///day/{n % 3}.parquet" for n in range(count)], pa.string()),
            "source_row": pa.array(range(count), pa.int64()),
            "answered_at": pa.array([7] * count, pa.int64()),
            "answer_0": pa.array([None if n % 2 else n / 4 for n in range(count)], pa.float64()),
            "answer_1": pa.array([None if n % 2 else [str(n)] for n in range(count)], pa.list_(pa.string())),
        }
    )


def test_every_key_is_found_with_all_that_became_of_it(tmp_path):
    keys = [f'["{n}"]' for n in range(1000)]
    write_asked_once(f"{tmp_path}/asked.arrow", asked(keys))
    found = AskedOnce.open(AskedFile(f"{tmp_path}/asked.arrow", hidden=False)).find_many(
        [*reversed(keys), None, '["none"]', keys[1]]
    )
    assert found[-1] == found[998]
    message = "it said 500"
    assert found[998] == AskedKey("error", message, ((1, 6, False),), 0.5, 0.0, "file:///day/1.parquet", 1, 7, None)
    assert (found[1].outcome, found[1].answer) == ("ok", (249.5, ["998"]))
    assert found[0].source_row == 999
    assert found[1000:1002] == [None, None]
    assert None not in found[:1000]


def test_a_file_that_is_torn_or_gone_is_told_in_one_sentence(tmp_path):
    write_asked_once(f"{tmp_path}/asked.arrow", asked(["a"]))
    (tmp_path / "torn.arrow").write_bytes((tmp_path / "asked.arrow").read_bytes()[:-20])
    for name in ("torn", "gone"):
        with pytest.raises(LedgerError, match=rf"a file of this run cannot be read from .*{name}\.arrow"):
            AskedOnce.open(AskedFile(f"{tmp_path}/{name}.arrow", hidden=False))


def test_a_file_without_a_line_finds_nothing(tmp_path):
    write_asked_once(f"{tmp_path}/asked.arrow", asked([]))
    assert AskedOnce.open(AskedFile(f"{tmp_path}/asked.arrow", hidden=False)).find_many(["a", None]) == [None, None]


def test_the_audit_stands_at_one_row_of_the_key_and_hidden_keys_are_found_by_their_digest(tmp_path):
    path = f"{tmp_path}/asked.arrow"
    write_asked_once(path, asked([key_text((n,), hidden=True) for n in range(3)]))
    batch = pa.record_batch({"_source_file": ["file:///day/1.parquet"] * 3, "_source_row": pa.array([1, 5, 1])})
    found = AskedOnce.open(AskedFile(path, hidden=True)).find(batch, [(1,), (1,), None])
    assert found == [AskedBefore(found[0].asked, True), AskedBefore(found[0].asked, False), None]
