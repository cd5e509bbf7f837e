"""A process that holds a day is killed, paused for 90 s, and has a clock that is 60 s off: one
publishes, each time.
"""

import contextlib
import datetime as dt
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.errors import DayTaken, TidegateError
from jobs.storage import object_lock
from jobs.tables.leases import day_leases as leases
from jobs.tables.leases.day_leases import leased
from jobs.tables.publishing import publish
from tests.jobs.tables import test_publishing as days
from tests.support.places import everywhere, place_of

DAY = days.FIRST
ROOT = Path(__file__).parents[3]
# s after the kill, as docs/deploying.md has it
TAKEN_OVER = object_lock.EXPIRES + object_lock.LOOK_EVERY
SLOW = 5.0  # s that a busy machine may add
PAUSE = 90.0

pytestmark = [pytest.mark.proof, pytest.mark.process]


def hold(table, folder, off):
    """Take the day, wait to be told, publish. off: s by which the clock of this process is ahead of
    the others.
    """
    os.chdir(folder)
    days.TABLE = table
    leases.datetime = clock(off)
    usual = time.time
    time.time = lambda: usual() + off
    with leased(table, DAY, "held", wait=0) as lease:
        record = days.run("held", DAY, [1, 2])
        Path("holds").touch()
        while not Path("go").exists():
            time.sleep(0.02)
        try:
            publish(record, lease)
            Path("end").write_text("published")
        except TidegateError as error:
            Path("end").write_text(str(error))


def clock(off):
    class Shifted(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + dt.timedelta(seconds=off)

    return Shifted


@pytest.fixture
def table(tmp_path, request, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    found = f"{place_of(request, str(tmp_path))}/flights"
    monkeypatch.setattr(days, "TABLE", found)
    return found


@pytest.fixture
def holder(table, tmp_path, wait_for):
    """Starts a process that holds the day."""
    processes = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as ended:

        def start(off=0.0):
            process = processes.Process(target=hold, args=(table, str(tmp_path), off))
            process.start()
            ended.callback(process.kill)
            wait_for(lambda: Path("holds").exists(), seconds=90)
            return process

        yield start


def publish_next(table, wait):
    with leased(table, DAY, "next", wait=wait) as lease:
        assert lease.before == "held"
        publish(days.run("next", DAY, [3]), lease)


def publishers():
    """The runs that published the day, as the table's log has them."""
    return [
        commit["tidegate.run_id"]
        for commit in DeltaTable(days.TABLE).history()
        if "tidegate.run_id" in commit
    ]


@everywhere("table")
@pytest.mark.parametrize("off", [0.0, 60.0, -60.0])
def test_a_killed_holder_is_replaced_within_the_stated_time_whatever_its_clock(table, holder, off):
    process = holder(off)
    with (
        pytest.raises(DayTaken, match="is being run by run held"),
        leased(table, DAY, "early", wait=1),
    ):
        pass
    assert leases.at_work(table) == {"held": DAY}
    process.kill()
    process.join()
    began = time.monotonic()
    publish_next(table, wait=60)
    assert time.monotonic() - began <= TAKEN_OVER + SLOW
    assert publishers() == ["next"]


@everywhere("table")
def test_a_paused_holder_that_goes_on_does_not_publish_beside_its_successor(
    table, holder, wait_for
):
    """On a store another takes the day meanwhile; in a folder the day stays the holder's."""
    process = holder()
    os.kill(process.pid, signal.SIGSTOP)
    began = time.monotonic()
    is_stored = "://" in table
    if is_stored:
        publish_next(table, wait=60)
        assert time.monotonic() - began <= TAKEN_OVER + SLOW
    else:
        with (
            pytest.raises(DayTaken, match="is being run by run held"),
            leased(table, DAY, "next", wait=25),
        ):
            pass
    time.sleep(max(0.0, began + PAUSE - time.monotonic()))
    Path("go").touch()
    os.kill(process.pid, signal.SIGCONT)
    wait_for(lambda: Path("end").exists() and Path("end").read_text(), seconds=60)
    process.join(60)
    end = Path("end").read_text()
    assert end == (
        f"run next holds the lease of {DAY} now; this run, held, lost it."
        if is_stored
        else "published"
    )
    assert publishers() == (["next"] if is_stored else ["held"])


@everywhere("table")
@pytest.mark.parametrize("off", [60.0, -60.0])
def test_a_holder_whose_clock_is_off_keeps_the_day_while_it_works_and_publishes_it(
    table, holder, off, wait_for
):
    process = holder(off)
    with (
        pytest.raises(DayTaken, match="is being run by run held"),
        leased(table, DAY, "next", wait=30),
    ):
        pass  # longer than the lease of a dead holder
    assert leases.at_work(table) == {"held": DAY}
    Path("go").touch()
    wait_for(lambda: Path("end").exists() and Path("end").read_text(), seconds=60)
    process.join(60)
    assert publishers() == ["held"]
