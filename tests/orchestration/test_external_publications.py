"""Days that were published without Dagster are materialized in it too, each version once."""

import dataclasses
import datetime as dt
import shutil
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterRunStatus
from dagster._core.test_utils import create_run_for_test
from deltalake import DeltaTable

from enrichments.flights import flights
from jobs.schema.records import UnwrittenRun, Verdict
from jobs.streams.batch_publishing import MicroBatch, publish_batch
from jobs.tables.derived.summaries import summarize
from jobs.tables.leases.day_leases import leased
from jobs.tables.records import run_records
from orchestration.common.modes import Mode
from orchestration.dagster.assets.day_status import latest_status
from orchestration.dagster.assets.day_step import choose_days
from orchestration.dagster.declared import Declared
from orchestration.dagster.definitions import build_definitions
from orchestration.dagster.resources import spark_program
from orchestration.dagster.sensors.freshness import freshness
from orchestration.dagster.sensors.reports_days import reports_days
from tests.jobs.commands.conftest import towns_in, verdict
from tests.support.check_partitions import checks_of_days
from tidegate.__main__ import main

DAY, NEXT = "2013-01-10", "2013-01-11"
NOT_RUN = Verdict("input_day_complete", "not_run", "warn", "No earlier day to compare with.")


class Sensor:
    """As the daemon calls it: with its cursor; what it says goes into the instance."""

    def __init__(self, instance, declared: Declared) -> None:
        self.instance, self.declared = instance, declared
        self.cursor: str | None = None

    def look(self) -> list:
        """The events that one tick adds."""
        before = self._events()
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor)
        self.cursor = reports_days([self.declared])(context).cursor
        return [event for number, event in self._events().items() if number not in before]

    def _events(self) -> dict:
        """All materializations and observations of the enrichment's assets, by their number in the
        log.
        """
        found = {}
        for key in (
            self.declared.raw_key,
            self.declared.key,
            self.declared.dead_letters_key,
            dg.AssetKey("by_town"),
        ):
            for fetch in (self.instance.fetch_materializations, self.instance.fetch_observations):
                for record in fetch(key, limit=1000).records:
                    found[record.storage_id] = (
                        record.asset_materialization or record.asset_observation
                    )
        return dict(sorted(found.items()))

    def checks(self, status: str) -> dict[str, set[str]]:
        return checks_of_days(self.instance, self.declared, status)

    def days(self) -> list[tuple[str, int]]:
        """The days that one tick materializes, with the version that each is told to be in."""
        events = [event for event in self.look() if isinstance(event, dg.AssetMaterialization)]
        own = [event for event in events if event.asset_key == self.declared.key]
        return [(event.partition, event.metadata["published_version"].value) for event in own]

    def materialized(self, asset: dg.AssetKey) -> set[str]:
        return self.instance.get_materialized_partitions(asset)


@pytest.fixture
def towns(tmp_path, monkeypatch):
    return towns_in(tmp_path, monkeypatch)


@pytest.fixture
def sensor(towns):
    with dg.DagsterInstance.ephemeral() as instance:
        enrichment = dataclasses.replace(towns.enrichment, start="2013-01-01")
        yield Sensor(instance, Declared("declared.towns:towns", enrichment))


def test_the_days_of_a_streams_batch_are_materialized_with_the_version_that_has_them(towns, sensor):
    for number in range(2):
        records = [towns.written(day, [number], f"q-{number}-{day}", {}) for day in (DAY, NEXT)]
        with leased(records[0].facts.declared.table, DAY, f"q-{number}-{DAY}") as lease:
            for record in records:
                run_records.save(record)
            publish_batch(records, MicroBatch("q", number), [lease])
    version = DeltaTable("data/published/towns").version()
    assert sensor.days() == [(DAY, version), (NEXT, version)]
    assert [record.figures.rows_out for record in run_records.load("towns")] == [2, 2]


def test_all_days_of_a_batch_reach_dagster_over_several_sensor_ticks(towns, sensor, monkeypatch):
    monkeypatch.setattr("orchestration.dagster.sensors.external_publications.AT_ONCE", 2)
    days = [f"2013-01-{number:02}" for number in range(10, 15)]
    records = [towns.written(day, [1], f"q-0-{day}", {}) for day in days]
    with leased(records[0].facts.declared.table, days[0], f"q-0-{days[0]}") as lease:
        for record in records:
            run_records.save(record)
        publish_batch(records, MicroBatch("q", 0), [lease])
    assert [day for _ in range(3) for day, _ in sensor.days()] == days


def test_a_day_published_without_dagster_is_materialized_with_its_figures_dead_letters_and_summary(
    towns, sensor
):
    towns.publish(
        DAY, range(5), statuses={3: "error"}, verdicts=[verdict("5 rows in, 5 rows out."), NOT_RUN]
    )
    summarize(towns.enrichment, towns.enrichment.summaries[0], DAY)
    events = sensor.look()
    (reported,) = (
        event
        for event in events
        if isinstance(event, dg.AssetMaterialization) and event.asset_key.path == ["towns"]
    )
    assert reported.partition == DAY
    values = {key: value.value for key, value in reported.metadata.items()}
    assert (values["published_version"], values["rows_in"], values["weather/rows_error"]) == (
        0,
        5,
        1,
    )
    assert (values["state"], values["dagster/row_count"]) == ("published", 5)
    assert values["checks"] == "1 passed, not run: input_day_complete"
    (letters,) = (event for event in events if event.asset_key == sensor.declared.dead_letters_key)
    assert letters.metadata["dagster/row_count"].value == 1
    for asset in (sensor.declared.key, sensor.declared.dead_letters_key, dg.AssetKey("by_town")):
        assert sensor.materialized(asset) == {DAY}
    status = latest_status(sensor.instance, sensor.declared, DAY)
    assert status.state == "published"  # nobody starts it again
    assert status.reason == "Checks of 5 rows: 1 passed, not run: input_day_complete."


def test_dead_letters_are_materialized_once_there_is_a_table_of_them(towns, sensor):
    towns.publish(DAY, range(5))
    sensor.look()
    assert (
        sensor.materialized(sensor.declared.key),
        sensor.materialized(sensor.declared.dead_letters_key),
    ) == (
        {DAY},
        set(),
    )
    towns.publish(NEXT, range(5), statuses={3: "error"})
    towns.publish("2013-01-12", range(5))
    sensor.look()
    assert sensor.materialized(sensor.declared.dead_letters_key) == {NEXT, "2013-01-12"}


def test_each_published_version_is_reported_once(towns, sensor):
    assert sensor.look() == []  # there is no table yet
    towns.publish(DAY, range(5))
    towns.publish(NEXT, range(3))
    assert sensor.days() == [(DAY, 0), (NEXT, 1)]
    assert sensor.look() == []
    towns.publish(DAY, range(5), run_id="again")
    assert sensor.days() == [(DAY, 2)]
    assert sensor.look() == []
    sensor.cursor = None  # forgotten, as by a reset: what was told is known to Dagster
    assert sensor.days() == []


def test_the_checks_of_a_day_published_without_dagster_are_passed_under_its_partition(
    towns, sensor
):
    ran = verdict("5 rows in, 5 rows out.")
    towns.publish(DAY, range(5), verdicts=[ran, NOT_RUN])
    sensor.look()
    assert sensor.checks("SUCCEEDED") == {ran.check: {DAY}}
    towns.publish(DAY, range(4), run_id="again", verdicts=[ran])
    assert sensor.checks("SUCCEEDED") == {ran.check: {DAY}}  # of the version that Dagster knows
    sensor.look()
    assert sensor.checks("SUCCEEDED") == {ran.check: {DAY}}
    assert sensor.look() == []


def test_a_check_that_the_run_of_a_published_day_did_not_have_is_not_red(towns, sensor):
    ran = verdict("5 rows in, 5 rows out.")  # columns_filled judges no batch of a stream
    towns.publish(DAY, range(5), verdicts=[ran])
    sensor.look()
    assert sensor.checks("SUCCEEDED") == {ran.check: {DAY}}
    assert sensor.checks("FAILED") == {}


@pytest.mark.parametrize("backup", [False, True])
def test_a_day_published_after_its_table_was_recreated_is_reported(towns, sensor, backup):
    table = Path("data/published/towns")
    towns.publish(NEXT, range(3), verdicts=[verdict("3 rows in, 3 rows out.")])
    if backup:
        shutil.copytree(table, "backup")
    towns.publish(NEXT, range(4), run_id="again", verdicts=[verdict("4 rows in, 4 rows out.")])
    towns.publish(DAY, range(5), verdicts=[verdict("5 rows in, 5 rows out.")])
    assert sensor.days() == [(NEXT, 1), (DAY, 2)]
    shutil.rmtree(table)
    if backup:
        shutil.copytree("backup", table)
    towns.publish(DAY, range(2), run_id="anew", verdicts=[verdict("2 rows in, 2 rows out.")])
    assert (DAY, int(backup)) in sensor.days()
    assert sensor.days() == []


def test_a_sensor_tick_killed_before_the_checks_reports_them_next_time(towns, sensor, monkeypatch):
    ran = verdict("5 rows in, 5 rows out.")
    towns.publish(DAY, range(5), verdicts=[ran])
    with monkeypatch.context() as patch:
        patch.setattr(
            "orchestration.dagster.sensors.external_publications.check_evaluations",
            lambda *_: 1 / 0,
        )
        with pytest.raises(ZeroDivisionError):
            sensor.look()
    assert sensor.checks("SUCCEEDED") == {}
    assert sensor.look() == []  # the day is materialized already
    assert sensor.checks("SUCCEEDED") == {ran.check: {DAY}}


def test_many_days_are_reported_over_several_sensor_ticks(towns, sensor, monkeypatch):
    monkeypatch.setattr("orchestration.dagster.sensors.external_publications.AT_ONCE", 2)
    days = [DAY, NEXT, "2013-01-12"]
    for day in days:
        towns.publish(day, range(2))
    assert [sensor.days() for _ in range(3)] == [[(DAY, 0), (NEXT, 1)], [("2013-01-12", 2)], []]


def test_an_unreadable_table_is_named_and_other_tables_are_reported(towns, sensor):
    other = dataclasses.replace(
        towns.enrichment,
        name="other",
        output=dataclasses.replace(towns.enrichment.output, path="data/published/other"),
    )
    log = Path("data/published/other/_delta_log")
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("no JSON")
    towns.publish(DAY, range(5))
    context = dg.build_sensor_context(instance=sensor.instance)
    result = reports_days([Declared("declared.towns:other", other), sensor.declared])(context)
    assert result.skip_reason.skip_message.startswith("towns: 1 day published elsewhere. other: ")
    assert sensor.materialized(sensor.declared.key) == {DAY}


def test_an_outdated_summary_is_not_reported(towns, sensor):
    towns.publish(DAY, range(5))
    summarize(towns.enrichment, towns.enrichment.summaries[0], DAY)
    towns.publish(DAY, range(4), run_id="killed before its summary")
    assert sensor.days() == [(DAY, 1)]
    assert sensor.materialized(dg.AssetKey("by_town")) == set()


def test_a_summary_without_rows_of_a_day_is_materialized(towns, sensor):
    by_town, key = towns.enrichment.summaries[0], dg.AssetKey("by_town")
    towns.publish(DAY, range(0))
    summarize(towns.enrichment, by_town, DAY)  # which makes its table
    towns.publish(NEXT, range(0))
    assert sensor.days() == [(DAY, 0), (NEXT, 1)]
    assert sensor.materialized(key) == {DAY}
    towns.publish(NEXT, range(0), run_id="another")
    summarize(towns.enrichment, by_town, NEXT)
    assert sensor.days() == [(NEXT, 2)]
    assert sensor.materialized(key) == {DAY, NEXT}


def test_a_running_run_is_waited_for_and_a_run_killed_after_its_commit_is_reported(towns, sensor):
    run = create_run_for_test(sensor.instance, "towns_nightly", status=DagsterRunStatus.STARTED)
    record = towns.publish(DAY, range(5), run_id=run.run_id)
    # its second try, not published
    run_records.save(towns.written(DAY, range(5), f"{run.run_id}-1", {}))
    with leased("data/published/towns", NEXT, "by hand"):
        towns.publish(NEXT, range(3), run_id="by hand")
        assert sensor.days() == []
    assert sensor.days() == [(NEXT, 1)]
    sensor.instance.report_run_failed(run, "The process that ran it is gone.")
    assert sensor.days() == [(DAY, record.published_version)]
    assert sensor.look() == []


def test_a_deadline_counts_a_run_that_was_killed_after_its_commit_and_none_that_failed(towns):
    record = towns.publish(DAY, range(5), run_id="first")
    before = dataclasses.replace(record, state="written", published_version=None, published_at=None)
    run_records.save(before)
    due = dataclasses.replace(towns.enrichment, start="2013-01-01", publish_by="06:30")
    morning = dt.datetime(2013, 1, 11, 7, tzinfo=dt.UTC)

    def found():
        return freshness(Declared("declared.towns:towns", due), morning).description

    assert f"{DAY} was published at" in found()
    why = ("failed", "lake.towns cannot be written.", "Run it again.")
    at = "2026-01-01T00:00:00+00:00"
    run_records.save_unwritten(UnwrittenRun("towns", DAY, "first", *why, at, at))
    assert f"{DAY} is not published" in found()


def test_a_day_whose_run_failed_after_its_commit_stays_failed_until_a_run_publishes_it(
    towns, sensor
):
    record = towns.publish(DAY, range(5), run_id="first")
    before = dataclasses.replace(record, state="written", published_version=None, published_at=None)
    run_records.save(before)  # the failure came before it was saved as published
    at = "2026-01-01T00:00:00+00:00"
    why = ("failed", "lake.towns cannot be written.", "Run it again.")
    run_records.save_unwritten(UnwrittenRun("towns", DAY, "first", *why, at, at))
    assert sensor.look() == []
    towns.publish(DAY, range(5), run_id="second")
    assert sensor.days() == [(DAY, 1)]


def test_a_remap_leaves_out_a_day_that_is_not_published(towns, sensor):
    towns.publish(DAY, range(5))
    chosen = choose_days(sensor.declared, Mode.remap, [DAY, NEXT], set())
    assert (chosen.to_run, list(chosen.refused)) == ([DAY], [NEXT])


@pytest.mark.spark
@pytest.mark.proof
def test_only_days_that_dagster_did_not_publish_are_reported(
    dagster_project,
):
    declared = Declared("enrichments.flights:flights", flights)
    outcome = dagster_project.run(build_definitions([declared], spark_program()), DAY)
    assert outcome.success, outcome
    sensor = Sensor(dagster_project.instance, declared)
    assert sensor.look() == []
    assert main(["run", "enrichments.flights:flights", "--day", NEXT]) == 0
    assert sensor.materialized(declared.key) == {DAY}
    assert sensor.days() == [(NEXT, 1)]
    assert (
        sensor.materialized(declared.key)
        == sensor.materialized(dg.AssetKey("delays_by_weather"))
        == {DAY, NEXT}
    )
    assert sensor.look() == []
    of_day = dg.AssetRecordsFilter(declared.key, asset_partitions=[NEXT])
    (found,) = dagster_project.instance.fetch_materializations(of_day, limit=5).records
    reported = {key: value.value for key, value in found.asset_materialization.metadata.items()}
    rows = DeltaTable("data/published/flights_enriched").to_pyarrow_table(
        filters=[("date", "=", dt.date.fromisoformat(NEXT))]
    )
    assert reported["dagster/row_count"] == reported["rows_in"] == rows.num_rows
    assert reported["weather/requests_sent"] > 0
