"""A task that is told to stop, without Spark: what came back is stored, the task fails, and no process lingers."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from jobs.bridge import stopping
from jobs.bridge.partition import PartitionRun
from jobs.bridge.stopping import DeskLine, StopWatch, spark_socket
from jobs.errors import RunCancelled
from jobs.ledger.store import LedgerFolder
from tests.jobs.bridge.test_ledger_at_task import kept, with_ledger
from tests.jobs.bridge.test_partition import Function, batches, in_time, lookup, ours, plan


@pytest.fixture
def both_ends():
    """A socket as Spark has one with its worker: its end, and ours."""
    spark, worker = socket.socketpair()
    yield spark, worker
    for end in (spark, worker):
        end.close()


class Run:
    """What the watch tells: it keeps the reason to stop, and says when; and keeps the shares."""

    def __init__(self):
        self.happened = threading.Event()
        self.shares = []

    def stop(self, reason):
        self.reason = reason
        self.happened.set()

    def widen(self, shares):
        self.shares.append(shares)
        return 100 + len(self.shares)

    def go_alone(self):
        self.shares.append("alone")

    def now_us(self):
        return 999


@pytest.fixture
def run():
    return Run()


def test_a_stopped_task_stores_what_came_back_fails_and_leaves_no_thread(tmp_path, wait_for):
    function = Function(seconds=lambda key: 0.0 if key < 100 else 1000.0)
    folder = LedgerFolder(str(tmp_path / "ledger"), "first", "f" * 16)
    planned = with_ledger(plan(lookup(function)), folder, flush_rows=10**6, flush_seconds=3600.0)
    run = PartitionRun(planned, 0, 0)
    rows = run.run(iter(batches(400)))
    taking = threading.Thread(target=lambda: wait_for(function.stands_after(100)) or run.stop("Spark hung up"))
    taking.start()
    with pytest.raises(RunCancelled, match="Spark hung up; rows under way are not written"):
        in_time(lambda: list(rows))
    taking.join()
    assert len(kept(folder)) == 100
    assert (function.cancelled, function.running, function.closed) == (4, 0, 1)
    wait_for(lambda: not ours())


def test_a_run_that_is_stopped_before_it_begins_calls_nothing():
    function = Function()
    run = PartitionRun(plan(lookup(function)), 0, 0)
    run.stop("Spark wants this stage no more")
    with pytest.raises(RunCancelled):
        in_time(lambda: list(run.run(iter(batches(10)))))
    assert function.calls == 0


def test_a_hang_up_stops_the_task_and_a_close_in_time_lets_the_process_live(both_ends, run, monkeypatch):
    monkeypatch.setattr(stopping, "GRACE", 60.0)  # what comes too late on a busy machine would end the tests
    spark, worker = both_ends
    watch = StopWatch(worker.fileno(), run)
    spark.close()
    assert run.happened.wait(30)
    assert run.reason == "Spark hung up"
    watch.close()
    assert not ours()


def test_bytes_from_spark_are_no_hang_up_and_a_closed_watch_says_nothing(both_ends, run):
    spark, worker = both_ends
    watch = StopWatch(worker.fileno(), run)
    spark.sendall(b"rows")
    assert not run.happened.wait(0.2)
    watch.close()
    spark.close()
    assert not run.happened.wait(0.1)


def test_the_desk_says_stop_and_its_silence_or_end_says_nothing(run):
    for said, stops in ((b"", False), (b"stop\n", True)):
        desk, connection = socket.socketpair()
        watch = StopWatch(None, run)
        watch.listen_to(DeskLine(connection))
        desk.sendall(said)
        desk.close()
        assert run.happened.wait(30 if stops else 0.2) is stops
        watch.close()


def test_a_share_is_taken_and_answered_with_the_moment_however_the_lines_come(run):
    desk, connection = socket.socketpair()
    watch = StopWatch(None, run)
    watch.listen_to(DeskLine(connection))
    desk.settimeout(30)
    for piece in (b"share 5 2", b"\nshare 6 3\nsha", b"re 7 4\n"):
        desk.sendall(piece)
    answers = desk.makefile()
    assert [json.loads(answers.readline()) for _ in range(3)] == [{"since": at} for at in (101, 102, 103)]
    assert run.shares == [[5, 2], [6, 3], [7, 4]]
    watch.say_ended()
    assert json.loads(answers.readline()) == {"ended": 999}
    watch.close()
    assert not answers.readline()
    assert not run.happened.is_set()
    answers.close()
    desk.close()


LINGERS = """
import socket, sys, time, types
sys.path.insert(0, {root!r})
from jobs.bridge.stopping import StopWatch
spark, worker = socket.socketpair()
StopWatch(worker.fileno(), types.SimpleNamespace(stop=lambda reason: print(reason, flush=True)))
spark.close()
time.sleep(600)
"""


def test_a_worker_that_clings_to_life_after_a_hang_up_is_ended():
    root = str(Path(__file__).parents[3])
    ended = subprocess.run(
        [sys.executable, "-c", LINGERS.format(root=root)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "Spark hung up\n")


def test_the_socket_is_the_one_that_sparks_main_reads(both_ends):
    assert spark_socket() is None
    spark = types.ModuleType("pyspark.worker")
    spark.found = lambda: spark_socket()  # noqa: PLW0108  # called from below main, as the generator is
    exec("def main(infile, outfile):\n    return found()", vars(spark))
    _, worker = both_ends
    assert spark.main(worker.makefile("rb"), None) == worker.fileno()
    with contextlib.closing(os.fdopen(os.open(__file__, os.O_RDONLY), "rb")) as no_socket:
        assert spark.main(no_socket, None) is None
    assert stopping.GRACE <= 1.0
