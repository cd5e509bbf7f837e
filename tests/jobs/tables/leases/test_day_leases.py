"""A day belongs to one run at a time, and to nobody once the processes of that run are gone."""

import fcntl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from jobs.errors import DayTaken, DeclarationError, PublishConflict, TidegateError
from jobs.process.process_guard import command_under_guard
from jobs.storage import objects
from jobs.storage.urls import is_url
from jobs.tables.leases import day_leases as leases
from jobs.tables.leases.day_leases import leased
from tests.support.places import everywhere, place_of

DAY = "2013-01-10"
# A step as Dagster runs it: takes the lease, starts its command under a guard, and tells who is
# who.
STEP = """
import subprocess, sys, time
from jobs.process.process_guard import command_under_guard
from jobs.tables.leases.day_leases import leased
from tests.support.places import everywhere, place_of
with leased(sys.argv[1], "2013-01-10", "first", wait=0) as lease:
    guard = subprocess.Popen(command_under_guard(sys.argv[2:], grace=3), start_new_session=True, pass_fds=[lease.file])
    guard.wait()
"""
DEAF = (
    "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), "
    "flush=True)"
)


@pytest.fixture
def table(tmp_path, request):
    return f"{place_of(request, str(tmp_path))}/table"


@everywhere("table")
def test_a_second_run_of_a_day_learns_the_holder_and_other_days_are_free(table):
    with leased(table, DAY, "first", wait=0):
        holder = (
            rf"^{DAY} is being run by run first \(process \d+ on .+, since 20.+Z\); nothing "
            r"was started"
        )
        with pytest.raises(DayTaken, match=holder), leased(table, DAY, "second", wait=0):
            pass
        with leased(table, "2013-01-11", "second", wait=0):
            pass
    with leased(table, DAY, "second", wait=0) as lease:
        assert lease.before == "first"
        lease.confirm()


@everywhere("table")
def test_the_current_and_the_last_holder_of_a_day_are_known(table):
    with leased(table, DAY, "first", wait=0), leased(table, "2013-01-11", "second", wait=0):
        assert leases.at_work(table) == {"first": DAY, "second": "2013-01-11"}
    assert leases.at_work(table) == {}
    assert leases.last_runs(table) == {DAY: "first", "2013-01-11": "second"}


def test_asking_for_the_holder_of_a_day_blocks_no_run(table):
    """A look takes the lease for a moment; a run with no wait left must not take that for another
    run.
    """
    with leased(table, DAY, "before", wait=0):
        pass
    ended = threading.Event()

    def ask():
        while not ended.is_set():
            leases.at_work(table)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    try:
        for number in range(100):
            with leased(table, DAY, f"run-{number}", wait=0):
                pass
    finally:
        ended.set()
        for asker in askers:
            asker.join()


def test_a_missing_bucket_is_reported_in_one_sentence(s3):
    with pytest.raises(
        DeclarationError, match=r"-bucket/t cannot be written: NoSuchBucket.* Nothing was called"
    ):
        leased("s3://no-bucket/t", DAY, "first").__enter__()


def test_a_table_whose_folder_cannot_be_written_is_reported_in_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        DeclarationError,
        match=(
            r"file/table cannot be written: .* Nothing was "
            r"called\."
        ),
    ):
        leased(str(tmp_path / "file" / "table"), DAY, "first").__enter__()


@pytest.mark.process
def test_a_day_is_free_after_all_processes_of_its_killed_run_have_ended(table):
    stays = f"{DEAF}; time.sleep(600)"
    step = subprocess.Popen(
        [sys.executable, "-c", STEP, table, sys.executable, "-c", stays],
        stdout=subprocess.PIPE,
        text=True,
    )
    with step, step.stdout:
        # the command is at work, and ignores SIGTERM for its seconds of grace
        step.stdout.readline()
        step.kill()
        step.wait()
        with pytest.raises(DayTaken), leased(table, DAY, "second", wait=0):
            pass
        with leased(table, DAY, "second", wait=30):
            assert step.stdout.read() == ""  # nobody has the pipe any more: the command is gone


@pytest.mark.process
def test_the_guarded_command_itself_holds_the_day(table):
    """Also the guard may be killed."""
    with leased(table, DAY, "first", wait=0) as lease:
        command = [sys.executable, "-c", "import sys; print('there', flush=True); sys.stdin.read()"]
        guard = subprocess.Popen(
            command_under_guard(command, grace=5),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[lease.file],
            start_new_session=True,
        )  # fmt: skip
        guard.stdout.readline()
        holders = [pid for pid in children_of(guard.pid) if str(lease.path) in open_files(pid)]
    with pytest.raises(DayTaken), leased(table, DAY, "second", wait=0):
        pass
    guard.communicate()
    assert len(holders) == 1
    with leased(table, DAY, "second", wait=10):
        pass


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def open_files(pid: int) -> list[str]:
    return [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]


def test_a_run_that_lost_its_lease_may_not_publish(table):
    with leased(table, DAY, "zombie", wait=0) as zombie:
        # as a network file system does when it has not heard of us for long
        fcntl.flock(zombie.file, fcntl.LOCK_UN)
        with leased(table, DAY, "second", wait=0) as second:
            second.confirm()
            with pytest.raises(
                PublishConflict,
                match=r"run second holds the lease of .* now; this run, zombie, lost it",
            ):
                zombie.confirm()


def test_an_unreadable_lease_does_not_count_as_free(tmp_path):
    lease = Path(tmp_path, "_leases", "2013-01-10.json")
    lease.mkdir(parents=True)  # in the place of the file
    for look in (leases.at_work, leases.last_runs):
        with pytest.raises(
            TidegateError,
            match=(
                rf"^lease {lease} cannot be read: Is a directory. "
                r"Nothing was changed"
            ),
        ):
            look(str(tmp_path))


FOREIGN = [
    b"",
    b"{}",
    b"[]",
    b'{"holder": "backup"}',
    b'"x"',
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"run_id": {"a": [1]}}',
]


@everywhere("table", on_store=pytest.mark.proof)
@pytest.mark.parametrize("text", FOREIGN, ids=range(len(FOREIGN)))
def test_foreign_text_in_place_of_a_lease_is_not_shown_as_a_holder(table, text):
    with leased(table, DAY, "first", wait=0):
        if is_url(table):
            objects.write(f"{table}/_leases/{DAY}.json", text)
            objects.write(f"{table}/_leases/notes/more.json", b"{}")
        else:
            Path(table, "_leases", f"{DAY}.json").write_bytes(text)
        with pytest.raises(
            DayTaken, match=f"^{DAY} is being run by another run; nothing was started"
        ):
            leased(table, DAY, "second", wait=0).__enter__()
        assert set(leases.at_work(table).values()) >= {DAY}
        assert DAY in leases.last_runs(table)


def test_a_failed_listing_of_leases_does_not_count_as_no_lease(tmp_path):
    assert leases.at_work(str(tmp_path)) == {}
    folder = Path(tmp_path, "_leases")
    folder.touch()  # in the place of the folder
    for look in (leases.at_work, leases.last_runs):
        with pytest.raises(
            TidegateError,
            match=(
                rf"^lease {folder} cannot be read: Not a "
                r"directory"
            ),
        ):
            look(str(tmp_path))
