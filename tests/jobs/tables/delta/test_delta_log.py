"""A table whose log is damaged, for example by a power cut, and what is on the disk when a day is
called published.
"""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.commands.check import Finding, check_package
from jobs.commands.replaying.remap import published_days
from jobs.errors import TidegateError
from jobs.tables.delta.delta_log import kept_open, lasting, table_at
from jobs.tables.records import run_records
from tests.jobs.commands.conftest import towns_in

FIRST, SECOND = "2013-01-10", "2013-01-11"
TABLE = Path("data/published/towns")


@pytest.fixture
def towns(tmp_path, monkeypatch, service):
    """Two published days, and input for another one."""
    project = towns_in(tmp_path, monkeypatch)
    monkeypatch.setenv("WEATHER_URL", service.url)
    project.publish(FIRST, [1, 2])
    project.publish(SECOND, [3])
    project.write_input("2013-01-12", [1])
    return project


def last_entry():
    return max((TABLE / "_delta_log").glob("*.json"))


def wrong(package="declared"):
    return [
        message for _, message, finding in check_package(package) if finding is not Finding.RIGHT
    ]


def test_check_names_a_published_day_that_readers_do_not_see_and_a_rerun_mends_it(towns):
    assert wrong() == []
    last_entry().write_bytes(b"")  # as a power cut leaves it
    assert [str(day["date"]) for day in DeltaTable(TABLE).partitions()] == [FIRST]
    (message,) = wrong()
    assert message == (
        f"{SECOND} was published as version 1 by run run-{SECOND}, and readers of {TABLE} do not "
        "see it (its entry in the log is empty). Run the day again, with the ledger's answers."
    )
    towns.publish(SECOND, [3], run_id="again")
    assert wrong() == []


def test_check_names_a_republished_day_whose_log_entry_is_empty(towns):
    towns.publish(FIRST, [1, 2, 9], run_id="again")
    last_entry().write_bytes(b"")
    assert [
        f"{FIRST} was published as version 2 by run again" in message for message in wrong()
    ] == [True]


def test_check_names_a_deleted_table_and_no_empty_day(towns):
    towns.publish("2013-01-09", [])
    assert wrong() == []
    (TABLE / "_delta_log").rename("elsewhere")
    assert len(wrong()) == 2


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"\0" * len(data)]
)
def test_a_damaged_log_is_reported_in_one_sentence_with_table_file_and_cure(towns, damage):
    entry = last_entry()
    entry.write_bytes(damage(entry.read_bytes()))
    for work in (
        lambda: table_at(str(TABLE)),
        lambda: published_days(towns.enrichment, FIRST),
        lambda: towns.publish(FIRST, [1], run_id="next"),
    ):
        with pytest.raises(TidegateError) as reported:
            work()
        message = str(reported.value)
        assert message.startswith(f"table {TABLE}: its log, {TABLE}/_delta_log, cannot be read: ")
        assert message.endswith("run its days again, with the ledger's answers.")
        assert "unknown" not in message
        assert "\n" not in message
    (message,) = wrong()
    assert message.startswith(f"table {TABLE}: its log")


def test_files_and_log_of_a_published_day_are_synced_before_its_record(towns, monkeypatch):
    on_disk, order, sync, replace = {}, [], os.fsync, Path.replace

    def noted(handle):
        sync(handle)
        path = Path(f"/proc/self/fd/{handle}").readlink()
        on_disk[path] = path.stat().st_size
        order.append(path)

    def renamed(draft, target):
        done = replace(draft, target)
        if draft.absolute() in on_disk:
            on_disk[Path(target).absolute()] = on_disk.pop(draft.absolute())
        return done

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "replace", renamed)
    before = set(Path().absolute().rglob("*"))
    record = towns.publish(FIRST, [1, 2, 7], run_id="again", statuses={7: "error"})
    new = set(Path().absolute().rglob("*")) - before
    files = {path for path in new if path.is_file() and not path.name.endswith((".lock", ".crc"))}
    assert {path for path in files if on_disk.get(path) != path.stat().st_size} == set()
    assert {path.parent for path in files} <= set(on_disk)  # their names too
    assert any("towns__audit" in str(path) for path in files)
    (data,) = map(Path, record.facts.files)
    entry = last_entry().absolute()
    kept = run_records.folder("towns", FIRST).absolute()
    assert order.index(data) < order.index(entry) < order.index(kept)


def test_an_open_table_shows_later_commits_of_other_programs(tmp_path):
    place, rows = str(tmp_path / "table"), pa.table({"number": [1]})
    write_deltalake(place, rows)
    with kept_open({}):
        table = table_at(place)
        write_deltalake(place, rows, mode="append")
        assert table_at(place) is table
        assert table.version() == 1
        shutil.rmtree(place)
        assert table_at(place) is None


def test_a_foreign_commit_with_a_unicode_line_separator_is_synced(tmp_path):
    table = str(tmp_path / "table")
    with lasting(table):
        write_deltalake(table, pa.table({"text": ["two\u2028lines\x85or three"]}))
    assert DeltaTable(table).to_pyarrow_table().num_rows == 1
