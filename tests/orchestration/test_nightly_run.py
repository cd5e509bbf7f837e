"""One day through Dagster, for real: spark-submit, the services, the checks, the commit."""

import collections
import contextlib
import datetime as dt
import json
import threading
import urllib.parse
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest
from dagster import DagsterEventType, DagsterRunStatus
from deltalake import DeltaTable

from data_quality import catalogue
from demo.table import counted_by_us
from demo.weather_service import running
from enrichments.flights import flights
from jobs.declare.finding.loading import load
from jobs.tables.records import run_records
from orchestration.dagster.declared import Declared
from orchestration.dagster.definitions import build_definitions
from orchestration.dagster.resources import spark_program
from tests.support.check_partitions import checks_of_days

pytestmark = pytest.mark.spark

DECLARED = Declared("enrichments.flights:flights", flights)
TABLE = "data/published/flights_enriched"
ROW_ID = ["carrier", "flight", "origin", "scheduled_departure"]


def days_in(table: str = TABLE) -> list[str]:
    if not DeltaTable.is_deltatable(table):
        return []
    return sorted({partition["date"] for partition in DeltaTable(table).partitions()})


def identities(table) -> collections.Counter:
    return collections.Counter(tuple(row.values()) for row in table.select(ROW_ID).to_pylist())


def status_of(project, outcome) -> DagsterRunStatus:
    return project.instance.get_run_by_id(outcome.run_id).status


def house_definitions(checks: str = "data_quality.day:check") -> dg.Definitions:
    return build_definitions([DECLARED], spark_program(checks))


@pytest.fixture(scope="module")
def published(dagster_project):
    """One day that went well."""
    outcome = dagster_project.run(house_definitions(), "2013-01-10")
    assert outcome.success, outcome
    return outcome


def test_a_day_is_published_with_each_row_once_and_its_summary(dagster_project, published):
    raw = pq.ParquetFile("data/raw/flights/date=2013-01-10/part-00000.parquet").read()
    table = DeltaTable(TABLE).to_pyarrow_table(filters=[("date", "=", dt.date(2013, 1, 10))])
    assert identities(table) == identities(raw)
    summary = DeltaTable("data/published/delays_by_weather").to_pyarrow_table()
    assert sum(summary["flights"].to_pylist()) == raw.num_rows


def test_the_materialization_has_the_version_and_figures_of_the_published_day(
    dagster_project, published
):
    reported = dagster_project.materialized(published.run_id)
    # without a dead letter they have no table
    assert list(reported) == ["flights_enriched", "delays_by_weather"]
    day = reported["flights_enriched"]
    rows = day["rows_in"]
    assert rows == day["dagster/row_count"] == 932
    for lookup in ("weather", "plane"):
        assert sum(count for key, count in day.items() if key.startswith(f"{lookup}/rows_")) == rows
        assert {f"{lookup}/{key}" for key in ("requests_sent", "answers_from_ledger")} <= set(day)
    assert (day["state"], day["published_version"]) == ("published", 0)
    assert day["readers_see"] == "2013-01-10, version 0, complete"
    letters = [
        day[f"{lookup}/rows_{outcome}"]
        for lookup in ("weather", "plane")
        for outcome in ("timeout", "error")
    ]
    assert day["dead_letters"] == sum(letters) == 0
    assert not DeltaTable.is_deltatable(f"{TABLE}__dead_letters")
    columns = [column.name for column in day["dagster/column_schema"].columns]
    assert {
        "carrier",
        "temp_c",
        "weather_status",
        "weather_answered_at",
        "manufacturer",
        "date",
    } <= set(columns)
    assert [name for name in columns if name.startswith("_")] == []


def test_every_check_that_ran_has_passed_under_the_day(dagster_project, published):
    judged = dagster_project.judged(published.run_id)
    not_run = "input_day_complete"  # with no earlier day to compare with: neither passed nor failed
    assert set(judged) == {check.name for check in catalogue.checks(flights.facts())} - {not_run}
    passed = checks_of_days(dagster_project.instance, DECLARED, "SUCCEEDED")
    assert passed == {key: {"2013-01-10"} for key in judged}
    day = dagster_project.materialized(published.run_id)["flights_enriched"]
    assert day["checks"] == f"{len(judged)} passed, not run: {not_run}"


def test_the_run_tells_its_state_from_start_to_end(dagster_project, published):
    reported = dagster_project.observed(published.run_id)
    assert [(state["partition"], state["state"]) for state in reported] == [
        ("2013-01-10", "running"),
        ("2013-01-10", "published"),
    ]
    assert [state["readers_see"] for state in reported] == [
        "nothing: no day is published yet",
        "2013-01-10, version 0, complete",
    ]
    (read,) = dagster_project.observed(published.run_id, "raw/flights")
    assert read == {"partition": "2013-01-10", "dagster/row_count": 932, "files": 1}


def test_progress_is_in_the_run_log_and_spark_itself_in_a_file(dagster_project, published):
    lines = dagster_project.log(published.run_id)
    assert [line for line in lines if " of 932 rows" in line]
    assert [line for line in lines if "WARN" in line] == []
    log = run_records.run_log("flights_enriched", "2013-01-10", published.run_id)
    assert "932 rows" in log.read_text()


def test_report_and_spark_log_are_where_their_links_point(dagster_project, published):
    day = dagster_project.materialized(published.run_id)["flights_enriched"]
    for link in ("report", "spark_log"):
        assert Path("data", urllib.parse.urlsplit(day[link]).path.lstrip("/")).is_file()


def test_the_log_of_the_service_agrees_with_the_audit_by_key(dagster_project, published):
    (record,) = run_records.load("flights_enriched", "2013-01-10")
    assert counted_by_us([record]) == collections.Counter(
        call.key for call in dagster_project.service.calls()
    )


# -- a fault in the written files
# -------------------------------------------------------------------------------------- A
# `--checks` hook that first edits the file of the run, as a bug of ours might, then judges it as
# always.
HOOK = """
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data_quality import day


def check(spark, facts, figures, *others, **named):
    file = facts.files[0]
    pq.write_table(fault(pq.ParquetFile(file).read()), file)
    for checksum in Path(file).parent.glob(".*.crc"):  # Hadoop's own, of the file before the fault
        checksum.unlink()
    return day.check(spark, facts, figures, *others, **named)
"""
ROW_DOUBLED = """
def fault(table):
    return pa.concat_tables([table.slice(0, 6), table.slice(5)])
"""
ROW_MOVED_OVER_A_WATERMARK = """
def fault(table):
    segments = table["_segment"].to_pylist()
    border = next(row for row in range(1, len(segments)) if segments[row] != segments[row - 1])
    places = list(range(len(segments)))
    places[border - 1], places[border] = border, border - 1
    return table.take(places)
"""


def with_fault(root: Path, name: str, fault: str) -> dg.Definitions:
    (root / f"{name}.py").write_text(HOOK + fault)
    return house_definitions(f"{name}:check")


def held_back(project, day: str, name: str, fault: str) -> dict:
    """Runs the day with the fault; what must hold whatever the fault. Returns the failed checks by
    name.
    """
    outcome = project.run(with_fault(project.root, name, fault), day)
    assert status_of(project, outcome) == DagsterRunStatus.FAILURE
    assert day not in days_in()
    assert project.materialized(outcome.run_id) == {}  # neither the table nor its summary
    assert project.events(outcome.run_id, DagsterEventType.STEP_UP_FOR_RETRY) == []
    last = project.observed(outcome.run_id)[-1]
    assert last["state"] == "held back", outcome.reason
    assert last["readers_see"].startswith(f"nothing of {day}; newest day")
    assert last["reason"] in outcome.reason
    (record,) = run_records.load("flights_enriched", day)
    assert record.state == "held back"
    assert Path(f"data/reports/flights_enriched/{day}/index.html").is_file()
    judged = project.judged(outcome.run_id)
    assert set(judged) | {"input_day_complete"} == {
        check.name for check in catalogue.checks(flights.facts())
    }
    return {
        name: check
        for name, check in judged.items()
        if not check.passed and "unexpected_count" in check.metadata  # it ran
    }


@pytest.mark.proof
def test_a_doubled_row_holds_the_day_back_and_the_failed_check_shows_the_row(
    dagster_project, published
):
    red = held_back(dagster_project, "2013-01-11", "row_doubled", ROW_DOUBLED)
    doubled = red["every_row_once"]
    assert (doubled.severity, doubled.blocking) == (dg.AssetCheckSeverity.ERROR, True)
    assert "duplicated" in doubled.description
    raw = pq.ParquetFile("data/raw/flights/date=2013-01-11/part-00000.parquet").read()
    assert raw["carrier"][5].as_py() in doubled.metadata["rows_at_fault"].value


@pytest.mark.proof
def test_a_row_moved_over_a_watermark_holds_the_day_back(dagster_project, published):
    red = held_back(dagster_project, "2013-01-13", "row_moved", ROW_MOVED_OVER_A_WATERMARK)
    assert red["watermarks_not_crossed"].severity == dg.AssetCheckSeverity.ERROR


# -- what stops a day before there are files
# ---------------------------------------------------------------------------
def stopped(project, outcome, day: str) -> list[dict]:
    """What must hold for a day that left no files. Returns its observations."""
    assert status_of(project, outcome) == DagsterRunStatus.FAILURE
    assert day not in days_in()
    assert project.materialized(outcome.run_id) == {}
    assert project.events(outcome.run_id, DagsterEventType.STEP_UP_FOR_RETRY) == []
    assert project.judged(outcome.run_id) == {}
    for status in ("FAILED", "EXECUTION_FAILED"):  # what did not run has not failed
        assert {
            name
            for name, days in checks_of_days(project.instance, DECLARED, status).items()
            if day in days
        } == set()
    assert "Traceback" not in outcome.reason
    return project.observed(outcome.run_id)


@pytest.mark.proof
def test_a_service_stopped_in_the_middle_of_a_day_is_named_and_the_same_run_succeeds_when_it_is_back(
    dagster_project, published, monkeypatch
):
    day, data = "2013-01-12", dagster_project.root / "data" / "demo"
    impatient = impatient_definitions(dagster_project.root)
    before = days_in()
    # in its own time, so that there is a middle
    with running(data, data / "slow_calls.jsonl") as service:
        monkeypatch.setenv("WEATHER_URL", service.url)
        with killed_at(0.3, service, day):
            outcome = dagster_project.run(impatient, day)
        reported = stopped(dagster_project, outcome, day)
        assert reported[-1]["state"] == "stopped: service"
        assert (
            f"weather_api at {urllib.parse.urlsplit(service.url).netloc} stopped answering"
            in outcome.reason
        )
        assert reported[-1]["reason"] in outcome.reason
        assert days_in() == before
        service.start()
        assert dagster_project.run(impatient, day).success
    assert days_in() == sorted([*before, day])


@pytest.mark.proof
def test_a_service_that_is_down_at_the_start_stops_the_day_as_an_outage(
    dagster_project, published, monkeypatch
):
    monkeypatch.setenv("WEATHER_URL", "http://127.0.0.1:1")
    outcome = dagster_project.run(house_definitions(), "2013-01-14")
    reported = stopped(dagster_project, outcome, "2013-01-14")
    assert reported[-1]["state"] == "stopped: service"  # so that it is started again by itself
    assert reported[-1]["cause"] == "weather_api stopped: service"
    assert "service weather_api: http://127.0.0.1:1 refused the connection" in outcome.reason


@pytest.mark.proof
def test_a_day_without_input_fails_with_a_sentence(dagster_project, published):
    outcome = dagster_project.run(house_definitions(), "2013-02-01")
    reported = stopped(dagster_project, outcome, "2013-02-01")
    assert reported[-1]["state"] == "no input"
    assert "there is no data/raw/flights/date=2013-02-01" in outcome.reason


UNWRITABLE = """
from dataclasses import replace
from enrichments.flights import flights

flights = replace(flights, output=replace(flights.output, path="data/demo/planes.db/table"))
"""


def test_a_table_that_cannot_be_written_fails_the_day_with_a_sentence(dagster_project, published):
    (dagster_project.root / "unwritable.py").write_text(UNWRITABLE)
    unwritable = build_definitions(
        [Declared("unwritable:flights", load("unwritable:flights"))], spark_program()
    )
    outcome = dagster_project.run(unwritable, "2013-01-10")
    assert status_of(dagster_project, outcome) == DagsterRunStatus.FAILURE
    assert (
        "data/demo/planes.db/table cannot be written: [Errno 20] Not a directory" in outcome.reason
    )
    assert "Traceback" not in outcome.reason
    assert dagster_project.observed(outcome.run_id)[-1]["state"] == "failed"
    assert dagster_project.events(outcome.run_id, DagsterEventType.STEP_UP_FOR_RETRY) == []


IMPATIENT = """
from dataclasses import replace
from datetime import timedelta
from enrichments.flights import flights
from tidegate import Outage

outage = Outage(probe_every=timedelta(seconds=0.5), wait_at_most=timedelta(seconds=2))
weather = replace(flights.lookups[0], service=replace(flights.lookups[0].service, outage=outage))
flights = replace(flights, lookups=[weather, flights.lookups[1]])
"""


def impatient_definitions(root: Path) -> dg.Definitions:
    """The flights, but an outage is waited for 2 s only."""
    (root / "impatient.py").write_text(IMPATIENT)
    return build_definitions(
        [Declared("impatient:flights", load("impatient:flights"))], spark_program()
    )


@contextlib.contextmanager
def killed_at(share: float, service, day: str):
    """Kills the service once this share of the day's rows is done."""
    progress = run_records.progress_file("flights_enriched", day)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            with contextlib.suppress(FileNotFoundError):
                event = json.loads(progress.read_text())
                if event["kind"] == "progress" and event["rows"] >= share * event["rows_total"]:
                    service.kill()
                    return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


OTHER_TABLE = """
from dataclasses import replace
from enrichments.flights import flights

clashing = replace(
    flights, name="clashing", summaries=[], output=replace(flights.output, path="data/published/clashing")
)
"""


# made while the day is checked: a table that is there before is found before the run
CLASH = """
import datetime as dt

from deltalake import write_deltalake


def fault(table):
    date = pa.array([dt.date(2013, 1, 9)])
    write_deltalake("data/published/clashing", pa.table({"temp_c": ["cold"], "date": date}), partition_by=["date"])
    return table
"""


@pytest.mark.proof
def test_a_day_that_cannot_be_committed_is_held_back_with_the_reason(dagster_project):
    (dagster_project.root / "other_table.py").write_text(OTHER_TABLE)
    (dagster_project.root / "clash.py").write_text(HOOK + CLASH)
    declared = Declared("other_table:clashing", load("other_table:clashing"))
    clashing = build_definitions([declared], spark_program("clash:check"))
    outcome = dagster_project.run(clashing, "2013-01-10")
    assert status_of(dagster_project, outcome) == DagsterRunStatus.FAILURE
    assert "column 'temp_c' is" in outcome.reason
    assert dagster_project.observed(outcome.run_id, "clashing")[-1]["state"] == "held back"
    assert dagster_project.materialized(outcome.run_id) == {}
    assert days_in("data/published/clashing") == ["2013-01-09"]
