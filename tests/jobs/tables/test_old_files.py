"""Vacuum: what readers and running jobs need stays, whatever its age; the rest goes."""

import os
import re
import shutil
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake
from deltalake.transaction import AddAction

from jobs.errors import DeclarationError
from jobs.storage import durable, objects
from jobs.tables import old_files
from jobs.tables.leases.day_leases import leased
from jobs.tables.old_files import Removed, require_known, vacuum

WEEK = timedelta(days=7)
AT_ONCE = timedelta(0)


@pytest.fixture
def table(tmp_path):
    """A table of one day that was published twice; the first version's file stays for who
    reads it.
    """
    table = tmp_path / "table"
    for value in (1, 2):
        rows = pa.table({"value": [value], "date": ["2013-01-10"]})
        write_deltalake(table, rows, mode="overwrite", partition_by=["date"])
    return str(table)


def run_folder(table, run_id, *, age=timedelta(0)):
    folder = Path(table, "runs", run_id)
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"value": [9]}), folder / "part-0.parquet")
    then = time.time() - age.total_seconds()
    for path in (folder / "part-0.parquet", folder):
        os.utime(path, (then, then))
    return folder


@pytest.fixture
def runs_only(tmp_path):
    """A table without any day yet, whose files lie where runs write them."""
    DeltaTable.create(str(tmp_path), pa.schema([("value", pa.int64())]), mode="error")
    return str(tmp_path)


def publish(table, file):
    """The file in place of all that the table holds."""
    action = AddAction(
        str(file.relative_to(table)), file.stat().st_size, {}, 0, True, '{"numRecords": 1}'
    )
    opened = DeltaTable(table)
    opened.create_write_transaction(
        [action], mode="overwrite", schema=opened.schema(), partition_by=[]
    )


def values(table, version=None):
    return DeltaTable(table, version=version).to_pyarrow_table()["value"].to_pylist()


def test_old_versions_go_when_they_are_old_enough_and_the_newest_stays(table):
    assert vacuum(table, older_than=WEEK) == Removed(old=0, runs=0)
    assert values(table, version=0) == [1]
    assert vacuum(table, older_than=AT_ONCE) == Removed(old=1, runs=0)
    assert values(table) == [2]
    with pytest.raises(FileNotFoundError):
        values(table, version=0)
    assert vacuum(table, older_than=AT_ONCE) == Removed(old=0, runs=0)


def test_keeping_versions_longer_than_the_log_is_refused(runs_only):
    """A checkpoint forgets what was replaced; the version's files would look never published."""
    month = timedelta(days=30)
    require_known(runs_only, WEEK)
    require_known(f"{runs_only}/not made yet", month)
    with pytest.raises(DeclarationError) as refused:
        require_known(runs_only, month)
    assert str(refused.value) == (
        f"--keep-days is 30, and the log of {runs_only} knows the files of replaced versions for "
        "7 days only (delta.deletedFileRetentionDuration). Keep at most 7, or set that property of "
        "the table to 'interval 30 days'."
    )
    for interval in ("interval 30 days", "interval 31536000 seconds"):
        DeltaTable(runs_only).alter.set_table_properties(
            {"delta.deletedFileRetentionDuration": interval}
        )
        require_known(runs_only, month)


def test_a_retention_of_part_of_an_hour_is_rounded_up(table):
    entry = Path(table, "_delta_log", f"{1:020}.json")
    replaced = re.search(r'"deletionTimestamp":(\d+)', entry.read_text())[1]
    an_hour_ago = str(int((time.time() - 3_600 - 60) * 1_000))
    entry.write_text(entry.read_text().replace(replaced, an_hour_ago))
    assert vacuum(table, older_than=timedelta(minutes=90)).old == 0
    assert vacuum(table, older_than=timedelta(minutes=60)).old == 1


def test_old_unpublished_runs_are_removed_and_young_ones_stay(table):
    old, young = run_folder(table, "old", age=timedelta(days=8)), run_folder(table, "young")
    assert vacuum(table, older_than=WEEK) == Removed(old=0, runs=1)
    assert (old.exists(), young.exists()) == (False, True)


def test_the_folders_of_a_run_at_work_stay_however_old_they_are(table):
    folders = [
        run_folder(table, name, age=timedelta(days=30)) for name in ("working", "working-keys")
    ]
    with leased(table, "2013-01-11", "working", wait=0):
        assert vacuum(table, older_than=AT_ONCE).runs == 0
    assert all(folder.exists() for folder in folders)
    assert vacuum(table, older_than=AT_ONCE).runs == len(folders)


@pytest.mark.parametrize("looks", ["for who is at work", "at the table"])
@pytest.mark.parametrize("ends", ["before", "after"])
def test_a_run_that_publishes_during_a_vacuum_keeps_its_rows(runs_only, monkeypatch, looks, ends):
    file = run_folder(runs_only, "first") / "part-0.parquet"
    with ExitStack() as held:
        held.enter_context(leased(runs_only, "2013-01-10", "first", wait=0))
        held.callback(publish, runs_only, file)  # and then the lease goes

        def at_the_moment(look):
            def looking(*arguments):
                if ends == "before":
                    held.close()
                seen = look(*arguments)
                held.close()
                return seen

            return looking

        if looks == "at the table":
            monkeypatch.setattr(old_files, "table_at", at_the_moment(old_files.table_at))
        else:
            monkeypatch.setattr(old_files, "at_work", at_the_moment(old_files.at_work))
        assert vacuum(runs_only, older_than=AT_ONCE).runs == 0
    assert values(runs_only) == [9]


def test_a_recently_replaced_run_stays_readable_however_old_its_files_are(runs_only):
    table = runs_only
    for run_id in ("first", "second"):
        Path(table, "runs", run_id).mkdir(parents=True)
        Path(table, "runs", run_id, ".part-0.parquet.crc").write_bytes(b"x")  # as Spark leaves one
        publish(table, run_folder(table, run_id, age=timedelta(days=30)) / "part-0.parquet")
    stray = Path(table, "runs", "second", "part-1.parquet")  # of a task that Spark had replaced
    stray.write_bytes(b"not even whole")
    assert vacuum(table, older_than=WEEK) == Removed(old=0, runs=0)
    assert values(table, version=1) == [9]
    assert stray.exists()
    os.utime(stray, (0, 0))
    vacuum(table, older_than=WEEK)
    assert not stray.exists()
    assert values(table) == [9]
    assert vacuum(table, older_than=AT_ONCE) == Removed(old=1, runs=0)
    assert not Path(table, "runs", "first").exists()
    assert values(table) == [9]


def test_vacuum_removes_old_runs_of_a_table_that_was_never_published(tmp_path):
    folder = run_folder(tmp_path, "old", age=timedelta(days=8))
    assert vacuum(str(tmp_path), older_than=WEEK) == Removed(runs=1)
    assert not folder.exists()


def test_files_of_a_published_day_stay_if_reading_the_table_fails(runs_only, monkeypatch):
    file = run_folder(runs_only, "first", age=WEEK * 9) / "part-0.parquet"
    publish(runs_only, file)
    # as newer Pythons say of a file whose disk fails
    monkeypatch.setattr(Path, "is_file", lambda _path: False)
    assert vacuum(runs_only, older_than=AT_ONCE).runs == 0
    assert values(runs_only) == [9]


@pytest.mark.process
@pytest.mark.parametrize("goes", [True, False])
def test_old_log_entries_below_a_checkpoint_are_removed_unless_the_table_keeps_them(s3, goes):
    table, hooks = (
        f"{s3.bucket}/table",
        PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
    )
    log = {"delta.checkpointInterval": "3", "delta.logRetentionDuration": "interval 0 days"}
    log |= {} if goes else {"delta.enableExpiredLogCleanup": "false"}
    for value in range(4):
        rows = pa.table({"value": [value]})
        write_deltalake(
            table,
            rows,
            mode="append",
            configuration=log if not value else None,
            post_commithook_properties=hooks,
        )
    assert {f"{version:020}.json" for version in range(4)} <= names_in_log(table)
    vacuum(table, older_than=WEEK)
    assert (f"{0:020}.json" in names_in_log(table)) is not goes
    assert sorted(values(table)) == [0, 1, 2, 3]


def names_in_log(table):
    return {listed.name for listed in objects.listed(f"{table}/_delta_log")}


def test_two_vacuums_at_once_remove_a_run_without_an_error(runs_only, monkeypatch):
    folder = run_folder(runs_only, "dead", age=timedelta(days=8))
    at_work = old_files.at_work

    def after_the_other(table):
        shutil.rmtree(folder)
        return at_work(table)

    monkeypatch.setattr(old_files, "at_work", after_the_other)
    # each counts what it found
    assert vacuum(runs_only, older_than=WEEK) == Removed(old=0, runs=1)


def test_a_run_that_replaces_a_day_during_a_vacuum_does_not_stop_the_vacuum(table, monkeypatch):
    rows = pa.table({"value": [3], "date": ["2013-01-10"]})
    sync, replacing = old_files.sync_log, [rows]

    def after_a_run(table):
        if replacing:
            write_deltalake(table, replacing.pop(), mode="overwrite")
        sync(table)

    monkeypatch.setattr(old_files, "sync_log", after_a_run)
    assert vacuum(table, older_than=AT_ONCE).old == 2
    assert values(table) == [3]


def test_old_files_go_only_once_the_commits_that_replaced_them_are_on_the_disk(table, monkeypatch):
    synced, vacuums = set(), DeltaTable.vacuum
    monkeypatch.setattr(durable, "sync", lambda path: synced.add(path.name))

    def delete(*arguments, **options):
        assert {f"{version:020d}.json" for version in range(2)} <= synced
        return vacuums(*arguments, **options)

    monkeypatch.setattr(DeltaTable, "vacuum", delete)
    assert vacuum(table, older_than=AT_ONCE).old == 1
