"""A run that ends without a word about its day, as when it is killed: the day has failed, and an
alert names it.
"""

import dataclasses
import datetime as dt
import subprocess
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterEvent, DagsterEventType, DagsterRunStatus
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationPlanned,
)
from dagster._core.events import AssetObservationData
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.storage.tags import BACKFILL_ID_TAG, RETRY_NUMBER_TAG, WILL_RETRY_TAG
from dagster._core.test_utils import create_run_for_test

from data_quality import catalogue
from data_quality.day_quality import DayQuality
from jobs.process.publish_decision import render_report
from jobs.tables.records import run_records
from orchestration.common.modes import Mode
from orchestration.dagster.assets.day_events import DayEvents
from orchestration.dagster.assets.day_status import latest_status
from orchestration.dagster.assets.day_step import ChosenDays, choose_days
from orchestration.dagster.declared import Declared
from orchestration.dagster.sensors.alerts import AlertCursor, news
from orchestration.dagster.sensors.dead_runs import STARTED_BY, identity
from orchestration.dagster.sensors.reports_days import reports_days
from orchestration.dagster.sensors.silent_ends import tell_silent_ends
from tests.orchestration.test_outages import DAY, DECLARED, RUN_OF, at, publish
from tests.support.check_partitions import checks_of_days
from tests.support.day_ranges import range_tags


@pytest.fixture
def instance(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def a_run(instance, status=DagsterRunStatus.STARTED, **tags: str) -> dg.DagsterRun:
    tags = RUN_OF | {"dagster/partition": DAY} | tags
    return create_run_for_test(instance, DECLARED.job_name, tags=tags, status=status)


def speak(instance, run: dg.DagsterRun, state: str, day: str = DAY) -> None:
    observation = DayEvents(DECLARED, day, run.run_id).observation(state, "a reason", "a step")
    event = DagsterEvent(
        DagsterEventType.ASSET_OBSERVATION.value,
        run.job_name,
        event_specific_data=AssetObservationData(observation),
    )
    instance.report_dagster_event(event, run.run_id)


def look(instance) -> list[str]:
    since = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    return tell_silent_ends(instance, [DECLARED], since, [])


@pytest.mark.parametrize(
    ("state", "links"),
    [("running", {"spark_log"}), ("not started", set()), ("failed", {"report"})],
)
def test_a_new_day_links_to_its_later_pages(instance, state, links):
    metadata = DayEvents(DECLARED, DAY, "run").observation(state, "a reason", "a step").metadata
    assert metadata.keys() & {"report", "spark_log"} == links


def test_a_day_that_ended_links_to_the_log_that_its_run_wrote(instance):
    log = run_records.run_log(DECLARED.name, DAY, "run")
    log.parent.mkdir(parents=True)
    log.touch()
    found = DayEvents(DECLARED, DAY, "run").observation("failed", "a reason", "a step")
    assert "spark_log" in found.metadata


@pytest.mark.process
def test_a_day_whose_run_was_killed_is_reported_as_failed_and_the_alert_names_it(instance):
    reported = AlertCursor({DECLARED.name: 0}, missed={DECLARED.name: "2026-11-18"})
    process = subprocess.Popen(["sleep", "600"])
    run = a_run(instance, **{STARTED_BY: identity(process.pid)})
    speak(instance, run, "running")
    sensor = reports_days([DECLARED], lambda: at("03:00"))
    assert (
        sensor(dg.build_sensor_context(instance=instance)).skip_reason.skip_message
        == "Nothing new."
    )
    assert list(news(instance, [DECLARED], reported, at("03:00"), [])) == []
    process.kill()
    process.wait()
    message = sensor(dg.build_sensor_context(instance=instance)).skip_reason.skip_message
    assert message == f"Ended: {run.run_id}. Ended silently: flights_enriched {DAY}."
    word = latest_status(instance, DECLARED, DAY)
    assert (word.state, word.run_id) == ("failed", run.run_id)
    assert word.reason == (
        "the run was killed, or broke off; it ended without a report (The process that ran it is "
        "gone)."
    )
    (message,) = news(instance, [DECLARED], reported, at("03:00"), [])
    assert f"flights_enriched {DAY} not published (failed). the run was killed" in message.text
    assert message.url.endswith(f"/runs/{run.run_id}")
    page = Path(f"data/reports/flights_enriched/{DAY}/index.html").read_text()
    assert "not published: failed" in page
    assert DAY in Path("data/reports/flights_enriched/index.html").read_text()
    assert look(instance) == []  # once


def test_a_killed_run_is_reported_also_after_another_run_found_its_day_taken(instance):
    run, second = a_run(instance), a_run(instance)
    speak(instance, run, "running")
    speak(instance, second, "not started")
    instance.report_run_failed(run, "killed")
    assert look(instance) == [f"flights_enriched {DAY}"]
    assert latest_status(instance, DECLARED, DAY).run_id == run.run_id
    assert look(instance) == []


def test_a_run_that_never_reported_is_reported_as_failed(instance):
    run = a_run(instance, DagsterRunStatus.STARTING)
    instance.report_run_failed(run, "Could not load the declarations.")
    assert look(instance) == [f"flights_enriched {DAY}"]
    assert "(Could not load the declarations)" in latest_status(instance, DECLARED, DAY).reason


def test_a_killed_run_that_dagster_retries_sends_no_alert(instance):
    run = a_run(instance, **{WILL_RETRY_TAG: "true"})
    speak(instance, run, "running")
    instance.report_run_failed(run)
    assert look(instance) == [f"flights_enriched {DAY}"]
    word = latest_status(instance, DECLARED, DAY)
    assert (word.state, word.next_step) == (
        "crashed",
        "Nothing: the run is restarted automatically, once.",
    )
    assert look(instance) == []


@pytest.mark.parametrize(
    ("status", "state"),
    [(BulkActionStatus.REQUESTED, "crashed"), (BulkActionStatus.COMPLETED, "failed")],
)
def test_a_killed_run_of_a_backfill_is_retried_until_the_backfill_has_ended(
    instance, status, state
):
    backfill = PartitionBackfill("b", status, from_failure=False, tags={}, backfill_timestamp=0.0)
    instance.add_backfill(backfill)
    run = a_run(instance, **{WILL_RETRY_TAG: "true", BACKFILL_ID_TAG: "b"})
    speak(instance, run, "running")
    instance.report_run_failed(run)
    assert look(instance) == [f"flights_enriched {DAY}"]
    assert latest_status(instance, DECLARED, DAY).state == state


def test_a_run_whose_announced_retry_never_starts_counts_as_failed(instance):
    run = a_run(instance)
    speak(instance, run, "crashed")
    instance.report_run_failed(run)
    look(instance)
    word = latest_status(instance, DECLARED, DAY)
    assert (word.state, word.reason) == (
        "failed",
        "the run was killed, or broke off; it ended without a report.",
    )


def a_retry(instance, run: dg.DagsterRun) -> dg.DagsterRun:
    tags = {**run.tags, RETRY_NUMBER_TAG: "1"}
    tags.pop(WILL_RETRY_TAG, None)
    return create_run_for_test(
        instance, DECLARED.job_name, tags=tags, status=DagsterRunStatus.STARTING,
        parent_run_id=run.run_id, root_run_id=run.run_id,
    )  # fmt: skip


def test_a_silent_retry_is_reported_after_a_later_report_of_the_killed_run(
    instance,
):
    killed = a_run(instance, **{WILL_RETRY_TAG: "true"})
    instance.report_run_failed(killed)
    again = a_retry(instance, killed)
    assert look(instance) == [f"flights_enriched {DAY}"]
    instance.report_run_failed(again, "Could not load the declarations.")
    assert look(instance) == [f"flights_enriched {DAY}"]
    status = latest_status(instance, DECLARED, DAY)
    assert (status.run_id, status.state) == (again.run_id, "failed")
    assert look(instance) == []


def test_a_silent_retry_of_several_days_is_reported_at_its_first_open_day(
    instance,
):
    killed = a_run_of_several(instance)
    speak(instance, killed, "published", "2026-11-17")
    speak(instance, killed, "crashed", "2026-11-18")
    instance.add_run_tags(killed.run_id, {WILL_RETRY_TAG: "true"})
    instance.report_run_failed(killed)
    instance.report_run_failed(a_retry(instance, killed))
    assert look(instance) == ["flights_enriched 2026-11-18"]
    assert latest_status(instance, DECLARED, "2026-11-17").state == "published"
    assert latest_status(instance, DECLARED, "2026-11-18").state == "failed"


@pytest.mark.parametrize("state", ["held back", "stopped: service", "published"])
def test_a_run_that_reported_its_end_is_not_reported_again(instance, state):
    run = a_run(instance)
    speak(instance, run, state)
    instance.report_run_failed(run)
    assert look(instance) == []


def test_a_run_with_a_successor_is_not_reported(instance):
    run = a_run(instance)
    speak(instance, run, "running")
    instance.report_run_failed(run)
    again = a_run(instance)
    speak(instance, again, "running")
    assert look(instance) == []


def test_a_killed_run_with_a_successor_stays_in_the_report_of_its_day(instance):
    killed = a_run(instance)
    log = run_records.run_log(DECLARED.name, DAY, killed.run_id)
    log.parent.mkdir(parents=True)
    log.touch()
    instance.report_run_failed(killed, "The process that ran it is gone.")
    speak(instance, a_run(instance), "published")
    assert look(instance) == []
    assert latest_status(instance, DECLARED, DAY).state == "published"
    render_report(DayQuality(), DECLARED.name, DECLARED.facts.table)
    page = Path(f"data/reports/flights_enriched/{DAY}/index.html").read_text()
    assert killed.run_id in page
    assert "the run ended without a report, as after a kill" in page


def test_an_unreadable_record_is_named_and_other_tables_are_reported(instance):
    record = run_records.folder(DECLARED.name, DAY) / "run.json"
    record.mkdir(parents=True)  # a folder in its place
    other = dataclasses.replace(DECLARED.enrichment, name="other")
    sensor = reports_days([DECLARED, Declared("b:other", other)], lambda: at("07:00"))
    result = sensor(dg.build_sensor_context(instance=instance))
    named = f"{DECLARED.name}: record {record} cannot be read: Is a directory. "
    assert result.skip_reason.skip_message.startswith(named)
    assert [event.asset_key.path for event in result.asset_events] == [["other"]]


def plan_checks(instance, run: dg.DagsterRun, day: str = DAY) -> None:
    """As a run does when it begins."""
    subset = DECLARED.days.subset_with_partition_keys([day]).to_serializable_subset()
    for check in catalogue.checks(DECLARED.facts):
        planned = AssetCheckEvaluationPlanned(
            asset_key=DECLARED.key, check_name=check.name, partitions_subset=subset
        )
        kind = DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value
        instance.report_dagster_event(
            DagsterEvent(kind, run.job_name, event_specific_data=planned), run.run_id
        )


def test_planned_checks_of_a_killed_run_are_withdrawn_also_with_a_successor(instance):
    killed = a_run(instance)
    plan_checks(instance, killed)
    speak(instance, killed, "running")
    instance.report_run_failed(killed)
    assert "every_row_once" in checks_of_days(instance, DECLARED, "EXECUTION_FAILED")
    speak(instance, a_run(instance), "published")
    assert look(instance) == []
    assert checks_of_days(instance, DECLARED, "EXECUTION_FAILED") == {}


def test_planned_checks_of_a_running_run_are_not_withdrawn(instance):
    killed, at_work = a_run(instance), a_run(instance)
    plan_checks(instance, killed)
    plan_checks(instance, at_work, "2026-11-18")
    instance.report_run_failed(killed)
    look(instance)
    assert checks_of_days(instance, DECLARED, "EXECUTION_FAILED") == {}
    assert checks_of_days(instance, DECLARED, "IN_PROGRESS")["every_row_once"] == {"2026-11-18"}


def test_only_the_current_day_of_a_killed_run_of_several_days_is_reported(instance):
    run = a_run_of_several(instance)
    speak(instance, run, "published", "2026-11-17")
    speak(instance, run, "running", "2026-11-18")
    instance.report_run_failed(run)
    assert look(instance) == ["flights_enriched 2026-11-18"]


def test_a_run_of_several_days_that_never_reported_is_reported_at_its_first_day(instance):
    instance.report_run_failed(a_run_of_several(instance), "Could not load the declarations.")
    assert look(instance) == ["flights_enriched 2026-11-17"]
    assert look(instance) == []


def a_run_of_several(instance) -> dg.DagsterRun:
    tags = RUN_OF | range_tags("2026-11-17", DAY)
    return create_run_for_test(
        instance, DECLARED.job_name, tags=tags, status=DagsterRunStatus.STARTED
    )


def test_a_run_that_ended_without_a_report_counts_as_having_read_its_files(instance):
    run = a_run(instance)
    instance.report_run_failed(run)
    look(instance)
    (kept,) = run_records.unwritten(DECLARED.name, DAY)
    assert (kept.run_id, kept.state) == (run.run_id, "failed")
    assert kept.started_at <= kept.ended_at


def test_a_day_cancelled_without_a_report_sends_no_alert(instance):
    run = a_run(instance)
    speak(instance, run, "running")
    instance.report_run_canceled(run)
    assert look(instance) == [f"flights_enriched {DAY}"]
    assert latest_status(instance, DECLARED, DAY).state == "cancelled"


def test_a_replay_keeps_a_published_day_whose_last_run_was_killed_undecided(instance, monkeypatch):
    publish("03:00")
    (published,) = run_records.load(DECLARED.name, DAY)
    facts = dataclasses.replace(
        published.facts, run_id="killed", started_at=at("05:00").isoformat()
    )
    run_records.save(
        dataclasses.replace(published, facts=facts, state="written", published_at=None)
    )
    monkeypatch.setattr("jobs.commands.replaying.replay.prepare", lambda _enrichment, _day: 0)
    chosen = choose_days(DECLARED, Mode.replay, [DAY], set())
    assert chosen == ChosenDays(unchanged={DAY: published})
