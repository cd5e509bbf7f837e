"""Micro-batches on top of what a day's run has published."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from jobs.ledger.keys import key_text
from jobs.schema.records import RowChanges
from jobs.streams.batch_publishing import MicroBatch, publish_batch
from jobs.tables import publishing
from jobs.tables.delta.asked_keys import KeysOf
from jobs.tables.erasing import without_rows
from jobs.tables.leases.day_leases import leased
from jobs.tables.records import run_records
from tests.jobs.tables import test_publishing
from tests.jobs.tables.test_publishing import FIRST, keyed, project, run, wind  # noqa: F401

TABLE = test_publishing.TABLE


@pytest.fixture(autouse=True)
def here(project):  # noqa: F811
    """Each test in a folder of its own."""


def test_a_batch_after_a_run_of_changed_rows_counts_the_rows_that_were_kept():
    enriched = run("changed", FIRST, [1], changes=RowChanges(1, 0, 0, 0, kept=2))
    publishing.publish(enriched)
    batch = run("query-0-a", FIRST, [7])
    with leased(TABLE, FIRST, "query-0-a") as lease:
        publish_batch([batch], MicroBatch("query", 0), [lease])
    assert run_records.of_run("flights", FIRST, "query-0-a").rows_published == 4


def test_a_batch_has_the_version_of_its_commit_when_another_commit_follows(monkeypatch):
    publishing.publish(run("day", FIRST, [1]))
    commit = DeltaTable.create_write_transaction

    def followed(table, *arguments, **named):
        commit(table, *arguments, **named)
        test_publishing.committed_by_another(TABLE)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", followed)
    with leased(TABLE, FIRST, "query-0-a") as lease:
        records = publish_batch([run("query-0-a", FIRST, [7])], MicroBatch("query", 0), [lease])
    assert [record.published_version for record in records] == [1]
    assert run_records.of_run("flights", FIRST, "query-0-a").published_version == 1


def test_a_key_is_removed_from_a_day_of_batches_before_and_after_a_new_column():
    old = {"temp_c": pa.array([1.0, 2.0], pa.float64())} | keyed([1, 2])
    new = {
        "answers": wind([7]) | keyed([7]),
        "returns": (("temp_c", "DOUBLE"), ("wind_ms", "DOUBLE")),
    }
    with leased(TABLE, FIRST, "stream") as lease:
        publish_batch(
            [run("query-0-a", FIRST, [1, 2], answers=old)], MicroBatch("query", 0), [lease]
        )
        publish_batch([run("query-1-a", FIRST, [7], **new)], MicroBatch("query", 1), [lease])
    record = run_records.of_run("flights", FIRST, "query-1-a")
    files = [uri.removeprefix("file://") for uri in DeltaTable(TABLE).file_uris()]
    keys = KeysOf("weather", ("flight",), {key_text(("1",), hidden=False)})
    with leased(TABLE, FIRST, "forget") as lease:
        assert without_rows(record, files, keys, run_id="forget", lease=lease) == 1
    rows = DeltaTable(TABLE).to_pyarrow_table().sort_by("flight")
    assert rows["flight"].to_pylist() == [2, 7]
    assert rows["wind_ms"].to_pylist() == [None, 5.0]
