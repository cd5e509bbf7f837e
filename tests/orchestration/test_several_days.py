"""Several days in one run of Dagster and one Spark application: each is checked, published and told
by itself.
"""

import dataclasses
import importlib
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
import pytest
from dagster import MAX_RUNTIME_SECONDS_TAG, DagsterEventType, DagsterRunStatus
from dagster._core.storage.tags import RESUME_RETRY_TAG, RETRY_NUMBER_TAG
from dagster._core.test_utils import create_run_for_test
from deltalake import DeltaTable

from demo.weather_service import running
from enrichments.flights import flights
from jobs.declare.finding.loading import load
from jobs.errors import TidegateError
from jobs.process.day_pipeline import DayPipeline
from jobs.run.enrich_day import FAILED, STOPPED
from jobs.schema.records import DayFacts, DayMetrics, DayRecord
from jobs.tables.leases.day_leases import leased
from jobs.tables.records import run_records
from orchestration.common.modes import Mode
from orchestration.dagster.assets.day_config import MODE, config_of_mode
from orchestration.dagster.assets.day_status import unfinished_runs
from orchestration.dagster.assets.days_tally import DaysTally, Red
from orchestration.dagster.declared import Declared
from orchestration.dagster.definitions import build_definitions
from orchestration.dagster.resources import spark_program
from tests.orchestration.test_hard_stops import IN_TIME, in_the_middle, processes_of_spark, wait_for
from tests.orchestration.test_nightly_run import HOOK, IMPATIENT, ROW_DOUBLED, killed_at
from tests.support.day_ranges import range_tags, run_range, why_red
from tests.support.scripted_spark import scripted
from tidegate import Input

DAYS = ("2013-01-10", "2013-01-11", "2013-01-12")
KEY = "flights_enriched"
JOB = f"{KEY}_nightly"
DECLARED = Declared("a:flights", flights)
KILLED = -signal.SIGKILL
NO_SUMMARY = """
from dataclasses import replace
from tidegate import Summary
none = Summary(name="none", sql="SELECT CAST(carrier AS INT) AS number FROM flights_enriched")
flights = replace(flights, summaries=[*flights.summaries, none])
"""
ONE_BAD_DAY = """
everyday = fault


def fault(table):
    return everyday(table) if table["scheduled_departure"][100].as_py().day == 11 else table
"""


def test_a_day_that_is_run_with_others_is_being_run():
    tags = {"tidegate/enrichment": KEY} | range_tags(DAYS[0], DAYS[1])
    with dg.DagsterInstance.ephemeral() as instance:
        run = create_run_for_test(instance, JOB, tags=tags, status=DagsterRunStatus.STARTED)
        assert [
            unfinished.run_id for unfinished in unfinished_runs(instance, DECLARED, DAYS[1])
        ] == [run.run_id]
        assert unfinished_runs(instance, DECLARED, DAYS[2]) == []


@pytest.mark.parametrize(("first", "last", "within"), [("us", "asia", "eu"), ("us", "eu", "us")])
def test_a_named_partition_that_is_run_with_others_is_being_run(first, last, within):
    places = Input(path="data/raw/places", every=["us", "eu", "asia"])
    table = dataclasses.replace(
        flights, input=places, mode="unordered", key=(), event_time=None, windows=(),
        summaries=(), schedule=None, publish_by=None,
    )  # fmt: skip
    tags = {"tidegate/enrichment": KEY} | range_tags(first, last)
    with dg.DagsterInstance.ephemeral() as instance:
        run = create_run_for_test(instance, JOB, tags=tags, status=DagsterRunStatus.STARTED)
        found = unfinished_runs(instance, Declared("a:table", table), within)
    assert [unfinished.run_id for unfinished in found] == [run.run_id]


class Script:
    """What the Spark program says of each day. begun: the days of each of its runs."""

    def __init__(self, *says):
        self.says = dict(zip(DAYS, says, strict=True))
        self.begun = []

    def __call__(self, day, run_id):
        self.begun.append(day)
        return self.says[day](day, run_id) if callable(self.says[day]) else self.says[day]


def written(day, run_id):
    facts = DayFacts(
        DECLARED.facts, day, run_id, (), (), "", (), (), "2013-02-01T00:00:00+00:00", ""
    )
    return DayRecord(facts, DayMetrics(0, 0, 0, ()))


def no_input(_day, _run_id):
    return {"kind": "failed", "reason": "it has no input."}


def service_down(_day, _run_id):
    return {
        "kind": "stopped",
        "reason": "the service is down.",
        "state": "stopped: service",
        "status": STOPPED,
    }


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("orchestration.dagster.assets.enriched.CRASH", None)
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def three_days(instance, script, **program) -> str:
    """The nightly job of three days at once, with such a Spark. Returns why it is red."""
    definitions = build_definitions([DECLARED], scripted(flights, script, **program))
    return why_red(run_range(definitions, JOB, DAYS[0], DAYS[2], instance))


def test_an_unknown_mode_is_refused_before_any_run(project):
    script = Script(None, None, None)
    job = build_definitions([DECLARED], scripted(flights, script)).resolve_job_def(JOB)
    with pytest.raises(dg.DagsterInvalidConfigError, match="not in enum type Mode got reply"):
        job.execute_in_process(
            partition_key=DAYS[0],
            run_config={"ops": {KEY: {"config": {"mode": "reply"}}}},
            instance=project,
        )
    assert script.begun == []


def test_the_mode_in_the_config_is_that_of_the_run_and_its_tag(project):
    script = Script(None, None, None)
    job = build_definitions([DECLARED], scripted(flights, script)).resolve_job_def(JOB)
    run = job.execute_in_process(
        partition_key=DAYS[0],
        run_config=config_of_mode(DECLARED, Mode.replay),
        tags={MODE: "remap"},  # as a retry has it from the run before
        instance=project,
        raise_on_error=False,
    )
    assert "was never run to its end" in why_red(run)
    assert project.get_run_by_id(run.run_id).tags[MODE] == "replay"
    assert script.begun == []


def others_have(stack, days):
    for day in days:
        stack.enter_context(leased(flights.output.path, day, "their run"))


@pytest.mark.process
def test_days_that_are_all_held_by_others_are_reported_after_a_single_wait(project):
    script = Script(None, None, None)
    with ExitStack() as others:
        others_have(others, DAYS)
        reason = three_days(project, script, wait=4.0)
    (run,) = project.get_runs()
    (step, *_) = project.get_run_step_stats(run.run_id)
    assert reason.startswith(
        "0 of 3 days published. Not published: 2013-01-10: 2013-01-10 is being run by run their "
    )
    assert script.begun == []
    assert step.end_time - step.start_time < len(DAYS) * 4.0


@pytest.mark.process
@pytest.mark.parametrize(
    ("taken", "script", "program", "message"),
    [
        (
            DAYS[:1], Script(None, None, None),
            {"code": FAILED, "last_line": "Java was not found."},
            "2013-01-11: Java was not found. 2013-01-10: 2013-01-10 is being run by run ",
        ),
        (
            (), Script(no_input, None, None), {"code": KILLED},
            "2013-01-11: The run's program was killed, perhaps because memory ran out, before the day was done",
        ),
        (
            DAYS[:1], Script(None, no_input, None), {"code": KILLED},
            "2013-01-12: The run's program was killed, perhaps because memory ran out, before the day was done",
        ),
        (
            (), Script(service_down, None, None),
            {"code": STOPPED, "last_line": "WARN ShutdownHookManager: busy"},
            "2013-01-10: the service is down. 2 days were not begun.",
        ),
    ],
)  # fmt: skip
def test_the_reason_of_the_spark_failure_comes_before_the_reasons_of_the_days(
    project, taken, script, program, message
):
    with ExitStack() as others:
        others_have(others, taken)
        reason = three_days(project, script, wait=0.1, **program)
    assert reason.startswith(f"0 of 3 days published. Not published: {message}")


@pytest.fixture
def retried_once(project, monkeypatch):
    """A crash is retried at once, and days are published in their records only."""
    monkeypatch.setattr(
        "orchestration.dagster.assets.enriched.CRASH", dg.RetryPolicy(max_retries=1)
    )
    monkeypatch.setattr("jobs.tables.publishing.publish", lambda record, _: published(record))
    monkeypatch.setattr("orchestration.dagster.assets.metadata.published_metadata", lambda *_: {})


def test_a_run_of_days_that_all_wait_for_a_vendor_says_to_do_nothing():
    waits = Red("1 job is open.", "Nothing: the vendor is asked every minute.")
    tally = DaysTally(DAYS[:2], red=dict.fromkeys(DAYS[:2], waits))
    assert tally.failure({}).metadata["next_step"].value == waits.next_step
    tally.red[DAYS[0]] = Red("a check failed.", "Replay it.")
    assert tally.failure({}).metadata["next_step"].value.startswith("Fix the cause")


@pytest.mark.process
@pytest.mark.usefixtures("retried_once")
def test_a_retry_of_several_days_leaves_out_those_that_its_first_try_published(project):
    script = Script(written, None, None)
    three_days(project, script, code=KILLED)
    assert script.begun == [DAYS[0], DAYS[1], DAYS[1]]
    script.begun.clear()
    three_days(project, script, code=KILLED)
    assert script.begun[0] == DAYS[0]  # another run


@pytest.mark.process
@pytest.mark.usefixtures("retried_once")
def test_a_re_execution_runs_published_days_again_unless_it_is_from_failure(project, monkeypatch):
    script, create = Script(written, no_input, written), dg.DagsterInstance.create_run_for_job
    definitions = build_definitions([DECLARED], scripted(flights, script))
    first = run_range(definitions, JOB, DAYS[0], DAYS[2], project).run_id
    assert script.begun == [*DAYS]

    def again(parent, **tags):
        """As the buttons of a run's page. Returns the run's id."""
        script.begun.clear()
        of = {"parent_run_id": parent, "root_run_id": first}
        monkeypatch.setattr(
            dg.DagsterInstance,
            "create_run_for_job",
            lambda *given, **named: create(*given, **{**named, **of}),
        )
        return run_range(definitions, JOB, DAYS[0], DAYS[2], project, **tags).run_id

    again(first, **{RESUME_RETRY_TAG: "true"})
    assert script.begun == [DAYS[1]]
    whole = again(first)
    assert script.begun == [*DAYS]
    again(whole, **{RETRY_NUMBER_TAG: "1"})
    assert script.begun == [DAYS[1]]


@pytest.mark.process
@pytest.mark.usefixtures("retried_once")
def test_a_summary_that_failed_before_a_crash_is_made_again_by_the_retry(project, monkeypatch):
    monkeypatch.setattr(
        "jobs.tables.records.published_runs.last_published",
        lambda name, day, **_: run_records.load(name, day)[-1],
    )
    # no table has the day, so that its summary fails both times
    reason = three_days(project, Script(written, None, None), code=KILLED)
    assert f" Not made: delays_by_weather of {DAYS[0]}: " in reason


@pytest.mark.process
@pytest.mark.usefixtures("retried_once")
def test_a_retry_that_cannot_make_a_summary_runs_the_other_days(project, monkeypatch):

    def unreachable(*_, **__):
        raise TidegateError("the store does not answer.")

    monkeypatch.setattr("jobs.tables.records.published_runs.last_published", unreachable)
    script = Script(written, None, None)
    reason = three_days(project, script, code=KILLED)
    assert f" Not made: windows and summaries of {DAYS[0]}: the store does not answer." in reason
    assert script.begun == [DAYS[0], DAYS[1], DAYS[1]]


@pytest.mark.process
def test_an_error_before_spark_starts_fails_the_first_day_that_the_run_holds(project, monkeypatch):
    monkeypatch.setattr(
        "orchestration.dagster.assets.enriched.CRASH", dg.RetryPolicy(max_retries=1)
    )

    def unreachable(*_):
        raise TidegateError("the store does not answer.")

    monkeypatch.setattr(run_records, "fetch", unreachable)
    script = Script(None, None, None)
    with ExitStack() as others:
        others_have(others, DAYS[:1])
        reason = three_days(project, script, wait=0.1)
    assert "2013-01-11: the store does not answer. " in reason
    assert reason.endswith(" 1 day was not begun.")
    assert f"{DAYS[0]}: {DAYS[0]} is being run by run their " in reason
    assert [run.day for run in run_records.unwritten(KEY)] == [DAYS[1]]
    (run,) = project.get_runs()
    assert project.all_logs(run.run_id, of_type=DagsterEventType.STEP_UP_FOR_RETRY) == []
    assert script.begun == []


@pytest.mark.process
def test_a_day_that_fails_on_a_full_disk_is_red_and_not_run_again(project, monkeypatch):
    monkeypatch.setattr(
        "orchestration.dagster.assets.enriched.CRASH", dg.RetryPolicy(max_retries=1)
    )
    monkeypatch.setattr("orchestration.dagster.assets.metadata.published_metadata", lambda *_: {})

    def full(record, _lease):
        if record.facts.day == DAYS[0]:
            raise TidegateError("the disk is full.")
        return published(record)

    monkeypatch.setattr("jobs.tables.publishing.publish", full)
    script = Script(written, written, written)
    reason = three_days(project, script)
    assert reason.startswith("2 of 3 days published. Not published: 2013-01-10: the disk is full.")
    assert script.begun == [*DAYS]
    assert [run.state for run in run_records.unwritten(KEY)] == ["failed"]


@pytest.mark.process
def test_an_error_in_the_middle_of_a_run_fails_only_the_current_day(project, monkeypatch):
    monkeypatch.setattr("orchestration.dagster.assets.metadata.published_metadata", lambda *_: {})

    def full(record, *_):
        if record.facts.day == DAYS[0]:
            return published(record)
        raise TidegateError("the disk is full.")

    def unsaved(*_):
        raise OSError("no space left")

    monkeypatch.setattr("jobs.tables.publishing.publish", full)
    monkeypatch.setattr(run_records, "save_unwritten", unsaved)
    reason = three_days(project, Script(written, written, written))
    assert reason.startswith(
        "1 of 3 days published. Not published: 2013-01-11: the disk is full. 1 day was not begun."
    )


@pytest.mark.process
def test_a_run_that_is_cancelled_once_its_day_is_published_says_so(project, monkeypatch):
    monkeypatch.setattr("jobs.tables.publishing.publish", lambda record, _: published(record))
    monkeypatch.setattr("orchestration.dagster.assets.metadata.published_metadata", lambda *_: {})

    def cancelled(_):
        raise dg.DagsterExecutionInterruptedError

    monkeypatch.setattr(DayPipeline, "render", cancelled)
    spark = scripted(flights, Script(written, None, None))
    job = build_definitions([DECLARED], spark).resolve_job_def(JOB)
    run = job.execute_in_process(partition_key=DAYS[0], instance=project, raise_on_error=False)
    assert why_red(run) == "The run was ended from outside after its last day was published."


@pytest.mark.process
@pytest.mark.usefixtures("retried_once")
def test_the_single_day_of_a_retry_is_reported_with_its_log(project):
    three_days(project, Script(written, written, None), code=KILLED)
    last = project.fetch_observations(DECLARED.key, limit=1).records[0].asset_observation
    _, day, log = urlsplit(last.metadata["spark_log"].value).path.rsplit("/", 2)
    assert day == DAYS[2]
    assert run_records.run_log(KEY, day, log.removesuffix(".log")).is_file()


def published(record):
    return run_records.save(dataclasses.replace(record, state="published", published_version=1))


@pytest.mark.proof
@pytest.mark.process
def test_a_run_of_several_days_may_take_several_times_as_long_as_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"run_monitoring": {"enabled": True, "max_runtime_seconds": 7200}}
    with dg.DagsterInstance.local_temp(overrides=settings) as instance:
        three_days(instance, Script(no_input, no_input, no_input))
        (run,) = instance.get_runs()
    assert run.tags[MAX_RUNTIME_SECONDS_TAG] == str(3 * 7200)


def run_three_days(project, module: str, flights_of: str, checks: str = "data_quality.day:check"):
    """The nightly job over three days, declared in a module of its own. Returns the run and why it
    is red.
    """
    (project.root / f"{module}.py").write_text(flights_of)
    importlib.invalidate_caches()
    definitions = build_definitions(
        [Declared(f"{module}:flights", load(f"{module}:flights"))], spark_program(checks)
    )
    run = run_range(definitions, JOB, DAYS[0], DAYS[2], project.instance)
    return run, why_red(run)


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
        found.setdefault(event.materialization.asset_key.to_user_string(), []).append(
            event.materialization.partition
        )
    return found


@pytest.mark.spark
@pytest.mark.proof
def test_several_days_in_one_spark_are_published_one_by_one_and_a_bad_day_is_named(
    dagster_project,
):
    (dagster_project.root / "bad_day.py").write_text(HOOK + ROW_DOUBLED + ONE_BAD_DAY)
    house = "from enrichments.flights import flights"
    run, reason = run_three_days(dagster_project, "three_days", house, "bad_day:check")
    good = [DAYS[0], DAYS[2]]
    assert not run.success
    assert reason.startswith("2 of 3 days published. Not published: 2013-01-11: ")
    assert "duplicated" in reason
    assert (
        sorted(
            f"{partition['date']}" for partition in DeltaTable(f"data/published/{KEY}").partitions()
        )
        == good
    )
    assert materialized(dagster_project, run) == {KEY: good, "delays_by_weather": good}
    assert states(dagster_project, run) == {
        DAYS[0]: ["running", "published"], DAYS[1]: ["running", "held back"],
        DAYS[2]: ["running", "published"],
    }  # fmt: skip
    of_days = {day: run_records.load(KEY, day)[-1] for day in DAYS}
    reported = {
        event.materialization.partition: event.materialization.metadata
        for event in dagster_project.events(run.run_id, DagsterEventType.ASSET_MATERIALIZATION)
        if event.materialization.asset_key == dg.AssetKey(KEY)
    }
    assert {day: reported[day]["rows_in"].value for day in good} == {
        day: of_days[day].figures.rows_in for day in good
    }
    evaluations = dagster_project.events(run.run_id, DagsterEventType.ASSET_CHECK_EVALUATION)
    red = {
        (evaluation.partition, evaluation.check_name)
        for evaluation in evaluations
        if not evaluation.passed and evaluation.blocking
    }
    assert {day for day, _ in red} == {DAYS[1]}
    assert (DAYS[1], "every_row_once") in red
    logs = {
        run_records.run_log(KEY, day, record.facts.run_id).resolve()
        for day, record in of_days.items()
    }
    assert len(logs) == 1
    assert next(iter(logs)).is_file()

    calls = len(dagster_project.service.calls())
    run, reason = run_three_days(dagster_project, "no_summary", house + NO_SUMMARY)
    assert reason.startswith(f"3 of 3 days published. Not made: none of {DAYS[0]}: ")
    assert materialized(dagster_project, run)[KEY] == list(DAYS)  # whatever a query says
    assert len(dagster_project.service.calls()) == calls  # the answers are in the ledger


@pytest.mark.spark
@pytest.mark.proof
def test_a_service_that_goes_down_stops_the_run_and_the_days_after_it_are_not_begun(
    dagster_project, monkeypatch
):
    data = dagster_project.root / "data" / "demo"
    asked_anew = IMPATIENT.replace("service=replace(", "version=2, service=replace(")
    with running(data, data / "range_calls.jsonl") as service:
        monkeypatch.setenv("WEATHER_URL", service.url)
        with killed_at(0.3, service, DAYS[0]):
            run, reason = run_three_days(dagster_project, "impatient_days", asked_anew)
    assert not run.success
    assert reason.startswith("0 of 3 days published. Not published: 2013-01-10: weather_api at ")
    assert reason.endswith(" 2 days were not begun.")
    assert states(dagster_project, run) == {DAYS[0]: ["running", "stopped: service"]}
    assert dagster_project.events(run.run_id, DagsterEventType.STEP_UP_FOR_RETRY) == []
    (_, last) = dagster_project.observed(run.run_id)
    assert " keys (" in last["progress"]  # those are asked first


@pytest.mark.spark
@pytest.mark.proof
def test_several_days_cancelled_in_the_middle_leave_no_spark_and_keep_published_days(
    dagster_project, monkeypatch
):
    """Days without input do not end the run."""
    # of other tests: the day is to call
    ledger = dagster_project.root / "data" / "ledger"
    shutil.rmtree(ledger, ignore_errors=True)
    ledger.mkdir()
    data = dagster_project.root / "data" / "demo"
    # so that the middle of a day is found
    with running(data, data / "slow_calls.jsonl", scale=3.0) as service:
        monkeypatch.setenv("WEATHER_URL", service.url)
        cancelled_in_the_middle_of(DAYS[1], dagster_project, service)
    (run,) = dagster_project.instance.get_runs(limit=1)
    reported = states(dagster_project, run)
    assert reported.pop(DAYS[0]) == ["running", "published"]
    assert reported.pop(DAYS[1]) == ["running", "cancelled"]
    assert {day: words[-1] for day, words in reported.items()} == {
        "2013-01-08": "no input",
        "2013-01-09": "no input",
    }
    assert materialized(dagster_project, run)[KEY] == [DAYS[0]]
    reason = Path("reason.txt").read_text()
    assert reason.startswith(
        "1 of 5 days published. Not published: 2013-01-11: somebody cancelled the run; its program "
    )
    assert reason.endswith(" 1 day was not begun.")


FROM_THE_8TH = f"""
from pathlib import Path
import dagster as dg
from orchestration.definitions import defs
from tests.support.day_ranges import run_range, why_red

with dg.DagsterInstance.get() as instance:
    run = run_range(defs, "{JOB}", "2013-01-08", "{DAYS[2]}", instance)
    Path("reason.txt").write_text(why_red(run))
"""


def cancelled_in_the_middle_of(day: str, project, service) -> None:
    """The run, as a person cancels it who sees that the day is running; until no Spark is left. The
    service goes away in the middle of the day, which waits for it meanwhile.
    """

    # Dagster may still be told of the day before when Spark has begun this one
    def is_running() -> bool:
        return day in states(project, *project.instance.get_runs(limit=1))

    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-c", FROM_THE_8TH], start_new_session=True, env=environment
    )
    try:
        wait_for(lambda: process.poll() is not None or in_the_middle(day))
        service.stop()
        wait_for(lambda: process.poll() is not None or is_running())
        process.send_signal(signal.SIGTERM)
        process.wait(IN_TIME)
        wait_for(lambda: not processes_of_spark(project.root))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
