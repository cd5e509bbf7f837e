"""Many days in one Spark application: each is checked and published by itself, and told to Dagster as itself."""

import dataclasses
import datetime as dt
import importlib
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterEventType, DagsterRunStatus
from dagster._core.test_utils import create_run_for_test
from deltalake import DeltaTable

from demo.weather_service import running
from enrichments.flights import flights
from jobs.declare.enrichment import load
from jobs.process.spark_submit import ProgramResult
from jobs.run.enrich_day import STOPPED, run_id_of
from jobs.schema import DayFacts, DayMetrics, DayRecord
from jobs.tables import run_records
from jobs.tables.leases import leased
from orchestration.day_status import unfinished_runs
from orchestration.declared import Declared
from orchestration.definitions import definitions_of
from orchestration.months import days_of, is_up_to_date, months
from orchestration.resources import SparkProgram, spark_program
from tests.orchestration.test_hard_stops import (
    IN_TIME,
    in_the_middle,
    processes_of_spark,
    wait_for,
)
from tests.orchestration.test_nightly_run import HOOK, IMPATIENT, ROW_DOUBLED, killed_at

DAYS = ("2013-01-10", "2013-01-11", "2013-01-12")
MONTH = "2013-01"
KEY = "flights_enriched"
THREE_DAYS = """
from dataclasses import replace
{flights}
flights = replace(flights, start="2013-01-10", end="2013-01-13")
"""
NO_SUMMARY = """
from tidegate import Summary
none = Summary(name="none", sql="SELECT CAST(carrier AS INT) AS number FROM flights_enriched")
flights = replace(flights, summaries=[*flights.summaries, none])
"""
ONE_BAD_DAY = """
everyday = fault


def fault(table):
    return everyday(table) if table["scheduled_departure"][100].as_py().day == 11 else table
"""


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        ("2013-01-15", "2013-03-10", {"2013-01": 17, "2013-02": 28, "2013-03": 9}),
        ("2013-11-01", "2014-01-01", {"2013-11": 30, "2013-12": 31}),
        ("2013-12-31", "2014-01-02", {"2013-12": 1, "2014-01": 1}),
    ],
)
def test_every_month_that_has_a_day_is_there_with_its_days(start, end, wanted):
    declared = Declared("a:flights", dataclasses.replace(flights, start=start, end=end))
    assert {month: len(days_of(declared, month)) for month in months(declared).get_partition_keys()} == wanted


def test_a_month_that_is_not_over_has_the_days_that_are():
    today = dt.datetime.now(dt.UTC).date()
    declared = Declared("a:flights", dataclasses.replace(flights, start=f"{today - dt.timedelta(days=40)}", end=None))
    found = [day for month in months(declared).get_partition_keys() for day in days_of(declared, month)]
    assert found == [f"{today - dt.timedelta(days=back)}" for back in range(40, 0, -1)]


def test_a_day_is_up_to_date_while_it_is_published_as_it_is_declared_and_delivered_now(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    declared, day = Declared("a:flights", flights), DAYS[0]
    assert not is_up_to_date(declared, day)
    started = (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)).isoformat()  # the clock of files has coarse ticks
    facts = DayFacts(declared.facts, day, "r", (), (), "", (), (), started, "")
    run_records.save(DayRecord(facts, DayMetrics(0, 0, 0, ()), state="published"))
    assert is_up_to_date(declared, day)
    changed = Declared("a:flights", dataclasses.replace(flights, publish_by="07:00"))
    assert not is_up_to_date(changed, day)
    late = Path(f"data/raw/flights/date={day}/late.parquet")
    late.parent.mkdir(parents=True)
    late.touch()
    assert not is_up_to_date(declared, day)


def test_a_day_whose_month_is_being_run_is_being_run():
    declared = Declared("a:flights", flights)
    tags = {"tidegate/enrichment": KEY, "dagster/partition": MONTH}
    with dg.DagsterInstance.ephemeral() as instance:
        run = create_run_for_test(instance, f"{KEY}_month", tags=tags, status=DagsterRunStatus.STARTED)
        assert [one.run_id for one in unfinished_runs(instance, declared, DAYS[0])] == [run.run_id]
        assert unfinished_runs(instance, declared, "2013-02-01") == []


class SparkThatCrashesOnce(SparkProgram):
    """Its first run publishes a day and is killed; the next one fails."""

    def run_days(self, context, reference, *, days, run_id, **others):
        begun.append(list(days))
        if len(begun) > 1:
            return ProgramResult(1, None, "no word of its days")
        declared = Declared("a:flights", THREE)
        facts = DayFacts(
            declared.facts, days[0], run_id_of(run_id, days[0]), (), (), "", (), (), "2013-02-01T00:00:00+00:00", ""
        )
        run_records.save(DayRecord(facts, DayMetrics(0, 0, 0, ()), state="published"))
        return ProgramResult(-signal.SIGKILL, None, "killed")


begun: list[list[str]] = []  # the days of each of its runs
THREE = dataclasses.replace(flights, start="2013-01-10", end="2013-01-13")


class SparkThatDiesBetweenDays(SparkProgram):
    """It says of its first day that it has no input, and is killed before it begins the second one."""

    def run_days(self, context, reference, *, days, hear, **others):
        hear({"kind": "failed", "day": days[0], "reason": "it has no input."})
        return ProgramResult(-signal.SIGKILL, None, "Spark was killed.")


class SparkThatIsStopped(SparkProgram):
    """It says of its first day that the service is down, and ends; its log ends with a word of Java's."""

    def run_days(self, context, reference, *, days, hear, **others):
        hear({"kind": "stopped", "day": days[0], "reason": "the service is down.", "state": "stopped: service"})
        return ProgramResult(STOPPED, None, "WARN ShutdownHookManager: still busy")


class SparkThatCannotStart(SparkProgram):
    def run_days(self, context, reference, **others):
        return ProgramResult(1, None, "Java was not found.")


def month_without_spark(instance, spark=None, **config):
    """The month's job over three days, by default with a Spark that crashes once. Returns the run and why its step
    failed.
    """
    declared = Declared("a:flights", THREE)
    begun.clear()
    definitions = definitions_of([declared], spark or SparkThatCrashesOnce())
    run = definitions.resolve_job_def(f"{KEY}_month").execute_in_process(
        partition_key=MONTH, instance=instance, raise_on_error=False,
        run_config={"ops": {f"enrich_month_of_{KEY}": {"config": config}}},
    )  # fmt: skip
    failures = [event.step_failure_data for event in run.all_events if event.is_step_failure]
    return run, "".join(failure.user_failure_data.description for failure in failures)


def test_a_month_whose_days_are_all_taken_says_so_after_the_wait_of_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("orchestration.months.WAIT", 4.0)
    with ExitStack() as others, dg.DagsterInstance.ephemeral() as instance:
        for day in DAYS:
            others.enter_context(leased(THREE.output.path, day, "their run"))
        run, reason = month_without_spark(instance)
        steps = instance.get_run_step_stats(run.run_id)
    assert reason.startswith("0 of 3 days published. Not published: 2013-01-10: 2013-01-10 is being run by run their ")
    assert begun == []
    assert steps[0].end_time - steps[0].start_time < len(DAYS) * 4.0


@pytest.mark.parametrize(
    ("taken", "spark", "message"),
    [
        (DAYS[:1], SparkThatCannotStart, "2013-01-11: Java was not found. 2013-01-10: 2013-01-10 is being run by run "),
        (DAYS[:0], SparkThatDiesBetweenDays, "2013-01-11: Spark was killed. 2013-01-10: it has no input."),
        (DAYS[:1], SparkThatDiesBetweenDays, "2013-01-12: Spark was killed. 2013-01-10: 2013-01-10 is being run by "),
        (DAYS[:0], SparkThatIsStopped, "2013-01-10: the service is down. 2 days were not begun."),
    ],
)
def test_what_ended_a_months_spark_is_said_first_whatever_else_is_not_published(
    tmp_path, monkeypatch, taken, spark, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("orchestration.months.WAIT", 0.1)
    monkeypatch.setattr("orchestration.months.CRASH", None)
    with ExitStack() as others, dg.DagsterInstance.ephemeral() as instance:
        for day in taken:
            others.enter_context(leased(THREE.output.path, day, "their run"))
        _, reason = month_without_spark(instance, spark())
    assert reason.startswith(f"0 of 3 days published. Not published: {message}")


def test_a_retry_of_a_month_that_runs_all_days_again_leaves_out_those_that_its_first_try_published(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("orchestration.months.CRASH", dg.RetryPolicy(max_retries=1))
    with dg.DagsterInstance.ephemeral() as instance:
        month_without_spark(instance, again=True)
        assert begun == [list(DAYS), list(DAYS[1:])]
        month_without_spark(instance, again=True)
        assert begun[0] == list(DAYS)  # another run: that again means them all


def run_month(project, module: str, flights_of: str, checks: str = "data_quality.day:check"):
    """The month's job over three days, declared in a module of its own. Returns the run and why it is red."""
    (project.root / f"{module}.py").write_text(THREE_DAYS.format(flights=flights_of))
    importlib.invalidate_caches()
    declared = Declared(f"{module}:flights", load(f"{module}:flights"))
    definitions = definitions_of([declared], spark_program(checks))
    job = definitions.resolve_job_def(f"{KEY}_month")
    run = job.execute_in_process(partition_key=MONTH, instance=project.instance, raise_on_error=False)
    reasons = [
        event.step_failure_data.user_failure_data.description for event in run.all_events if event.is_step_failure
    ]
    return run, "".join(reasons)


def states(project, run) -> dict[str, list[str]]:
    """What the days were said to be, in order."""
    found: dict[str, list[str]] = {}
    for reported in project.observed(run.run_id):
        found.setdefault(reported["partition"], []).append(reported["state"])
    return found


def materialized(project, run) -> dict[str, list[str]]:
    """The days that the run materialized, by asset."""
    found: dict[str, list[str]] = {}
    for event in project.events(run.run_id, DagsterEventType.ASSET_MATERIALIZATION):
        found.setdefault(event.materialization.asset_key.to_user_string(), []).append(event.materialization.partition)
    return found


@pytest.mark.spark
@pytest.mark.proof
def test_days_of_a_month_are_published_one_by_one_from_one_spark_a_bad_one_is_named_and_alone_run_again(
    dagster_project,
):
    (dagster_project.root / "bad_day.py").write_text(HOOK + ROW_DOUBLED + ONE_BAD_DAY)
    house = "from enrichments.flights import flights"
    run, reason = run_month(dagster_project, "three_days", house, "bad_day:check")
    good = [DAYS[0], DAYS[2]]
    assert not run.success
    assert reason.startswith("2 of 3 days published. Not published: 2013-01-11: ")
    assert "doubled" in reason
    assert sorted(f"{one['date']}" for one in DeltaTable(f"data/published/{KEY}").partitions()) == good
    assert materialized(dagster_project, run) == {
        KEY: good, f"{KEY}__dead_letters": good, "delays_by_weather": good,
    }  # fmt: skip
    assert states(dagster_project, run) == {
        DAYS[0]: ["running", "published"], DAYS[1]: ["running", "held back"], DAYS[2]: ["running", "published"],
    }  # fmt: skip
    of_days = {day: run_records.load(KEY, day)[-1] for day in DAYS}
    reported = {
        event.materialization.partition: event.materialization.metadata
        for event in dagster_project.events(run.run_id, DagsterEventType.ASSET_MATERIALIZATION)
        if event.materialization.asset_key == dg.AssetKey(KEY)
    }
    assert {day: reported[day]["rows_in"].value for day in good} == {day: of_days[day].figures.rows_in for day in good}
    evaluations = dagster_project.events(run.run_id, DagsterEventType.ASSET_CHECK_EVALUATION)
    red = {(one.partition, one.check_name) for one in evaluations if not one.passed and one.blocking}
    assert {day for day, _ in red} == {DAYS[1]}
    assert (DAYS[1], "every_row_once") in red
    logs = {run_records.spark_log(KEY, day, one.facts.run_id).resolve() for day, one in of_days.items()}
    assert len(logs) == 1
    assert next(iter(logs)).is_file()

    calls = len(dagster_project.service.calls())
    run, reason = run_month(dagster_project, "three_days", house)
    assert run.success, reason
    assert materialized(dagster_project, run)[KEY] == [DAYS[1]]
    assert len(dagster_project.service.calls()) == calls  # its answers are in the ledger
    run, _ = run_month(dagster_project, "three_days", house)
    assert run.success
    assert materialized(dagster_project, run) == {}
    run, reason = run_month(dagster_project, "no_summary", house + NO_SUMMARY)
    assert reason.startswith(f"3 of 3 days published. Not made: none of {DAYS[0]}: ")
    assert materialized(dagster_project, run)[KEY] == list(DAYS)  # whatever a query says


@pytest.mark.spark
@pytest.mark.proof
def test_a_service_that_goes_down_stops_the_month_and_the_days_after_it_are_not_begun(dagster_project, monkeypatch):
    data = dagster_project.root / "data" / "demo"
    asked_anew = IMPATIENT.replace("service=replace(", "version=2, service=replace(")
    with running(data, data / "month_calls.jsonl") as service:
        monkeypatch.setenv("WEATHER_URL", service.url)
        with killed_at(0.3, service, DAYS[0]):
            run, reason = run_month(dagster_project, "impatient_days", asked_anew)
    assert not run.success
    assert reason.startswith("0 of 3 days published. Not published: 2013-01-10: weather_api at ")
    assert reason.endswith(" 2 days were not begun.")
    assert states(dagster_project, run) == {DAYS[0]: ["running", "stopped: service"]}
    assert dagster_project.events(run.run_id, DagsterEventType.STEP_UP_FOR_RETRY) == []
    (_, last) = dagster_project.observed(run.run_id)
    assert " rows (" in last["progress"]


@pytest.mark.spark
@pytest.mark.proof
def test_a_month_cancelled_in_the_middle_leaves_no_spark_and_keeps_the_days_that_it_has_published(
    dagster_project, monkeypatch
):
    """The house's own month: the days before the first with input fail one by one, and do not end it."""
    data = dagster_project.root / "data" / "demo"
    with running(data, data / "slow_calls.jsonl") as service:  # in its own time, so that a day has a middle
        monkeypatch.setenv("WEATHER_URL", service.url)
        cancelled_in_the_middle_of(DAYS[1], dagster_project.root)
    (run,) = dagster_project.instance.get_runs(limit=1)
    reported = states(dagster_project, run)
    assert reported.pop(DAYS[0]) == ["running", "published"]
    assert reported.pop(DAYS[1]) == ["running", "cancelled"]
    assert reported == {f"2013-01-{day:02}": ["failed"] for day in range(1, 10)}
    assert materialized(dagster_project, run)[KEY] == [DAYS[0]]
    (outcome,) = Path("outcomes.jsonl").read_text().splitlines()
    reason = json.loads(outcome)["reason"]
    assert reason.startswith(
        "1 of 31 days published. Not published: 2013-01-11: somebody cancelled the run; its Spark "
    )
    assert reason.endswith(" 7 more. 20 days were not begun.")


def cancelled_in_the_middle_of(day: str, root: Path) -> None:
    """The month's run, as a person cancels it; until no Spark is left."""
    command = [sys.executable, "-m", "orchestration.run_days", f"{KEY}_month", MONTH, "--outcomes", "outcomes.jsonl"]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        wait_for(lambda: process.poll() is not None or in_the_middle(day))
        process.send_signal(signal.SIGTERM)
        process.wait(IN_TIME)
        wait_for(lambda: not processes_of_spark(root))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
