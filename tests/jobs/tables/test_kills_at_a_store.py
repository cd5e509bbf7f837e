"""A run killed at any request to its object store leaves the old day or the new one, and the next
run ends it.
"""

import dataclasses
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.storage import object_lock
from jobs.tables import audit
from jobs.tables.delta import delta_log
from jobs.tables.derived.summaries import summarize
from jobs.tables.leases.day_leases import leased
from jobs.tables.publishing import publish
from jobs.tables.records import run_records
from tests.jobs.tables import test_publishing as days
from tests.support.killed_processes import behind_a_proxy, requests_to_break
from tidegate import Output

pytestmark = pytest.mark.proof

DAY = days.FIRST
ROOT = Path(__file__).parents[3]
WITH_WIND = (("temp_c", "DOUBLE"), ("wind_ms", "DOUBLE"))
BEAT, EXPIRES = 0.1, 0.4  # s; nobody else is there who could take a lock


def run_of(table, run_id, flights, returns=(), entries=delta_log.ENTRIES):
    """Publish the day with its summary. entries: after so many a new table sums up its log."""
    delta_log.ENTRIES = entries
    object_lock.BEAT, object_lock.EXPIRES = BEAT, EXPIRES
    days.TABLE = table
    with leased(table, DAY, run_id, wait=20) as lease:
        answers = days.wind(flights) if returns else None
        publish(days.run(run_id, DAY, flights, answers=answers, returns=returns), lease)
        summarize(of(table), days.SUMMARY, DAY)


def of(table):
    return dataclasses.replace(days.FLIGHTS, output=Output(path=table))


@pytest.fixture
def killed(s3, tmp_path, monkeypatch):
    """Runs `run_of` in a process that is killed at a request, or whose answer is lost. Returns
    whether it sent so many.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(object_lock, "BEAT", BEAT)
    monkeypatch.setattr(object_lock, "EXPIRES", EXPIRES)
    with behind_a_proxy(s3, preload=__name__) as run:
        yield lambda *arguments, **how: run(run_of, *arguments, **how)


def flights_of(table):
    if not DeltaTable.is_deltatable(table):
        return []
    return sorted(DeltaTable(table).to_pyarrow_table()["flight"].to_pylist())


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize(
    ("old", "entries"), [([], delta_log.ENTRIES), ([1, 2, 3], delta_log.ENTRIES), ([1, 2, 3], 1)]
)
def test_a_publication_killed_at_any_request_is_whole_or_absent_and_the_next_run_completes(
    killed, s3, old, entries, served
):
    for at in requests_to_break():
        table = f"{s3.bucket}/{at}/flights"
        if old:
            run_of(table, f"old-{at}", old, entries=entries)
        if not killed(table, f"killed-{at}", [4, 5], (), entries, at=at, served=served):
            break
        assert flights_of(table) in (old, [4, 5])
        run_of(table, f"next-{at}", [4, 5], entries=entries)
        assert flights_of(table) == [4, 5]
        rows = DeltaTable(audit.table_of(table)).to_pyarrow_table().to_pylist()
        assert sorted((row["run_id"], row["flight"]) for row in rows) == [
            (f"next-{at}", 4),
            (f"next-{at}", 5),
        ]
        summary = DeltaTable(f"{s3.bucket}/{at}/by_parity").to_pyarrow_table().to_pylist()
        assert sorted((row["odd"], row["flights"]) for row in summary) == [(0, 1), (1, 1)]
    assert at > 30


@pytest.mark.parametrize(("old", "returns"), [([], ()), ([1, 2, 3], ()), ([1, 2, 3], WITH_WIND)])
def test_a_publication_with_any_lost_response_of_the_store_publishes_once(killed, s3, old, returns):
    for at in requests_to_break():
        table = f"{s3.bucket}/{at}/flights"
        if old:
            run_of(table, f"old-{at}", old)
        if not killed(table, f"run-{at}", [4, 5], returns, at=at):
            break
        assert flights_of(table) == [4, 5]
        assert run_records.of_run("flights", DAY, f"run-{at}").state == "published"
        rows = DeltaTable(audit.table_of(table)).to_pyarrow_table().to_pylist()
        assert sorted((row["run_id"], row["flight"]) for row in rows) == [
            (f"run-{at}", 4),
            (f"run-{at}", 5),
        ]
    assert at > 30
