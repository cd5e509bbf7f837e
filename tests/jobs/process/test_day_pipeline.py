"""What stands beside a day, its verdicts and its report, never costs the day: looked at before, a warning after."""

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from data_quality import verdict_store
from jobs.process.day_pipeline import DayOutcome, publish_or_hold_back
from jobs.schema import Verdict
from jobs.tables import run_records
from jobs.tables.leases import leased
from tests.jobs.commands.conftest import towns_in, verdict
from tidegate.__main__ import main
from tidegate.commands.days import line, quality, tell

DAY = "2013-01-10"
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
        return publish_or_hold_back(record, quality().keep, lease)


@pytest.mark.parametrize("break_it", BROKEN)
def test_a_day_whose_verdicts_cannot_be_stored_is_published_by_those_in_hand_with_a_warning(
    towns, monkeypatch, break_it
):
    break_it(monkeypatch)
    record = decided(towns, verdict("all there"))
    assert record.state == "published"
    (warning,) = record.warnings
    assert warning.startswith("its verdicts are not stored: verdicts: ")
    assert "secret" not in warning
    assert run_records.load("towns", DAY) == [record]


def test_a_red_verdict_that_cannot_be_stored_holds_the_day_back_all_the_same(towns, monkeypatch):
    damaged(monkeypatch)
    record = decided(towns, Verdict("every_row_once", "failed", "error", "1 row lost"))
    assert (record.state, record.reason, len(record.warnings)) == ("held back", "every_row_once: 1 row lost", 1)


@pytest.mark.parametrize("break_it", BROKEN)
def test_a_database_of_verdicts_that_takes_none_is_found_before_anything_is_called(
    towns, monkeypatch, break_it, capsys
):
    break_it(monkeypatch)
    assert main(["run", "towns", "--package", "declared", "--day", DAY]) == 2
    message = capsys.readouterr().err
    assert message.startswith("towns: verdicts: ")
    assert message.endswith("Nothing was called.\n")
    assert message.count("\n") == 1
    assert not run_records.any_run("towns")


def test_a_folder_of_reports_that_takes_none_is_found_before_anything_is_called(towns, capsys):
    Path("data/reports").write_text("no folder")
    assert main(["run", "towns", "--package", "declared", "--day", DAY]) == 2
    assert "its report cannot be written: " in capsys.readouterr().err
    assert not run_records.any_run("towns")


def test_forget_says_that_verdicts_cannot_be_cleaned_and_does_not_end_well(towns, monkeypatch, capsys):
    towns.store({1: {"temp_c": 1.0}})
    towns.publish(DAY, [1], verdicts=[verdict("first row: town-1", {"number": 1})])
    damaged(monkeypatch)
    assert main(["forget", "weather", "--package", "declared", "--key", "town=town-1"]) == 1
    assert capsys.readouterr().err.startswith("verdicts: ")


def test_postgresql_stores_a_sentence_with_a_nul_and_half_a_character(towns, postgres):
    url = postgres.url(postgres.new_database(), driver="postgresql+psycopg2")
    odd = Verdict("every_row_once", "failed", "warn", "row a\0b \ud83d lost", 1, 1, "x\0", ({"id": "a\0b"},))
    record = towns.written(DAY, [1, 2], "r1", {}, [odd])
    verdict_store.require(url)
    assert verdict_store.save(record, url) == 1
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        assert connection.execute(sa.select(verdict_store.VERDICTS.c.sentence)).scalar_one() == "row a\\0b \\ud83d lost"
    engine.dispose()


def test_a_warning_stands_below_the_line_of_its_day(towns, monkeypatch, capsys):
    damaged(monkeypatch)
    record = decided(towns)
    tell([DayOutcome(DAY, "r1", record.state, record.reason, record, warnings=record.warnings)])
    first, second = capsys.readouterr().out.splitlines()
    assert first == line(DayOutcome(DAY, "r1", record.state, record.reason, record))
    assert second == f"{DAY}  warning     {record.warnings[0]}"
