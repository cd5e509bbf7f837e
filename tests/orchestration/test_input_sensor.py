"""New and changed input files are noticed, and their days run again, those of the last week."""

import dataclasses
import datetime as dt
import os
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dagster import DagsterRunStatus
from dagster._core.test_utils import create_run_for_test

from enrichments.flights import flights
from jobs.input.day import files_in, find_input
from jobs.schema.records import DayFacts, DayMetrics, DayRecord, UnwrittenRun
from jobs.storage.stored_files import version_of
from jobs.tables.records import run_records
from orchestration.dagster.declared import Declared
from orchestration.dagster.definitions import build_definitions
from orchestration.dagster.resources import SparkProgram
from orchestration.dagster.schedules import day_job
from orchestration.dagster.sensors.input_files import find_day_files
from orchestration.dagster.sensors.starts_days import starts_days
from tests.support.day_ranges import range_tags

DECLARED = Declared("a:flights", dataclasses.replace(flights, start="2026-11-01", end=None))
NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
YESTERDAY = "2026-11-19"
LONG_AGO = "2026-11-02"  # when the enrichment was run for the first time
NIGHT = dt.timedelta(hours=9)  # before NOW: when the days were run


class Sensor:
    """As the daemon calls it: with its cursor, and each time a little later."""

    def __init__(self, instance, *readers: Declared) -> None:
        self.instance = instance
        self.readers = readers or (DECLARED,)
        self.cursor: str | None = None
        self.events: list[dg.AssetMaterialization] = []
        self.keys: set[str] = set()

    def look(self, now: dt.datetime = NOW) -> list[tuple[str, str]]:
        """The runs that are asked for: job and day."""
        sensor = starts_days(
            self.readers, [day_job(reader) for reader in self.readers], lambda: now
        )
        definitions = build_definitions(self.readers, SparkProgram())
        context = dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, definitions=definitions
        )
        result = sensor(context)
        self.cursor, self.events = result.cursor, result.asset_events
        # Dagster starts a single run for each key
        new = [request for request in result.run_requests if request.run_key not in self.keys]
        self.keys |= {request.run_key for request in new}
        return [(request.job_name, request.partition_key) for request in new]


@pytest.fixture
def sensor(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    was_run(LONG_AGO)
    with dg.DagsterInstance.ephemeral() as instance:
        yield Sensor(instance)


def write(
    day: str,
    ago: dt.timedelta = dt.timedelta(hours=1),
    name: str = "part-0.parquet",
    text: str = "x",
) -> None:
    """An input file of that age."""
    path = Path("data/raw/flights", f"date={day}", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ((NOW - ago).timestamp(),) * 2)


def was_run(day: str, of: Declared = DECLARED, ago: dt.timedelta = NIGHT) -> None:
    """A run that read the files that are there now."""
    version = version_of(files_in(of.enrichment.input, day))
    began = (NOW - ago).isoformat()
    run_id = f"run of {day}, {ago} before"
    facts = DayFacts(of.facts, day, run_id, (), (), "", (), (), began, "", files_version=version)
    run_records.save(DayRecord(facts, DayMetrics(0, 0, 0, ()), state="published"))


def a_run(sensor, day: str, status: DagsterRunStatus) -> dg.DagsterRun:
    tags = {"tidegate/enrichment": DECLARED.name, "dagster/partition": day}
    return create_run_for_test(sensor.instance, DECLARED.job_name, tags=tags, status=status)


def test_each_day_of_the_last_week_with_new_or_changed_files_is_run_once(sensor):
    for day in ("2026-11-12", "2026-11-15", "2026-11-17", YESTERDAY):
        write(day, ago=dt.timedelta(hours=20))
        was_run(day)
    assert sensor.look() == []
    for day in ("2026-11-12", "2026-11-15"):  # the first is older than a week
        write(day, name="late.parquet")
    assert sensor.look() == [("flights_enriched_nightly", "2026-11-15")]
    (event,) = sensor.events
    assert (event.asset_key, event.partition) == (DECLARED.raw_key, "2026-11-15")
    assert event.metadata["files"].value == 2
    assert event.tags["dagster/data_version"]
    assert sensor.look() == []
    write("2026-11-15", name="late.parquet", text="changed")
    assert sensor.look() == [("flights_enriched_nightly", "2026-11-15")]


def test_a_file_that_is_moved_in_with_its_old_time_is_run(sensor):
    """As mv from another folder, rsync -a and cp -p leave it."""
    write("2026-11-15", ago=dt.timedelta(hours=20))
    was_run("2026-11-15")
    assert sensor.look() == []
    write("2026-11-15", ago=dt.timedelta(hours=20), name="late.parquet")
    assert sensor.look() == [("flights_enriched_nightly", "2026-11-15")]
    assert sensor.look() == []


def test_a_file_replaced_by_an_older_file_is_run(sensor):
    write("2026-11-15", ago=dt.timedelta(hours=20))
    was_run("2026-11-15")
    assert sensor.look() == []
    write("2026-11-15", ago=dt.timedelta(hours=30), text="of another delivery")
    assert sensor.look() == [("flights_enriched_nightly", "2026-11-15")]
    assert sensor.look() == []


def test_a_day_is_run_when_an_unreadable_file_appears_or_disappears(sensor):
    day, wrong = "2026-11-15", "of_another_day.parquet"
    write(day)
    assert sensor.look() == [("flights_enriched_nightly", day)]
    for hours in range(4, 0, -2):
        was_run(day, ago=dt.timedelta(hours=hours))
        write(day, name=wrong)
        assert sensor.look() == [("flights_enriched_nightly", day)]
        was_run(day, ago=dt.timedelta(hours=hours - 1))
        Path(f"data/raw/flights/date={day}/{wrong}").unlink()
        assert sensor.look() == [("flights_enriched_nightly", day)]
        assert sensor.look() == []


def test_a_text_file_that_is_moved_in_with_its_old_time_is_run(sensor):
    flights_input = DECLARED.enrichment.input
    source = dataclasses.replace(flights_input, format="csv", schema="flight string")
    declared = Declared("a:flights", dataclasses.replace(DECLARED.enrichment, input=source))
    sensor.readers = (declared,)
    write("2026-11-15", ago=dt.timedelta(hours=20), name="part-0.csv")
    was_run("2026-11-15", of=declared)
    assert sensor.look() == []
    write("2026-11-15", ago=dt.timedelta(hours=20), name="late.csv")
    assert sensor.look() == [("flights_enriched_nightly", "2026-11-15")]


def test_a_run_records_the_same_files_as_the_sensor(sensor):
    folder = Path("data/raw/flights/date=2026-11-15")
    folder.mkdir(parents=True)
    rows = pa.table({"flight": ["a"]})
    pq.write_table(rows, folder / "part-0.parquet")
    pq.write_table(rows.slice(0, 0), folder / "part-1.parquet")
    found = find_input(DECLARED.enrichment, "2026-11-15")
    assert len(found.files) == 1
    assert found.files_version == find_day_files(DECLARED, "2026-11-15").version


def test_a_day_seen_for_the_first_time_is_run_unless_it_already_ran(sensor):
    write("2026-11-18")
    write("2026-11-16", ago=dt.timedelta(hours=20))
    was_run("2026-11-16")
    assert sensor.look() == [("flights_enriched_nightly", "2026-11-18")]


def test_files_of_an_enrichment_that_never_ran_start_no_run(
    sensor,
):
    new = Declared(
        "c:new", dataclasses.replace(DECLARED.enrichment, name="new_flights", summaries=())
    )
    sensor.readers = (DECLARED, new)
    write("2026-11-16")
    assert sensor.look() == [("flights_enriched_nightly", "2026-11-16")]
    was_run("2026-11-18", of=new)
    assert sensor.look() == []
    write("2026-11-17")
    assert sensor.look() == [
        ("flights_enriched_nightly", "2026-11-17"),
        ("new_flights_nightly", "2026-11-17"),
    ]


def test_yesterday_is_left_to_the_schedule_until_the_schedule_has_ticked(sensor):
    write(YESTERDAY)
    assert sensor.look() == []
    run = a_run(sensor, YESTERDAY, DagsterRunStatus.FAILURE)
    assert run.is_finished  # it found no input, say
    write(YESTERDAY, name="more.parquet")
    assert sensor.look() == [("flights_enriched_nightly", YESTERDAY)]


def test_a_failed_day_is_not_run_again_on_the_same_files(sensor):
    write(YESTERDAY, ago=dt.timedelta(hours=10))
    a_run(sensor, YESTERDAY, DagsterRunStatus.FAILURE)
    began, ended = (NOW - NIGHT).isoformat(), (NOW - NIGHT + dt.timedelta(minutes=5)).isoformat()
    run_records.save_unwritten(
        UnwrittenRun(
            DECLARED.name,
            YESTERDAY,
            "failed",
            "failed",
            "a page is damaged.",
            "Mend it.",
            began,
            ended,
        )
    )
    assert sensor.look() == []
    write(YESTERDAY, name="delivered_again.parquet")
    assert sensor.look() == [("flights_enriched_nightly", YESTERDAY)]


def test_a_file_that_is_moved_in_after_a_run_without_input_is_run(sensor):
    a_run(sensor, YESTERDAY, DagsterRunStatus.FAILURE)
    began = (NOW - NIGHT).isoformat()
    why = "failed", "failed", "there is no input.", "Deliver it."
    none = version_of([])
    run_records.save_unwritten(
        UnwrittenRun(DECLARED.name, YESTERDAY, *why, began, began, files_version=none)
    )
    write(YESTERDAY, ago=dt.timedelta(hours=20))
    assert sensor.look() == [("flights_enriched_nightly", YESTERDAY)]


@pytest.mark.parametrize("status", [DagsterRunStatus.CANCELED, DagsterRunStatus.FAILURE])
def test_days_that_an_ended_backfill_did_not_begin_are_not_run(sensor, status):
    days = ("2026-11-15", "2026-11-16", "2026-11-17")
    for day in days:
        write(day)
    tags = {"tidegate/enrichment": DECLARED.name} | range_tags(days[0], days[-1])
    create_run_for_test(sensor.instance, DECLARED.job_name, tags=tags, status=status)
    was_run(days[0])
    assert sensor.look() == []
    write("2026-11-18")
    assert sensor.look() == [("flights_enriched_nightly", "2026-11-18")]


def test_an_unreadable_input_does_not_stop_runs_of_other_inputs(sensor):
    path = Path("data/raw/another/date=2026-11-16")
    source = dataclasses.replace(DECLARED.enrichment.input, path="data/raw/another")
    another = dataclasses.replace(DECLARED.enrichment, name="another", input=source, summaries=())
    path.mkdir(parents=True)
    (path / "part-0.parquet").symlink_to("part-0.parquet")  # it leads to itself
    sensor.readers = (Declared("d:another", another), DECLARED)
    write("2026-11-16")
    assert sensor.look() == [("flights_enriched_nightly", "2026-11-16")]


def test_without_a_schedule_yesterday_is_run_when_its_files_appear(sensor):
    unscheduled = Declared("a:flights", dataclasses.replace(DECLARED.enrichment, schedule=None))
    sensor.readers = (unscheduled,)
    write(YESTERDAY)
    assert sensor.look() == [("flights_enriched_nightly", YESTERDAY)]


def test_files_that_may_still_be_written_and_days_that_are_being_run_wait(sensor):
    write("2026-11-18", ago=dt.timedelta(seconds=30))
    later = NOW + dt.timedelta(minutes=2)
    assert sensor.look() == []
    assert sensor.look(later) == [("flights_enriched_nightly", "2026-11-18")]
    run = a_run(sensor, "2026-11-18", DagsterRunStatus.STARTED)
    write("2026-11-18", name="late.parquet")
    assert sensor.look(later) == []
    sensor.instance.report_run_canceled(run)
    assert sensor.look(later) == [("flights_enriched_nightly", "2026-11-18")]


def test_every_reader_of_an_input_is_run_and_the_input_is_reported_once(sensor):
    other = Declared(
        "b:other", dataclasses.replace(DECLARED.enrichment, name="other_flights", summaries=())
    )
    was_run(LONG_AGO, of=other)
    sensor.readers = (DECLARED, other)
    write("2026-11-18")
    assert sensor.look() == [
        ("flights_enriched_nightly", "2026-11-18"),
        ("other_flights_nightly", "2026-11-18"),
    ]
    assert [event.partition for event in sensor.events] == ["2026-11-18"]
