"""What stands beside a day, its verdicts and its report, never costs the day: looked at before, a
warning after.
"""

import json
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from data_quality import verdict_store
from data_quality.day_quality import DayQuality
from jobs.input.day import files_in
from jobs.process.day_events import DayResult, DayStage
from jobs.process.day_options import DayOptions
from jobs.process.day_pipeline import DayPipeline
from jobs.process.publish_decision import publish_or_hold_back
from jobs.run.enrich_day import progress_to
from jobs.schema.records import Verdict
from jobs.storage.stored_files import version_of
from jobs.tables.leases.day_leases import leased
from jobs.tables.records import run_records
from jobs.tables.records.killed_runs import killed_runs
from tests.jobs.commands.conftest import towns_in, verdict
from tests.support.scripted_spark import ScriptedSubmit
from tidegate.__main__ import main
from tidegate.commands.days import line, tell

DAY = "2013-01-10"
DAYS = (DAY, "2013-01-11", "2013-01-12")
TABLE = "data/published/towns"


@pytest.fixture
def towns(tmp_path, monkeypatch):
    project = towns_in(tmp_path, monkeypatch)
    project.write_input(DAY, [1, 2])
    return project


def damaged(monkeypatch):
    Path("data").mkdir(exist_ok=True)
    Path("data/quality.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)


def refusing(monkeypatch):
    monkeypatch.setenv(verdict_store.URL, "postgresql+psycopg2://me:secret@127.0.0.1:1/quality")


def read_only(monkeypatch):
    damaged(monkeypatch)
    Path("data/quality.db").unlink()
    sqlite3.connect("data/quality.db").close()
    monkeypatch.setenv(verdict_store.URL, "sqlite:///file:data/quality.db?mode=ro&uri=true")


def unknown(monkeypatch):
    monkeypatch.setenv(verdict_store.URL, "nosuch://x")


BROKEN = [damaged, refusing, read_only, unknown]


def decided(towns, *verdicts):
    record = towns.written(DAY, [1, 2], "r1", {}, verdicts)
    with leased(TABLE, DAY, "r1") as lease:
        return publish_or_hold_back(record, DayQuality().keep, lease)


@pytest.mark.parametrize("break_it", BROKEN)
def test_a_day_whose_verdicts_cannot_be_stored_is_published_with_a_warning(
    towns, monkeypatch, break_it
):
    break_it(monkeypatch)
    record = decided(towns, verdict("all there"))
    assert record.state == "published"
    (warning,) = record.warnings
    assert warning.startswith("its verdicts are not stored: verdicts: ")
    assert "secret" not in warning
    assert run_records.load("towns", DAY) == [record]


def test_a_red_verdict_that_cannot_be_stored_holds_the_day_back(towns, monkeypatch):
    damaged(monkeypatch)
    record = decided(towns, Verdict("every_row_once", "failed", "error", "1 row lost"))
    assert (record.state, record.reason, len(record.warnings)) == (
        "held back",
        "every_row_once: 1 row lost",
        1,
    )


def open_pipeline(towns, script):
    return DayPipeline(
        reference="declared.towns:towns",
        enrichment=towns.enrichment,
        quality=DayQuality(),
        submit=ScriptedSubmit(enrichment=towns.enrichment, script=script),
        wait=0.1,
    )


# -- progress
# --------------------------------------------------------------------------------------------------
def test_progress_is_reported_though_a_later_event_replaced_the_earlier_one_in_the_file(towns):
    progress = {"kind": "progress", "rows": 2, "rows_total": 2, "unit": "rows"}

    def script(day, _run_id):
        report = progress_to(run_records.progress_file("towns", day))
        for event in (progress, {"kind": "failed", "reason": "no luck"}):
            report(event)
        return json.loads(run_records.progress_file("towns", day).read_text())

    events = list(open_pipeline(towns, script).run([DAY]))
    told = [event.kind for event in events if isinstance(event, DayStage)]
    assert told == ["starting", "progress", "failed"]
    assert [event.progress for event in events if isinstance(event, DayResult)] == [progress]


def test_a_failed_run_records_the_input_files_at_its_start(towns):
    began_with = version_of(files_in(towns.enrichment.input, DAY))

    def script(day, _run_id):
        Path(f"data/raw/towns/date={DAY}/late.parquet").touch()
        progress_to(run_records.progress_file("towns", day))({"kind": "failed", "reason": "no"})

    list(open_pipeline(towns, script).run([DAY]))
    assert [run.files_version for run in run_records.unwritten("towns", DAY)] == [began_with]


def test_progress_that_cannot_be_written_does_not_end_a_run(tmp_path):
    report = progress_to(tmp_path / ("x" * 300) / "progress.json")  # as on a full disk
    report({"kind": "progress", "rows": 2})
    with pytest.raises(OSError, match="File name too long"):
        report({"kind": "written"})


# -- several days in one Spark application
# -----------------------------------------------------------------------------
def run_days(towns, days, *, red=(), options=None):
    """The outcomes of the days, whose Spark writes each of them, some with a red verdict."""

    def script(day, run_id):
        verdicts = [
            Verdict("every_row_once", "failed" if day in red else "passed", "error", "1 row lost")
        ]
        return towns.written(day, [1, 2], run_id, {}, verdicts)

    return [
        event
        for event in open_pipeline(towns, script).run(days, options)
        if isinstance(event, DayResult)
    ]


def test_days_after_a_red_day_run_unless_until_red_is_set(towns):
    outcomes = run_days(towns, DAYS, red=[DAYS[1]])
    assert [outcome.state for outcome in outcomes] == ["published", "held back", "published"]
    assert len({outcome.run_id for outcome in outcomes}) == 3
    outcomes = run_days(towns, DAYS, red=[DAYS[1]], options=DayOptions(until_red=True))
    assert [outcome.state for outcome in outcomes] == ["published", "held back"]


def test_with_until_red_a_day_held_by_another_run_is_the_last_day(towns):
    with leased(TABLE, DAYS[1], "theirs"):
        outcomes = run_days(towns, DAYS, options=DayOptions(until_red=True))
        assert [(outcome.day, outcome.state) for outcome in outcomes] == [
            (DAYS[0], "published"),
            (DAYS[1], "not started"),
        ]
        outcomes = run_days(towns, DAYS)
    assert [(outcome.day, outcome.state) for outcome in outcomes] == [
        (DAYS[1], "not started"), (DAYS[0], "published"), (DAYS[2], "published"),
    ]  # fmt: skip


def test_a_day_that_cannot_be_written_fails_with_its_reason_and_other_days_run(towns):
    def script(day, run_id):
        record = towns.written(day, [1, 2], run_id, {})
        if day == DAYS[1]:
            Path(record.facts.files[0]).unlink()
        return record

    events = open_pipeline(towns, script).run(DAYS)
    outcomes = [event for event in events if isinstance(event, DayResult)]
    assert [outcome.state for outcome in outcomes] == ["published", "failed", "published"]
    assert not outcomes[1].crashed
    assert outcomes[1].reason.startswith(f"output: {TABLE} or a table beside it cannot be written:")
    (ended,) = run_records.unwritten("towns", DAYS[1])
    assert (ended.state, ended.reason) == ("failed", outcomes[1].reason)
    assert killed_runs("towns", TABLE) == []


def test_a_failed_summary_is_reported_and_the_days_are_published(towns, capsys):
    towns.declare_too(
        'towns = replace(towns, summaries=[Summary(name="none", sql="SELECT CAST(town AS INT) AS '
        'number FROM towns")])'
    )
    outcomes = run_days(towns, DAYS[:2])
    assert [outcome.state for outcome in outcomes] == ["published", "published"]
    assert [name for outcome in outcomes for name, _ in outcome.unmade] == ["none", "none"]
    assert tell("towns", outcomes) == 1
    warning = f"{DAYS[0]}  warning     towns: summary none of {DAYS[0]} is not made: "
    assert warning in capsys.readouterr().out


@pytest.mark.parametrize("break_it", BROKEN)
def test_a_read_only_verdict_database_is_refused_before_any_call(
    towns, monkeypatch, break_it, capsys
):
    break_it(monkeypatch)
    assert main(["run", "towns", "--package", "declared", "--day", DAY]) == 2
    message = capsys.readouterr().err
    assert message.startswith("towns: verdicts: ")
    assert message.endswith("Nothing was called.\n")
    assert message.count("\n") == 1
    assert not run_records.any_run("towns")


def test_a_read_only_report_folder_is_refused_before_any_call(towns, capsys):
    Path("data/reports").write_text("no folder")
    assert main(["run", "towns", "--package", "declared", "--day", DAY]) == 2
    assert "its report cannot be written: " in capsys.readouterr().err
    assert not run_records.any_run("towns")


def test_forget_fails_if_verdicts_cannot_be_cleaned(towns, monkeypatch, capsys):
    towns.store({1: {"temp_c": 1.0}})
    towns.publish(DAY, [1], verdicts=[verdict("first row: town-1", {"number": 1})])
    damaged(monkeypatch)
    assert main(["forget", "weather", "--package", "declared", "--key", "town=town-1"]) == 1
    assert capsys.readouterr().err.startswith("verdicts: ")


def test_postgresql_stores_a_sentence_with_a_nul_and_a_broken_character(towns, postgres):
    url = postgres.url(postgres.new_database(), driver="postgresql+psycopg2")
    odd = Verdict(
        "every_row_once", "failed", "warn", "row a\0b \ud83d lost", 1, 1, "x\0", ({"id": "a\0b"},)
    )
    record = towns.written(DAY, [1, 2], "r1", {}, [odd])
    verdict_store.require(url)
    assert verdict_store.save(record, url) == 1
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        assert (
            connection.execute(sa.select(verdict_store.VERDICTS.c.sentence)).scalar_one()
            == "row a\\0b \\ud83d lost"
        )
    engine.dispose()


def test_a_warning_is_printed_below_the_line_of_its_day(towns, monkeypatch, capsys):
    damaged(monkeypatch)
    record = decided(towns)
    tell(
        "towns",
        [DayResult(DAY, "r1", record.state, record.reason, record, warnings=record.warnings)],
    )
    first, second = capsys.readouterr().out.splitlines()
    assert first == line(DayResult(DAY, "r1", record.state, record.reason, record))
    assert second == f"{DAY}  warning     {record.warnings[0]}"
