"""A copy of the log of a table on a store equals that log, whichever program commits to it."""

import errno
import multiprocessing
import os
import random
import signal
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from jobs.errors import TidegateError
from jobs.storage import objects, work_folders
from jobs.tables import audit
from jobs.tables.delta import by_run
from jobs.tables.delta.copied_log import CopiedTable, copied, pushed
from jobs.tables.delta.copy_folders import logs_folder
from jobs.tables.delta.delta_log import log_at
from jobs.tables.old_files import vacuum
from jobs.tables.publishing import publish
from tests.jobs.tables import test_publishing as days
from tests.support.killed_processes import behind_a_proxy

pytestmark = pytest.mark.process

DAYS = ["2013-01-10", "2013-01-11", "2013-01-12"]
ROOT = Path(__file__).parents[4]
EVERY_TWO = {"delta.checkpointInterval": "2"}


@pytest.fixture
def place(s3, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return f"{s3.bucket}/flights"


def rows(day, *numbers):
    return pa.table({"flight": pa.array(numbers, pa.int64()), "date": [day] * len(numbers)})


def make(place, **configuration):
    write_deltalake(
        place, rows(DAYS[0], 1), partition_by=["date"], configuration=configuration or None
    )


def append(table, day, *numbers, **properties):
    write_deltalake(
        table, rows(day, *numbers), mode="append", commit_properties=CommitProperties(**properties)
    )


def numbers_at(place):
    return sorted(DeltaTable(place).to_pyarrow_table()["flight"].to_pylist())


def files_of(table):
    return sorted(pa.table(table.get_add_actions(flatten=True))["path"].to_pylist())


def asked(s3, work):
    before = len(s3.requests())
    work()
    return [method for method, _ in s3.requests()[before:]]


def test_a_log_costs_two_requests_and_one_for_each_file_since_its_checkpoint(place, s3):
    make(place, **EVERY_TWO)
    for number in range(4):
        append(place, DAYS[1], number)
    assert asked(s3, lambda: copied(place)) == ["GET"] * (
        2 + len(["checkpoint of 3", "entry 3", "entry 4"])
    )
    append(place, DAYS[1], 9)
    assert asked(s3, lambda: copied(place)) == ["GET"] * (2 + len(["checkpoint of 5", "entry 5"]))


def test_a_commit_in_the_copy_brings_its_files_and_its_entry_to_the_store_and_is_known_here(
    place, s3
):
    make(place)
    table = copied(place)

    def commit():
        with pushed(table):
            append(table, DAYS[1], 2, 3)

    assert asked(s3, commit) == ["PUT", "PUT"]
    assert numbers_at(place) == [1, 2, 3]
    assert copied(place).version() == 1


def test_a_commit_that_another_program_was_before_leaves_the_table_as_it_was_and_can_be_made_again(
    place,
):
    make(place)
    table = copied(place)
    append(place, DAYS[1], 2, app_transactions=[Transaction("theirs", 7)])
    with (
        pytest.raises(
            CommitFailedError,
            match=(
                r"version 1 of s3://.* is another "
                r"program's"
            ),
        ),
        pushed(table),
    ):
        append(table, DAYS[1], 3)
    assert (table.version(), table.transaction_version("theirs"), len(files_of(table))) == (
        0,
        None,
        1,
    )
    assert numbers_at(place) == [1, 2]
    table.update_incremental()
    assert (table.version(), table.transaction_version("theirs"), len(files_of(table))) == (1, 7, 2)
    with pushed(table):
        append(table, DAYS[1], 3)
    assert numbers_at(place) == [1, 2, 3]


def append_once(place):
    table = copied(place)
    with pushed(table):
        append(table, DAYS[1], 2)
    assert table.version() == 1


@pytest.mark.proof
@pytest.mark.parametrize("cuts", [False, True])
def test_a_commit_that_the_store_took_is_made_once_though_its_answer_was_lost(
    place, s3, monkeypatch, cuts
):
    make(place)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with behind_a_proxy(s3, preload=__name__) as run:
        assert run(append_once, place, at=5, cuts=cuts)  # three to open the table, one for the file
    assert numbers_at(place) == [1, 2]


@pytest.mark.parametrize("versions", [1, 2, 6])
def test_a_table_that_was_deleted_and_made_anew_at_the_place_is_not_taken_for_the_old_one(
    place, versions
):
    for name, commits in (("old", 4), ("new", versions - 1)):
        objects.delete(place, [one.name for one in objects.listed(place)])
        assert copied(place) is None
        make(place, **EVERY_TWO)
        for _ in range(commits):
            append(place, DAYS[1], 2, app_transactions=[Transaction(name, 1)])
        table = copied(place)
        assert table.version() == commits
        assert files_of(table) == files_of(DeltaTable(place))
        assert str(table.metadata().id) == str(DeltaTable(place).metadata().id)
    assert table.transaction_version("old") is None


def append_and_end(place):
    table = copied(place)
    append(table, DAYS[1], 2)  # in the copy
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    "removed_by", [copied, lambda place: vacuum(place, older_than=timedelta(0))]
)
def test_rows_that_a_killed_process_had_in_its_copy_go_with_the_next_opening_and_with_vacuum(
    place, removed_by
):
    make(place)
    living = copied(place)
    killed = multiprocessing.get_context("spawn").Process(target=append_and_end, args=(place,))
    killed.start()
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    assert len([*logs_folder(place).glob("copy-*/date=*/*.parquet")]) == 1
    removed_by(place)
    assert [*logs_folder(place).resolve().glob("copy-*")] == [living.folder]


def test_a_full_disk_is_named_with_the_cure_and_the_table_is_as_before(place, monkeypatch):
    make(place)
    table = copied(place)

    def fails(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with (
        pytest.raises(
            TidegateError,
            match=(
                r"the disk of .*/log/copy-\w+ is full.* set "
                r"TIDEGATE_WORK to a folder"
            ),
        ),
        pushed(table),
    ):
        fails()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", fails)
        with pytest.raises(
            TidegateError,
            match=(
                r"the disk of .*/log is full, where logs of tables "
                r"on a store are"
            ),
        ):
            log_at(place)
    assert numbers_at(place) == [1]


def test_a_commit_that_did_not_reach_the_store_is_not_in_the_copy_either(place, monkeypatch):
    make(place)
    table = copied(place)

    def fails(*_):
        raise OSError("the store is gone")

    with monkeypatch.context() as patched:
        patched.setattr(objects, "create", fails)
        with pytest.raises(OSError, match="the store is gone"), pushed(table):
            append(table, DAYS[1], 2)
    with pushed(table):
        append(table, DAYS[1], 3)
    assert numbers_at(place) == [1, 3]


def test_a_log_with_files_of_a_kind_that_is_not_known_is_opened_at_its_place(place):
    make(place)
    objects.write(f"{place}/_delta_log/{0:020}.checkpoint.0000000001.0000000002.parquet", b"a part")
    table = copied(place)
    assert not isinstance(table, CopiedTable)
    assert table.version() == 0
    with pushed(table):
        append(table, DAYS[1], 2)
    assert numbers_at(place) == [1, 2]


def test_a_log_without_an_entry_in_its_middle_is_named_and_not_read_as_a_shorter_one(place):
    make(place)
    for number in range(3):
        append(place, DAYS[1], number)
    objects.delete(f"{place}/_delta_log", [f"{1:020}.json"])
    with pytest.raises(
        TidegateError, match=f"table {place}: its log, {place}/_delta_log, cannot be read: "
    ):
        log_at(place)


def test_rows_of_a_run_are_there_once_though_another_program_commits_before_them_each_time(
    place, monkeypatch
):
    days.TABLE = place
    publish(days.run("a", DAYS[0], [1]))
    beside, usual, races = audit.table_of(place), by_run.write_deltalake, iter(range(3))

    def behind_another(*arguments, **options):
        if next(races, None) is not None:
            DeltaTable(beside).alter.set_table_properties(
                {"delta.logRetentionDuration": "interval 9 days"}
            )
        usual(*arguments, **options)

    monkeypatch.setattr(by_run, "write_deltalake", behind_another)
    publish(days.run("b", DAYS[1], [2, 3]))
    found = DeltaTable(beside).to_pyarrow_table().to_pylist()
    assert sorted((row["run_id"], row["flight"]) for row in found) == [("a", 1), ("b", 2), ("b", 3)]


def test_files_that_are_made_in_the_copy_are_found_at_the_store_whatever_their_partition_is_called(
    place,
):
    names = ["eu west/1", "50% é", "a=b?c#d", "x+y&z", "%41"]
    write_deltalake(place, rows(names[0], 0), partition_by=["date"])
    table = copied(place)
    for number, name in enumerate(names[1:], 1):
        with pushed(table):
            append(table, name, number)
    found = (
        QueryBuilder()
        .register("found", DeltaTable(place))
        .execute("select * from found")
        .read_all()
    )
    found = {row["date"]: row["flight"] for row in pa.table(found).to_pylist()}
    assert found == {name: number for number, name in enumerate(names)}


@pytest.mark.proof
# of old entries; then nobody holds a table open for so long
@pytest.mark.parametrize("cleaned", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_two_machines_and_another_program_commit_in_any_order_and_the_copy_shows_what_the_store_has(
    place, monkeypatch, seed, cleaned
):
    chosen = random.Random(seed)
    make(
        place, **EVERY_TWO, **({"delta.logRetentionDuration": "interval 0 days"} if cleaned else {})
    )
    expected = {1}
    tables = {}

    def on_machine(name):
        monkeypatch.setenv(work_folders.VARIABLE, name)
        if name not in tables or cleaned or chosen.random() < 0.3:
            tables[name] = copied(place)
        return tables[name]

    def commit(table, number):
        try:
            with pushed(table):
                append(table, chosen.choice(DAYS), number)
        except CommitFailedError:
            table.update_incremental()
            commit(table, number)

    for number in range(2, 20):
        step = chosen.choice(["here", "there", "theirs", "theirs deletes", "compacts", "cleans"])
        if step in ("here", "there"):
            commit(on_machine(step), number)
            expected.add(number)
        elif step == "theirs":
            append(place, chosen.choice(DAYS), number)
            expected.add(number)
        elif step == "theirs deletes":
            DeltaTable(place).delete(f"flight = {min(expected)}")
            expected.remove(min(expected))
        elif step == "compacts":
            DeltaTable(place).optimize.compact()
        else:
            DeltaTable(place).cleanup_metadata()
        if not expected:
            commit(on_machine("here"), number)
            expected.add(number)
        assert numbers_at(place) == sorted(expected)
        table, in_place = copied(place), DeltaTable(place)
        assert isinstance(table, CopiedTable)
        assert (table.version(), files_of(table)) == (in_place.version(), files_of(in_place))
