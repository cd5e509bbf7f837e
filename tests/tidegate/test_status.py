"""`status`: what the records of the last days say, judged by a list of states that a test plants."""

import dataclasses
import datetime as dt
import json
import random
import re
import shutil
from pathlib import Path

import pytest

from data_quality.day_quality import DayQuality
from jobs.commands.check import check_package
from jobs.commands.status import recent_runs, scheduled_days
from jobs.process.publish_decision import render_report
from jobs.schema.records import RowChanges, RunBill, UnwrittenRun
from jobs.tables import publishing
from jobs.tables.leases.day_leases import leased
from jobs.tables.records import run_records
from orchestration.common.table_status import read_table
from tests.jobs.commands.conftest import towns_in, verdict
from tidegate import Input
from tidegate.__main__ import main
from tidegate.commands.status import _spans

NOW = dt.datetime(2013, 1, 20, 7, 0, tzinfo=dt.UTC)
NIGHTLY = "towns = replace(towns, schedule='15 2 * * *', publish_by='06:30', start='2013-01-01')"
BY_HAND = "towns = replace(towns, schedule=None, publish_by=None)"
RED = dataclasses.replace(verdict("1 row lost"), status="failed")


@pytest.fixture
def towns(tmp_path, monkeypatch):
    project = towns_in(tmp_path, monkeypatch)
    project.declare_too(NIGHTLY)
    return project


def held_back(towns, day):
    record = towns.written(day, [1, 2], f"run-{day}", {2: "error"}, [RED])
    run_records.hold_back(record, "every_row_once: 1 row lost")


def ended(day, state="stopped: service"):
    at = f"{day}T02:20:00+00:00"
    run = UnwrittenRun("towns", day, f"run-{day}", state, "it is down", "Wait for it.", at, at)
    run_records.save_unwritten(run)


def killed(_towns, day):
    log = run_records.run_log("towns", day, f"run-{day}")
    log.parent.mkdir(parents=True)
    log.touch()


PLANTS = {
    "published": lambda towns, day: towns.publish(day, [1, 2, 3]),
    "held back": held_back,
    "stopped: service": lambda _towns, day: ended(day),
    "killed": killed,
    "missing": lambda _towns, _day: None,
}


def test_a_day_that_readers_of_the_declared_table_do_not_see_is_missing(towns, capsys):
    run = towns.publish("2013-01-19", [1, 2, 3]).facts.run_id

    def state():
        found = read_table(towns.enrichment, 1, NOW)
        assert (found.published_day is None) == (found.last.state == "missing")
        main(["show", "towns", "2013-01-19", "--package", "declared", "--json"])
        shown = json.loads(capsys.readouterr().out)
        assert (shown["state"], shown["reason"]) == (found.last.state, found.last.reason)
        return found.last.state, found.last.reason

    assert state()[0] == "published"
    moved = "towns = replace(towns, output=replace(towns.output, path='elsewhere/towns'))"
    towns.declare_too(NIGHTLY, moved)
    assert state() == (
        "missing",
        (
            "it was published to data/published/towns, and not yet to elsewhere/towns, which is "
            "declared now"
        ),
    )
    shutil.copytree("data/published", "elsewhere")
    assert state()[0] == "published"
    shutil.rmtree("elsewhere")
    towns.declare()
    towns.declare_too(NIGHTLY)
    assert state()[0] == "published"
    shutil.rmtree("data/published/towns")
    assert state() == (
        "missing",
        (
            f"it was published as version 0 by run {run}, and readers of data/published/towns do "
            "not see it"
        ),
    )


def test_days_that_a_restored_backup_of_the_table_lacks_are_missing(towns):
    towns.publish("2013-01-17", [1])
    towns.publish("2013-01-18", [1])
    shutil.copytree("data/published/towns", "backup")
    towns.publish("2013-01-18", [1, 2], run_id="again")
    towns.publish("2013-01-19", [1, 2, 3])
    shutil.rmtree("data/published/towns")
    shutil.copytree("backup", "data/published/towns")
    found = read_table(towns.enrichment, 3, NOW)
    assert [day.state for day in found.days] == ["published", "missing", "missing"]
    assert [day.version for day in found.days] == [0, None, None]
    assert found.last.next_step == "Run it again: `tidegate run towns --day 2013-01-19`."
    assert found.published_day == "2013-01-17"
    named = [sentence.split()[0] for _, sentence, _ in check_package("declared")]
    assert named[-2:] == ["2013-01-18", "2013-01-19"]


def test_kept_rows_count_as_rows_of_the_day(towns):
    counts = {"new": 2, "changed": 0, "expired": 0, "gone": 0, "kept": 5}
    towns.publish("2013-01-19", [1, 2], changes=RowChanges(**counts))
    assert read_table(towns.enrichment, 1, NOW).last.rows == 7


def test_each_day_has_the_state_that_was_planted(towns):
    draw = random.Random(5)
    days = [(dt.date(2013, 1, 1) + dt.timedelta(days=number)).isoformat() for number in range(19)]
    planted = {day: draw.choice([*PLANTS]) for day in days}
    for day, state in planted.items():
        PLANTS[state](towns, day)
    found = read_table(towns.enrichment, 14, NOW)
    assert {day.day: day.state for day in found.days} == dict([*planted.items()][-14:])
    seen = [day for day, state in planted.items() if state == "published"]
    assert found.published_day == seen[-1]
    for day in found.days:
        assert (day.rows is not None) == (day.state in ("published", "held back"))
        assert bool(day.next_step) == (day.state != "published")
        assert "2013" in day.next_step or day.next_step in ("", "Wait for it.")
    assert len(recent_runs(towns.enrichment, 3, NOW, NOW).days) == 3


def test_the_last_day_is_awaited_until_its_deadline_and_a_running_run_is_running(towns):
    towns.publish("2013-01-18", [1])
    early = NOW.replace(hour=6)
    assert [day.state for day in read_table(towns.enrichment, 2, early).days][-1] == "waiting"
    assert [day.state for day in read_table(towns.enrichment, 2, NOW).days][-1] == "missing"
    killed(towns, "2013-01-19")
    with leased(towns.enrichment.output.path, "2013-01-19", "run-2013-01-19"):
        assert [day.state for day in read_table(towns.enrichment, 2, NOW).days][-1] == "running"
    assert [day.state for day in read_table(towns.enrichment, 2, NOW).days][-1] == "killed"


def test_days_are_missed_only_where_a_daily_schedule_wants_them(towns):
    assert scheduled_days(towns.enrichment, 3, NOW) == ["2013-01-17", "2013-01-18", "2013-01-19"]
    for change, days in (
        ({"schedule": None, "publish_by": None}, []),
        ({"schedule": "15 2 * * 1"}, []),
        ({"start": "2013-01-19"}, ["2013-01-19"]),
        ({"start": "2013-01-20"}, []),
        ({"end": "2013-01-19"}, ["2013-01-17", "2013-01-18"]),
    ):
        assert scheduled_days(dataclasses.replace(towns.enrichment, **change), 3, NOW) == days
    assert len(scheduled_days(towns.enrichment, 740_000, NOW)) == 19
    towns.publish("2012-05-01", [1])
    by_hand = dataclasses.replace(towns.enrichment, schedule=None, publish_by=None)
    assert [day.day for day in read_table(by_hand, 14, NOW).days] == ["2012-05-01"]


def test_hours_of_a_time_zone_are_expected_within_its_days_once_due(towns):
    hourly = dataclasses.replace(
        towns.enrichment, input=Input(path="raw", row_id=["n"], every="hour"),
        schedule="20 * * * *", publish_by=None, zone="America/New_York", start="2026-11-26",
    )  # fmt: skip
    now = dt.datetime(2026, 11, 27, 3, 30, tzinfo=dt.UTC)  # in New York still the 26th
    assert scheduled_days(hourly, 1, now) == [
        *(f"2026-11-26T{hour:02}Z" for hour in range(5, 24)),
        *(f"2026-11-27T{hour:02}Z" for hour in range(3)),
    ]
    before = dataclasses.replace(hourly, start="2026-11-27")
    assert scheduled_days(before, 14, now) == []
    tokyo = dataclasses.replace(hourly, zone="Asia/Tokyo", start="2026-11-24", end="2026-11-25")
    wanted = scheduled_days(tokyo, 14, now)
    assert (wanted[0], wanted[-1]) == ("2026-11-23T15Z", "2026-11-24T14Z")
    due = dataclasses.replace(hourly, zone="UTC")
    for minute, state in ((19, "waiting"), (21, "missing")):
        at = dt.datetime(2026, 11, 27, 0, minute, tzinfo=dt.UTC)
        assert read_table(due, 1, at).days[-1].state == state
    several = dataclasses.replace(towns.enrichment, schedule="30 2,14 * * *", publish_by=None)
    assert read_table(several, 2, dt.datetime(2013, 1, 20, 0, 1, tzinfo=dt.UTC)).last.state == (
        "waiting"
    )


@pytest.mark.parametrize(("minute", "state"), [(49, "waiting"), (51, "missing")])
def test_an_hour_is_due_when_its_schedule_starts_it_in_a_half_hour_zone(towns, minute, state):
    hourly = dataclasses.replace(
        towns.enrichment, input=Input(path="raw", row_id=["n"], every="hour"),
        schedule="20 * * * *", publish_by=None, zone="Asia/Kolkata", start="2026-11-26",
    )  # fmt: skip
    at = dt.datetime(2026, 11, 27, 0, minute, tzinfo=dt.UTC)  # 00:50 is 06:20 in Kolkata
    assert read_table(hourly, 1, at).days[-1].state == state


def test_a_day_of_a_schedule_with_more_zeros_is_due_at_its_time(towns):
    padded = dataclasses.replace(towns.enrichment, schedule="005 002 * * *", publish_by=None)
    for minute, state in ((4, "waiting"), (6, "missing")):
        at = dt.datetime(2013, 1, 20, 2, minute, tzinfo=dt.UTC)
        assert read_table(padded, 2, at).last.state == state


def test_a_run_that_ends_while_costs_are_read_counts_once(towns, monkeypatch):
    day, load = "2013-01-19", run_records.load
    bills = [RunBill("towns", day, "r", "2013-01-20T00:00:00+00:00", (), "")]
    monkeypatch.setattr(run_records, "bills", lambda *_: list(bills))

    def load_as_it_ends(name, day=None):
        if bills:
            bills.clear()
            towns.publish(day, [1], run_id="r")
        return load(name, day)

    monkeypatch.setattr(run_records, "load", load_as_it_ends)
    runs = recent_runs(towns.enrichment, 3, NOW, NOW - dt.timedelta(days=30))
    assert [record.facts.run_id for record in (*runs.records, *runs.others)] == ["r"]
    assert runs.bills == ()


def test_unreadable_counts_leave_the_status_of_their_table(towns, monkeypatch, tmp_path):
    (tmp_path / "a.meter").write_text("no JSON 1\n")
    run_records.folder("towns", "2013-01-19").mkdir(parents=True)
    bill = RunBill("towns", "2013-01-19", "r", NOW.isoformat(), (), str(tmp_path))
    monkeypatch.setattr(run_records, "bills", lambda *_: [bill])
    assert read_table(towns.enrichment, 1, NOW).this_month.runs == 1


def test_wrong_tables_are_listed_first_with_reason_and_cure(towns, capsys):
    towns.declare_too(
        BY_HAND,
        "fine = replace(towns, name='a_fine', output=replace(towns.output, path='a_fine'))",
        "idle = replace(towns, name='idle', output=replace(towns.output, path='idle'))",
    )
    Path("declared/broken.py").write_text("import missing_module\n")
    held_back(towns, "2013-01-19")
    arguments = ["status", "--package", "declared"]
    assert main(arguments) == 1
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0] == "declared.broken  WRONG"
    assert "towns  2013-01-19  HELD BACK" in lines
    assert "  every_row_once: 1 row lost" in lines
    assert "  next: Fix the cause, then run" in out
    assert "No run yet: a_fine, idle." in lines
    assert main([*arguments, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [table["enrichment"] for table in found["tables"]] == [
        "declared.broken", "towns", "a_fine", "idle",
    ]  # fmt: skip
    assert found["tables"][1]["days"][0]["state"] == "held back"
    assert main(["status", "declared.towns:idle"]) == 0
    assert main(["status", "--days", "0"]) == 2
    assert capsys.readouterr().err == "--days is 0; it must be a whole number, at least 1.\n"


def test_a_mistyped_day_without_input_hides_no_table(towns, capsys):
    towns.declare_too(BY_HAND)
    towns.publish("2013-01-10", [1, 2])
    ended("2013-10-10", "no input")
    assert main(["status", "--package", "declared"]) == 0
    assert "2013-10-10" not in capsys.readouterr().out
    towns.declare_too(NIGHTLY)
    ended("2013-01-19", "no input")  # which the schedule wants
    assert read_table(towns.enrichment, 14, NOW).last.state == "no input"
    towns.declare_too(BY_HAND)
    ended("2013-01-10", "no input")  # whose input is gone; it was published
    assert [day.day for day in read_table(towns.enrichment, 14, NOW).days] == ["2013-01-10"]


def test_a_day_that_failed_again_names_the_version_that_readers_see(towns, capsys):
    towns.declare_too(BY_HAND)
    towns.publish("2013-01-19", [1, 2])
    ended("2013-01-19", "failed")
    still = "  readers still see version 0, published at "
    assert main(["status", "towns", "--package", "declared"]) == 1
    assert still in capsys.readouterr().out
    main(["show", "towns", "2013-01-19", "--package", "declared"])
    assert still in capsys.readouterr().out
    ended("2013-01-18", "failed")
    main(["show", "towns", "2013-01-18", "--package", "declared"])
    assert "readers" not in capsys.readouterr().out


def test_a_table_without_a_published_day_among_the_last_is_not_called_empty(towns, capsys):
    towns.publish("2012-12-31", [1, 2])
    ended("2013-01-19")
    towns.declare_too(BY_HAND)
    main(["status", "--package", "declared", "--days", "1"])
    assert re.search("^towns .* none of the last 1$", capsys.readouterr().out, re.MULTILINE)


def test_missing_days_in_a_row_are_a_span(towns):
    for day in ("2013-01-10", "2013-01-14", "2013-01-16"):
        towns.publish(day, [1])
    found = read_table(towns.enrichment, 10, NOW)
    assert _spans(found.days) == [
        "2013-01-11 to 2013-01-13",
        "2013-01-15",
        "2013-01-17 to 2013-01-18",
    ]


def test_a_day_whose_run_died_after_its_commit_is_published_as_readers_see_it(towns, capsys):
    towns.publish("2013-01-19", [1, 2, 3], run_id="before")
    record = towns.written("2013-01-19", [1, 2, 3, 4], "after-commit", {})
    spark_log = run_records.run_log("towns", "2013-01-19", "after-commit")
    spark_log.touch()
    publishing.publish(record)
    run_records.save(record)  # as it was before the commit: so the kill leaves it
    found = read_table(towns.enrichment, 1, NOW).last
    assert (found.state, found.rows, found.version) == ("published", 4, 1)
    main(["show", "towns", "2013-01-19", "--package", "declared", "--json"])
    assert json.loads(capsys.readouterr().out)["state"] == "published"
    render_report(DayQuality(), "towns", towns.enrichment.output.path)
    assert "killed" not in Path("data/reports/towns/2013-01-19/index.html").read_text()


def test_a_named_partition_is_missing_only_where_a_schedule_wants_it(towns):
    named = "input=replace(towns.input, every=['eu', 'us']), publish_by=None, start='2020-01-01'"
    towns.declare_too(f"towns = replace(towns, schedule=None, {named})")
    assert read_table(towns.enrichment, 14, NOW).days == ()
    towns.declare_too(f"towns = replace(towns, schedule='15 2 * * *', {named})")
    assert [day.state for day in read_table(towns.enrichment, 14, NOW).days] == ["missing"] * 2


def test_a_day_of_a_batch_is_running_until_its_batch_is_published_or_killed(towns):
    day = "2013-01-19"
    run_records.save(towns.written(day, [1, 2, 3], "query-0-a", {}))
    with leased(towns.enrichment.output.path, day, "query-0-a"):
        assert read_table(towns.enrichment, 1, NOW).last.state == "running"
    found = read_table(towns.enrichment, 1, NOW).last
    assert (found.state, found.next_step) == (
        "killed", f"Start the stream again, or run the day: `tidegate run towns --day {day}`.",
    )  # fmt: skip
