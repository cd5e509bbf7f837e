"""Micro-batches on top of what a day's run has published."""

import datetime as dt
import shutil
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from jobs.commands.costs import list_costs
from jobs.commands.diffing.diff import diff
from jobs.commands.replaying.dead_letters import find_dead_letters
from jobs.commands.replaying.replay import find_letters
from jobs.errors import PublishConflict, TidegateError
from jobs.ledger.keys import key_text
from jobs.run.estimating.last_run import last_runs
from jobs.schema import columns as schema
from jobs.schema.records import (
    Billed,
    BilledUnit,
    LookupFacts,
    LookupMetrics,
    PriceFacts,
    RowChanges,
)
from jobs.streams.batch_publishing import MicroBatch, publish_batch
from jobs.tables import dead_letters, publishing
from jobs.tables.delivery import write_beside
from jobs.tables.delta.asked_keys import KeysOf
from jobs.tables.erasing import without_rows
from jobs.tables.leases.day_leases import leased
from jobs.tables.records import run_records
from orchestration.common.table_status import read_table
from orchestration.dagster.assets.day_status import published_times
from orchestration.dagster.declared import Declared
from orchestration.dagster.sensors.freshness import freshness
from tests.jobs.tables import test_publishing
from tests.jobs.tables.test_publishing import FIRST, keyed, project, run, wind  # noqa: F401
from tests.support.delta_logs import change_table, protocol
from tests.support.moods import MOOD
from tidegate import Enrichment, Input, Output

TABLE = test_publishing.TABLE


@pytest.fixture(autouse=True)
def here(project):  # noqa: F811
    """Each test in a folder of its own."""


def test_a_batch_after_a_run_of_changed_rows_counts_the_kept_rows():
    enriched = run("changed", FIRST, [1], changes=RowChanges(1, 0, 0, 0, kept=2))
    publishing.publish(enriched)
    batch = run("query-0-a", FIRST, [7])
    with leased(TABLE, FIRST, "query-0-a") as lease:
        publish_batch([batch], MicroBatch("query", 0), [lease])
    assert run_records.of_run("flights", FIRST, "query-0-a").rows_published == 4


def test_the_first_batch_of_a_new_table_adds_no_figures_of_the_deleted_table():
    publishing.publish(run("day", FIRST, [1, 2]))
    shutil.rmtree(TABLE)
    with leased(TABLE, FIRST, "query-0-a") as lease:
        publish_batch([run("query-0-a", FIRST, [7])], MicroBatch("query", 0), [lease])
    assert run_records.of_run("flights", FIRST, "query-0-a").figures.rows_out == 1


RATING = LookupFacts("rating", "http", "r", (("score", "INT"),), 2.0, 10, dead_letters=("error",))
RATED = {
    "score": pa.array([None], pa.int32()),
    "rating_status": pa.array(["error"]),
    "rating_answered_at": pa.array([None], pa.timestamp("us", "UTC")),
    schema.status("rating"): pa.array(["error"]),
    schema.source("rating"): pa.array(["call"]),
    schema.attempts("rating"): pa.array([[{"start": 1, "end": 2, "throttled": False}]]),
    schema.latency_ms("rating"): pa.array([1.5]),
    schema.paused_ms("rating"): pa.array([0.0]),
    schema.error("rating"): pa.array(["gone"]),
    schema.key("rating"): pa.array([{"k": "7"}]),
}


@pytest.mark.parametrize("gone", ["1", "7"])
def test_forget_removes_a_key_from_batches_before_and_after_a_new_lookup(gone):
    old = {"temp_c": pa.array([1.0, 2.0])} | keyed([1, 2])
    second = run("query-1-a", FIRST, [7], answers={"temp_c": pa.array([7.0])} | keyed([7]) | RATED)
    declared = replace(second.facts.declared, lookups=(*second.facts.declared.lookups, RATING))
    metrics = LookupMetrics("rating", {"error": 1}, 1, 0, 0.0, 0.0, None, None)
    figures = replace(second.figures, lookups=(metrics,))
    second = replace(second, facts=replace(second.facts, declared=declared), figures=figures)
    with leased(TABLE, FIRST, "stream") as lease:
        publish_batch(
            [run("query-0-a", FIRST, [1, 2], answers=old)], MicroBatch("query", 0), [lease]
        )
        publish_batch([second], MicroBatch("query", 1), [lease])
    record = run_records.of_run("flights", FIRST, "query-1-a")
    files = [uri.removeprefix("file://") for uri in DeltaTable(TABLE).file_uris()]
    keys = KeysOf("weather", ("flight",), {key_text((gone,), hidden=False)})
    with leased(TABLE, FIRST, "forget") as lease:
        assert without_rows(record, files, keys, run_id="forget", lease=lease) == 1
    left = sorted({1, 2, 7} - {int(gone)})
    assert test_publishing.published() == left
    assert test_publishing.audited() == [("forget", flight) for flight in left]
    letters = DeltaTable(f"{TABLE}__dead_letters").to_pyarrow_table().to_pylist()
    assert [row["flight"] for row in letters] == [7] * (7 in left)


def test_a_day_has_the_dead_letters_of_all_its_batches_and_of_no_killed_try():
    def batch(run_id, flight):
        answers = {"temp_c": pa.array([float(flight)])} | keyed([flight]) | RATED
        written = run(run_id, FIRST, [flight], answers=answers)
        declared = replace(written.facts.declared, lookups=(RATING,))
        figures = (LookupMetrics("rating", {"error": 1}, 1, 0, 0.0, 0.0, None, None),)
        return replace(
            written,
            facts=replace(written.facts, declared=declared),
            figures=replace(written.figures, lookups=figures),
        )

    with leased(TABLE, FIRST, "stream") as lease:
        for number in (0, 1):
            publish_batch(
                [run_records.save(batch(f"query-{number}-a", number))],
                MicroBatch("query", number),
                [lease],
            )
    dead_letters.write(write_beside(batch("query-2-killed", 2).facts))
    enrichment = Enrichment(
        name="flights",
        input=Input(path="data/raw/flights", row_id=["flight"]),
        lookups=[MOOD],
        output=Output(path=TABLE),
    )
    (found,) = find_dead_letters(enrichment, FIRST)
    assert sorted(row["flight"] for row in found.rows) == [0, 1]
    assert find_letters(enrichment, FIRST).num_rows == 2, "a replay would pay for the killed try"


EUR = Billed(5, 0, "request", "0.05", "EUR")
BY_UNIT = tuple(BilledUnit(unit, 5, 0, "0.02") for unit in ("input_token", "output_token"))


def billed(record, *bills):
    """The record with a lookup for each of these names and bills."""
    lookups = tuple(
        LookupMetrics(name, {}, 1, 0, 0.0, 0.0, None, None, rows_called=1, billed=bill)
        for name, bill in bills
    )
    return replace(record, figures=replace(record.figures, lookups=lookups))


@pytest.mark.parametrize(
    "new",
    [
        [("weather", Billed(5, 0, "input_token", "0.04", "EUR", by_unit=BY_UNIT))],
        [("weather", replace(EUR, currency="USD"))],
        [("weather", replace(EUR, unit="item"))],
        [("rating", EUR)],
        [("weather", replace(EUR, units=7))],
    ],
    ids=["more units", "currency", "unit", "another lookup", "same price"],
)
def test_bills_and_calls_of_two_batches_are_added_whatever_their_prices(new):
    old = [("weather", EUR)]
    with leased(TABLE, FIRST, "stream") as lease:
        for number, bills in enumerate([old, new]):
            record = run_records.save(billed(run(f"query-{number}-a", FIRST, [number]), *bills))
            publish_batch([record], MicroBatch("query", number), [lease])
    expected, found = Counter(), Counter()
    for name, bill in old + new:
        expected.update({(name, bill.currency, part.unit): part.units for part in bill.parts})
    records = run_records.load("flights")
    for lookup in (
        figures for record in records for figures in record.figures.lookups if figures.billed
    ):
        for part in lookup.billed.parts:
            found[lookup.name, lookup.billed.currency, part.unit] += part.units
    assert found == expected
    assert [record.state for record in records] == ["published"] * len(records)
    assert sum(record.figures.calls for record in records) == 2
    assert run_records.of_run("flights", FIRST, "query-1-a").figures.rows_out == 2


def test_a_batch_after_a_run_of_its_day_has_the_calls_of_its_bill():
    publishing.publish(billed(run("day", FIRST, [1]), ("weather", EUR)))
    batch = run_records.save(billed(run("query-0-a", FIRST, [7]), ("weather", EUR)))
    with leased(TABLE, FIRST, "query-0-a") as lease:
        publish_batch([batch], MicroBatch("query", 0), [lease])
    enrichment = Enrichment(
        name="flights", input=Input(path="raw"), lookups=[MOOD], output=Output(path=TABLE)
    )
    now = dt.datetime.now(dt.UTC)
    (day,) = (day for day in read_table(enrichment, 3, now).days if day.day == FIRST)
    assert (day.rows, day.calls, day.cost) == (2, 1, {"EUR": 0.05})
    figures = last_runs("flights")["weather"]
    assert figures.cost([PriceFacts("0.01", "EUR", "request")], 1) == "0.050000"


def test_a_plan_uses_the_last_calls_of_batches_with_different_lookups():
    for number, name in enumerate(["weather", "rating"]):
        record = run(f"query-{number}-a", FIRST, [number])
        called = LookupMetrics(name, {}, 1, 0, 0.0, 0.0, None, None, rows_called=1)
        record = replace(record, figures=replace(record.figures, lookups=(called,)))
        declared = replace(
            record.facts.declared, lookups=(replace(RATING, name=name, dead_letters=()),)
        )
        record = replace(record, facts=replace(record.facts, declared=declared))
        with leased(TABLE, FIRST, f"query-{number}-a") as lease:
            publish_batch([run_records.save(record)], MicroBatch("query", number), [lease])
    (record,) = run_records.load("flights")
    assert {lookup.name for lookup in record.figures.lookups} == {"weather", "rating"}
    assert last_runs("flights")["rating"].concurrency == RATING.max_concurrency


def test_each_batch_of_a_day_counts_in_the_month_in_which_it_ran():
    for number, month in enumerate(["2026-10", "2026-11", "2026-11"]):
        at = f"{month}-01T00:0{number}:00.000+00:00"
        record = run(f"query-{number}-a", FIRST, [number], started_at=at, finished_at=at)
        with leased(TABLE, FIRST, f"query-{number}-a") as lease:
            publish_batch(
                [run_records.save(billed(record, ("weather", EUR)))],
                MicroBatch("query", number),
                [lease],
            )
    assert list_costs("2026-10").totals() == {"EUR": Decimal("0.05")}
    assert list_costs("2026-11").totals() == {"EUR": Decimal("0.10")}
    assert run_records.of_run("flights", FIRST, "query-2-a").figures.rows_out == 3
    enrichment = Enrichment(
        name="flights", input=Input(path="raw"), lookups=[MOOD], output=Output(path=TABLE)
    )
    work = read_table(enrichment, 3, dt.datetime(2026, 11, 2, 12, tzinfo=dt.UTC)).this_month
    assert (work.rows, work.calls, work.cost) == (2, 2, {"EUR": 0.1})


def test_a_day_counts_as_published_at_its_first_batch():
    enrichment = Enrichment(
        name="flights", input=Input(path="raw"), lookups=[MOOD], output=Output(path=TABLE),
        start="2013-01-01", publish_by="06:30",
    )  # fmt: skip
    for number, hour in enumerate([1, 8, 9]):
        at = dt.datetime(2013, 1, 11, hour, tzinfo=dt.UTC)
        record = run(f"query-{number}-a", FIRST, [number], started_at=at.isoformat())
        with leased(TABLE, FIRST, f"query-{number}-a") as lease:
            publish_batch(
                [run_records.save(record)],
                MicroBatch("query", number),
                [lease],
                now=lambda at=at: at,
            )
    evening = dt.datetime(2013, 1, 11, 20, tzinfo=dt.UTC)
    found = freshness(Declared("a:flights", enrichment), evening)
    assert found.passed, found.description
    assert max(published_times(Declared("a:flights", enrichment), FIRST)).hour == 9


def test_a_batch_records_the_version_of_its_commit_although_another_follows(monkeypatch):
    publishing.publish(run("day", FIRST, [1]))
    commit = DeltaTable.create_write_transaction

    def followed(table, *arguments, **named):
        commit(table, *arguments, **named)
        if table.table_uri.rstrip("/").endswith(TABLE):
            test_publishing.committed_by_another(TABLE)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", followed)
    with leased(TABLE, FIRST, "query-0-a") as lease:
        records = publish_batch([run("query-0-a", FIRST, [7])], MicroBatch("query", 0), [lease])
    assert [record.published_version for record in records] == [1]
    assert [*Path(records[0].facts.folder).glob("beside/*")] == []
    assert run_records.of_run("flights", FIRST, "query-0-a").published_version == 1


def test_forget_removes_a_key_from_batches_before_and_after_a_new_column():
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


def test_diff_uses_the_columns_and_figures_of_the_last_batch():
    old = {"temp_c": pa.array([1.0, 2.0], pa.float64())} | keyed([1, 2])
    new = {
        "answers": wind([7]) | keyed([7]),
        "returns": (("temp_c", "DOUBLE"), ("wind_ms", "DOUBLE")),
    }
    publishing.publish(run("run-of-the-day", FIRST, [1, 2], answers=old))
    batch = run_records.save(run("query-0-a", FIRST, [7], **new))  # its folder is not the last
    with leased(TABLE, FIRST, "stream") as lease:
        publish_batch([batch], MicroBatch("query", 0), [lease])
    enrichment = Enrichment(
        name="flights", input=Input(path="raw"), lookups=[MOOD], output=Output(path=TABLE)
    )
    found = diff(enrichment, FIRST)
    assert (found.before.run_id, found.after.run_id) == ("run-of-the-day", "query-0-a")
    assert (found.after.rows, found.new_columns) == (3, ("wind_ms",))


def test_a_batch_refused_by_delta_is_not_reported_as_a_conflict():
    publishing.publish(run("day", FIRST, [1]))
    change_table(TABLE, protocol("rowTracking"))
    with (
        leased(TABLE, FIRST, "query-0-a") as lease,
        pytest.raises(TidegateError, match=r"cannot be written: Unsupported .*RowTracking"),
    ):
        publish_batch([run("query-0-a", FIRST, [7])], MicroBatch("query", 0), [lease])
    assert test_publishing.published() == [1]


def test_a_batch_that_always_loses_to_other_commits_reports_that_it_is_unpublished(monkeypatch):
    publishing.publish(run("day", FIRST, [1]))
    commit = DeltaTable.create_write_transaction

    def loses(table, *arguments, **named):
        test_publishing.committed_by_another(TABLE)
        commit(table, *arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", loses)
    monkeypatch.setattr("jobs.tables.delta.delta_log.COMMIT_TRIES", 2)
    with (
        leased(TABLE, FIRST, "query-0-a") as lease,
        pytest.raises(PublishConflict, match=r"is not published: other programs committed"),
    ):
        publish_batch([run("query-0-a", FIRST, [7])], MicroBatch("query", 0), [lease])
    assert test_publishing.published() == [1]
