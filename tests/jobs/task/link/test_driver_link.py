"""The task's side of the driver link, without Spark: a task that must stop stores what came back,
and fails.
"""

import dataclasses
import json
import socket
import threading
import time

import pytest

from jobs.errors import BudgetExhausted, RowFailed, RunCancelled
from jobs.ledger.plan import CallCap
from jobs.ledger.store import LedgerFolder
from jobs.task.link import driver_link
from jobs.task.link.driver_link import DriverLink
from jobs.task.link.link_protocol import DEADLINES, HEARTBEAT, Deadlines, Lines
from jobs.task.link.progress import TaskProgress
from jobs.task.runner import PartitionRun
from tests.jobs.task.lookup.test_task_ledger import kept, with_ledger
from tests.jobs.task.test_runner import EARLIER, Function, batches, in_time, lookup, ours, plan


class Run:
    """What the link controls: it keeps the reason to stop, and the shares."""

    def __init__(self):
        self.happened = threading.Event()
        self.drains = threading.Event()
        self.calls_ended = False
        self.shares = []
        self.asked = 0

    def stop(self, reason):
        self.reason = reason
        self.happened.set()

    def fail(self, error):
        self.error = error
        self.happened.set()

    def end_calls(self):
        self.calls_ended = True

    def drain(self, reason):
        self.drained = reason
        self.drains.set()

    def take_limits(self, number, share, services):
        self.shares.append((number, share))

    def send_heartbeat(self):
        self.asked += 1

    def now_us(self):
        return 999


def connected(address, run, **place):
    """The link of a task that the driver has accepted."""
    link = DriverLink()
    assert link.connect(address, run, **place)
    return link


@pytest.fixture(autouse=True)
def earlier_threads():
    EARLIER.update(threading.enumerate())


@pytest.fixture
def run():
    return Run()


def test_a_stopped_task_stores_its_answers_fails_and_leaves_no_thread(tmp_path, wait_for):
    function = Function(seconds=lambda key: 0.0 if key < 100 else 1000.0)
    folder = LedgerFolder(str(tmp_path / "ledger"), "first", "f" * 16)
    planned = with_ledger(plan(lookup(function)), folder, flush_rows=10**6, flush_seconds=3600.0)
    run = PartitionRun(planned, 0, 0)
    rows = run.run(iter(batches(400)))
    taking = threading.Thread(
        target=lambda: wait_for(function.stands_after(100)) or run.stop("the driver is gone")
    )
    taking.start()
    with pytest.raises(RunCancelled, match="the driver is gone; rows under way are not written"):
        in_time(lambda: list(rows))
    taking.join()
    assert len(kept(folder)) == 100
    assert (function.cancelled, function.running, function.closed) == (4, 0, 1)
    wait_for(lambda: not ours())


@pytest.mark.parametrize("spoils", ["call", "input"])
def test_a_task_reports_its_failure_unless_its_input_failed(spoils):
    class Hears(DriverLink):
        def send_failure(self, error):
            message.append(str(error))

    def broken():
        yield from batches(10)
        raise EOFError("the executor has died")

    def no_such_town(key):
        raise KeyError(key)

    message = []
    function = Function(answer=no_such_town) if spoils == "call" else Function()
    run = PartitionRun(plan(lookup(function, on_error="fail")), 0, 0, driver=Hears())
    with pytest.raises((RowFailed, EOFError)) as failed:
        in_time(lambda: list(run.run(broken() if spoils == "input" else iter(batches(10)))))
    assert message == ([str(failed.value)] if spoils == "call" else [])


def test_a_task_at_the_cap_starts_no_call_and_keeps_answers_of_calls_in_flight(tmp_path):
    def told_in_the_first_call(_):
        run.end_calls()
        return 0.01

    function = Function(seconds=told_in_the_first_call)
    folder = LedgerFolder(str(tmp_path / "ledger"), "first", "f" * 16)
    cap = CallCap("max_calls 400", parts=(400.0,), weights=(1.0,))
    run = PartitionRun(
        dataclasses.replace(with_ledger(plan(lookup(function)), folder), cap=cap), 0, 0
    )
    with pytest.raises(BudgetExhausted, match="max_calls 400 is used up"):
        in_time(lambda: list(run.run(iter(batches(400)))))
    assert function.calls <= 4
    assert (len(kept(folder)), function.cancelled) == (function.calls, 0)


def test_a_run_stopped_before_its_start_makes_no_call():
    function = Function()
    run = PartitionRun(plan(lookup(function)), 0, 0)
    run.stop("Spark no longer wants this stage")
    with pytest.raises(RunCancelled):
        in_time(lambda: list(run.run(iter(batches(10)))))
    assert function.calls == 0


def test_a_draining_task_starts_no_call_keeps_its_answers_and_fails(tmp_path):
    def drains_in_the_first_call(_):
        run.drain("the driver has not answered for 20 s")
        return 0.2

    function = Function(seconds=drains_in_the_first_call)
    folder = LedgerFolder(str(tmp_path / "ledger"), "first", "f" * 16)
    sent = []
    run = PartitionRun(with_ledger(plan(lookup(function)), folder), 0, 0)
    run.driver.send_failure = sent.append
    with pytest.raises(
        RunCancelled, match="the driver has not answered for 20 s; rows under way are not written"
    ):
        in_time(lambda: list(run.run(iter(batches(400)))))
    assert function.calls <= 4
    assert (len(kept(folder)), function.cancelled) == (function.calls, 0)
    assert sent == []  # Spark's next attempt goes on from the ledger


class Clock:
    """Stands still until it is moved."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Driver:
    """The other end of a link: it says what the test says, and reads what the task says."""

    def __init__(self, deadlines=DEADLINES):
        self.socket, task = socket.socketpair()
        self.socket.settimeout(30)
        self.run = Run()
        self.clock = Clock()
        self.link = DriverLink(deadlines, clock=self.clock)
        self.link.begin(Lines(task), self.run, [{"kind": "go", "share": [4, 1]}])
        self._answers = self.socket.makefile()

    def says(self, *pieces):
        for piece in pieces:
            self.socket.sendall(piece)

    def hears(self):
        return json.loads(self._answers.readline())

    def lets_pass(self, seconds):
        """Move the task's clock, and wake its link by a message that changes nothing."""
        self.clock.now += seconds
        asked = self.run.asked
        self.says(b'{"kind": "ask"}\n')
        while self.run.asked == asked and not self.run.happened.is_set():
            time.sleep(0.001)

    def ends(self):
        self._answers.close()
        self.socket.close()


@pytest.fixture
def driver():
    made = Driver()
    yield made
    made.ends()
    made.link.close()
    assert not ours()


def test_a_task_sends_heartbeats_and_continues_while_the_driver_answers(driver):
    for _ in range(10):
        driver.lets_pass(5)
        message = driver.hears()
        assert message == {"kind": "alive", "at": driver.clock.now}
        driver.says(json.dumps(message).encode() + b"\n")
    driver.lets_pass(4.9)
    assert not driver.run.drains.is_set()
    assert not driver.run.happened.is_set()


def test_a_task_whose_driver_is_silent_drains_after_20_s_and_ends_its_calls_after_28(driver):
    driver.lets_pass(5)
    driver.says(json.dumps(driver.hears()).encode() + b"\n")
    # other messages than the answer do not count: they may have been on their way
    driver.lets_pass(19.9)
    assert not driver.run.drains.is_set()
    driver.lets_pass(0.1)
    assert driver.run.drains.wait(30)
    assert driver.run.drained == "the driver has not answered for 20 s"
    driver.lets_pass(7.9)
    assert not driver.run.happened.is_set()
    driver.lets_pass(0.1)
    assert driver.run.happened.wait(30)
    assert driver.run.reason == "the driver has not answered for 28 s"


def test_a_silent_driver_is_noticed_without_any_message():
    driver = Driver(Deadlines(say_every=0.02, start_none=0.1, end_calls=0.2))
    driver.link._clock = time.monotonic
    driver.link._heard_at = time.monotonic()
    assert driver.run.drains.wait(30)
    assert driver.run.happened.wait(30)
    # a thread that the machine lets wait may say it once in all this time
    assert driver.hears()["kind"] == "alive"
    driver.ends()
    driver.link.close()


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b'{"kind": "stop"}\n', "Spark no longer wants this stage"),
        (b"", "the connection to the driver ended"),
        (b'{"kind": "sto', "the connection to the driver ended"),
        (b'{"kind": "no word of a driver"}\n', "the connection to the driver ended"),
        (b"[" * 60_000 + b"\n", "the connection to the driver ended"),
    ],
)
def test_a_stop_a_lost_driver_or_a_malformed_message_stops_the_task(driver, message, reason):
    driver.says(message)
    driver.ends()
    assert driver.run.happened.wait(30)
    assert driver.run.reason == reason


def test_a_closed_link_stops_no_task(driver):
    closing = threading.Thread(target=driver.link.close)
    closing.start()
    assert driver.socket.recv(1) == b""
    driver.ends()
    closing.join(30)
    assert not driver.run.happened.is_set()


def test_a_link_that_begins_after_its_close_ends_at_once(run):
    there, task = socket.socketpair()
    link = DriverLink()
    link.close()
    link.begin(Lines(task), run, [{"kind": "go", "share": [4]}])
    there.settimeout(5)
    assert there.recv(1) == b""
    there.close()
    assert not ours()


def test_a_share_is_read_however_its_lines_are_split(driver, wait_for):
    driver.says(b'{"kind": "limits", "number": 1, "share": [5, 2]}', b'\n{"kind": "ask"}\n{"ki')
    driver.says(b'nd": "limits", "number": 2, "share": [7, 4]}\n')
    wait_for(lambda: len(driver.run.shares) == 3)
    assert driver.run.shares == [(0, [4, 1]), (1, [5, 2]), (2, [7, 4])]
    assert driver.run.asked == 1
    driver.link.send_end()
    assert driver.hears() == {"kind": "ended", "ended": 999}
    assert not driver.run.happened.is_set()


def test_a_driver_that_reads_late_gets_all_messages_and_blocks_no_loop(
    driver,
):
    started = time.monotonic()
    for _ in range(20_000):
        driver.link.send_progress(TaskProgress(0, 0))
    assert time.monotonic() - started < 20  # it would be for ever
    driver.link.send(HEARTBEAT, keeps=[1])
    closing = threading.Thread(target=driver.link.close)
    closing.start()
    heard = []
    while not heard or heard[-1]["kind"] != HEARTBEAT:
        heard.append(driver.hears())
    assert len(heard) < 20_000
    driver.ends()
    closing.join(30)


def test_a_hanging_driver_delays_the_end_of_a_task_only_for_seconds(driver, monkeypatch):
    monkeypatch.setattr(driver_link, "FLUSH_TIMEOUT", 0.05)
    driver.link.send_end()
    driver.link.close()
    assert not driver.run.happened.is_set()
