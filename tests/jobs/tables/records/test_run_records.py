"""Records of runs that a power cut tore: passed over and named, and no day fails for them."""

import logging
import math
from pathlib import Path

import pytest

from data_quality.history import earlier_days
from jobs.commands.check import Finding, check_package
from jobs.errors import TidegateError
from jobs.schema.records import DayMetrics
from jobs.storage import durable
from jobs.tables.records import run_records
from jobs.tables.records.published_runs import last_published
from tests.jobs.commands.conftest import towns_in
from tests.jobs.storage.test_objects import put
from tidegate.__main__ import main

FIRST, SECOND = "2013-01-10", "2013-01-11"
TORN = [
    b"",
    b'{"facts": {"day"',
    b"\0" * 100,
    b"[]",
    b"null",
    b"{}",
    b'{"facts": {}, "figures": {}}',
]


@pytest.fixture
def towns(tmp_path, monkeypatch):
    """Two published days."""
    project = towns_in(tmp_path, monkeypatch)
    project.publish(FIRST, [1, 2])
    project.publish(SECOND, [3])
    return project


@pytest.fixture
def old_record(towns):
    monkeypatched = Path(f"data/runs/towns/{FIRST}/run-{FIRST}.json")
    assert monkeypatched.is_file()
    return monkeypatched


@pytest.mark.parametrize("data", TORN)
def test_a_torn_record_is_named_and_records_of_other_days_are_read(old_record, data, caplog):
    old_record.write_bytes(data)
    assert [record.facts.day for record in run_records.latest("towns")] == [SECOND]
    assert last_published("towns", FIRST) is None
    assert run_records.torn("towns") == [old_record]
    assert run_records.of_run("towns", FIRST, f"run-{FIRST}") is None
    assert sum(str(old_record) in warning.getMessage() for warning in caplog.records) == 1


def test_a_record_removed_during_the_reading_is_not_reported_as_torn(towns, monkeypatch):
    read = run_records._read

    def removed_before(path, kind):
        path.unlink()
        return read(path, kind)

    monkeypatch.setattr(run_records, "_read", removed_before)
    assert run_records.torn("towns") == []


def test_a_record_removed_during_the_reading_stops_no_check(towns, old_record, caplog):
    old_record.unlink()
    old_record.symlink_to("gone")  # it is listed, and is no more when it is read
    assert set(earlier_days("towns", "2013-01-12")) == {SECOND}
    assert not caplog.records


@pytest.mark.parametrize("data", TORN)
def test_checks_compare_a_day_with_other_days_despite_a_torn_record(old_record, data, caplog):
    caplog.set_level(logging.WARNING)
    assert set(earlier_days("towns", "2013-01-12")) == {FIRST, SECOND}
    old_record.write_bytes(data)
    found = earlier_days("towns", "2013-01-12")
    assert {day: type(record.figures) for day, record in found.items()} == {SECOND: DayMetrics}
    assert str(old_record) in caplog.text


def test_check_names_a_torn_record_with_the_cure(towns, old_record, service, monkeypatch):
    monkeypatch.setenv("WEATHER_URL", service.url)
    towns.write_input("2013-01-12", [1])
    assert [finding for _, _, finding in check_package("declared")] == [Finding.RIGHT]
    old_record.write_bytes(b"")
    message = [(message, finding) for _, message, finding in check_package("declared")]
    assert message[1:] == [
        (
            f"record {old_record} is torn. Delete it; a published day stays published.",
            Finding.WRONG,
        )
    ]


def test_an_unreadable_record_does_not_count_as_missing(old_record):
    old_record.unlink()
    old_record.mkdir()
    with pytest.raises(
        TidegateError,
        match=(
            rf"^record {old_record} cannot be read: Is a "
            r"directory. Start again"
        ),
    ):
        run_records.latest("towns")


def test_forget_deletes_a_torn_record(towns, old_record):
    towns.store({1: {"temp_c": 1.0}, 3: {"temp_c": 3.0}})
    towns.publish(FIRST, [1, 2], run_id="again")
    old_record.write_bytes(b'{"evidence": "town-3')
    assert main(["forget", "weather", "--package", "declared", "--key", "town=town-3"]) == 0
    assert not old_record.exists()
    assert run_records.torn("towns") == []


@pytest.mark.parametrize("data", [*TORN, b"[" * 100_000])
def test_foreign_files_beside_the_records_stop_no_command(old_record, data):
    Path(old_record.parent, "notes.json").write_bytes(data)
    assert {record.facts.day for record in run_records.load("towns")} == {FIRST, SECOND}
    assert run_records.unwritten("towns") == []
    assert run_records.torn("towns") == [Path(old_record.parent, "notes.json")]


@pytest.mark.process
def test_foreign_objects_beside_the_records_hide_no_record(old_record, s3):
    text, table = old_record.read_bytes(), f"{s3.bucket}/towns"
    odd = (
        "x//y",
        "../up.json",
        "a/\x1b[31m.json",
        "n" * 300,
        "2013-01-10/.hidden.json",
        f"{FIRST}/{'n' * 300}.json",
    )
    for name in (f"{FIRST}/other-run.json", *odd):
        put(f"{table}/_records/{name}", text)
    folder, before = old_record.parents[1], {*old_record.parents[2].rglob("*")}
    for _ in range(2):
        run_records.fetch("towns", table)
        new = {path for path in old_record.parents[2].rglob("*") if path.is_file()} - before
        assert new == {folder / FIRST / "other-run.json", folder / ".copies.json"}


def test_only_drafts_of_records_are_removed(towns):
    day = run_records.folder("towns", "2013-02-01")
    durable.write(day / "kept.json", b"{}")
    (day / ".ipynb_checkpoints").mkdir()
    for name in (".gitkeep", durable.name_draft(day / "kept.json").name):
        (day / name).touch()
    run_records.remove_drafts("towns", math.inf)
    assert {path.name for path in day.iterdir()} == {"kept.json", ".ipynb_checkpoints", ".gitkeep"}
