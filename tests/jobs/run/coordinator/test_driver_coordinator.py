"""The driver's coordinator alone: which tasks begin and stop, their shares of the calls in flight,
and connections that are no task's.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import random
import select
import signal
import socket
import struct
import threading
from types import SimpleNamespace

import pytest

from jobs.errors import BudgetExhausted, DeclarationError, RowFailed, RunStopped, TaskFailed
from jobs.limits.file_store import FileStore
from jobs.limits.lease_book import Claim, Limit
from jobs.limits.lease_keeper import LeaseKeeper
from jobs.limits.limits_plan import CALLS, ServiceLimits
from jobs.run.coordinator import driver_coordinator as coordinating
from jobs.run.coordinator import link_server
from jobs.run.coordinator.driver_coordinator import DriverCoordinator
from jobs.run.engines.engine import LocalEngine
from jobs.schema.records import ShareGiven
from jobs.task.link.driver_link import DriverLink
from jobs.task.link.link_protocol import DEADLINES, Lines
from jobs.task.link.progress import TaskProgress
from tests.jobs.task.link.test_driver_link import Run, connected

pytestmark = pytest.mark.process


class Clock:
    """Stands still until it is moved."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Stages:
    """Those that Spark works on; counts how often it was asked."""

    def __init__(self):
        self.active = {7}
        self.asked = 0

    def __call__(self, stage):
        self.asked += 1
        return stage in self.active


@pytest.fixture
def run():
    return Run()


@pytest.fixture
def stages():
    return Stages()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def driver(stages, clock):
    return DriverCoordinator("127.0.0.1", "127.0.0.1", stages, clock=clock)


@pytest.fixture
def looks(stages, clock, wait_for):
    """Lets the coordinator look so many times at what Spark works on."""

    def look(times=2):
        for _ in range(times):
            before = stages.asked
            clock.now += link_server.LOOK_EVERY
            wait_for(lambda before=before: stages.asked > before)

    return look


def test_the_tasks_of_a_stage_that_ended_are_stopped_and_others_are_not(
    driver, stages, looks, wait_for
):
    stages.active.add(8)
    address = driver.register()
    ends, stays, not_seen_yet = runs = [Run() for _ in range(3)]
    links = [
        connected(address, run, partition=n, stage=n)
        for n, run in zip((7, 8, 9), runs, strict=True)
    ]
    looks()
    stages.active.remove(7)
    looks(1)
    assert ends.happened.wait(30)
    assert ends.reason == "Spark no longer wants this stage"
    looks()
    assert not stays.happened.is_set()
    assert not not_seen_yet.happened.is_set()
    for link in links:
        link.close()


def test_a_job_that_is_over_stops_and_refuses_tasks_of_a_stage_never_seen(driver, looks, run):
    address, over = driver.register(), driver.register()
    with contextlib.closing(DriverLink()) as works, contextlib.closing(DriverLink()) as waits:
        works.connect(address, Run(), partition=0, stage=7)
        waits.connect(over, run, partition=1, stage=8)
        driver.release(over)
        looks()
        assert run.happened.wait(30)
        assert run.reason == "Spark no longer wants this stage"
    with pytest.raises(TaskFailed, match="the job of this task has ended"):
        connected(over, run, partition=1, stage=8)


@pytest.mark.parametrize("change", ["the store grants more", "another run pauses the service"])
def test_tasks_are_asked_for_a_report_when_the_lease_changes(driver, tmp_path, wait_for, change):
    now = 0.0
    store = FileStore(str(tmp_path / "limits.sqlite"), patience=5.0, clock=lambda: now)
    limits = ServiceLimits("geo", {CALLS: Limit(4)}, longest_call=5.0)
    keeper = LeaseKeeper(limits, "run", "run", store, lambda: now)
    keeper.heartbeat("task", {CALLS: Claim(Limit(4), 0, 4)})
    tasks, other = [Run(), Run()], Run()
    address, without_leases = driver.register(keepers={"geo": keeper}), driver.register()
    links = [connected(address, task, partition=0, stage=7) for task in tasks]
    links.append(connected(without_leases, other, partition=0, stage=7))

    async def beats():
        await keeper.beat()
        if change == "another run pauses the service":
            wait_for(lambda: all(task.asked == 1 for task in tasks))
            await store.step("geo", lambda book, now: book.close_gate(9.0, "429", now=now))
            await keeper.beat()
        await keeper.beat()  # nothing has changed
        await store.close()

    asyncio.run(beats())
    many = 1 if change == "the store grants more" else 2
    wait_for(lambda: all(task.asked == many for task in tasks))
    still_serves(driver.register())
    assert [task.asked for task in [*tasks, other]] == [many, many, 0]
    for link in links:
        link.close()


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (RowFailed("lookup w: a row ended as error"), RowFailed, "lookup w: a row ended as error"),
        (KeyError("no such town"), TaskFailed, "KeyError: 'no such town'"),
        (ValueError("x" * 10_000 + "\n"), TaskFailed, "ValueError: xxx"),
    ],
)
def test_the_error_of_a_failed_task_stops_the_other_tasks_with_the_same_message(
    driver, error, raised, message
):
    address = driver.register()
    other = connected(address, run := Run(), partition=1, stage=7)
    fails = connected(address, Run(), partition=0, stage=7)
    fails.send_failure(error)
    fails.close()
    assert run.happened.wait(30)
    assert type(run.error) is raised
    assert str(run.error).startswith(message)
    other.close()
    with pytest.raises(raised, match=message[:20]):
        connected(address, Run(), partition=0, stage=7)
    still_serves(driver.register())


def test_the_share_of_a_stopped_task_is_free_at_once(driver):
    limits = ServiceLimits("geo", {CALLS: Limit(4)}, longest_call=90.0)
    keeper = LeaseKeeper(limits, "run", "run", None, lambda: 0.0)
    address = driver.register(keepers={"geo": keeper})
    other = connected(address, run := Run(), partition=1, stage=7)
    other.send("heartbeat", number=1, at=0, services={"geo": uses(4)})
    fails = connected(address, Run(), partition=0, stage=7)
    fails.send_failure(RowFailed("lookup w: a row ended as error"))
    assert run.happened.wait(30)
    assert keeper.tasks.held(CALLS) == 4
    other.send("heartbeat", number=2, at=0, services={"geo": uses(0)})  # its calls are cut off
    fails.close()
    other.close()
    driver.end(address)
    assert keeper.tasks.held(CALLS) == 0


def uses(calls):
    return {"claims": {CALLS: [calls, calls]}, "probed": False}


AT_THE_CAP = BudgetExhausted("max_calls 4 is used up")


@pytest.mark.parametrize("last", ["is at the cap too", "has ended", "has died"])
@pytest.mark.parametrize("divided", [False, True])
def test_a_task_at_the_cap_has_the_others_end_their_calls_and_fails_after_them(
    driver, wait_for, last, divided
):
    address = driver.register(totals=(4,) if divided else (), tasks=2)
    first, other = runs = [Run(), Run()]
    links = [connected(address, run, partition=n, stage=7) for n, run in enumerate(runs)]
    links[0].send_failure(AT_THE_CAP)
    wait_for(lambda: other.calls_ended)
    assert not first.happened.is_set()
    if last == "is at the cap too":
        links[1].send_failure(AT_THE_CAP)
        links[1].wait_until_stopped()
        assert str(other.error) == "max_calls 4 is used up"
    elif last == "has ended":
        links[1].send_end()
    links[1].close()
    links[0].wait_until_stopped()
    assert type(first.error) is BudgetExhausted
    links[0].close()
    with pytest.raises(BudgetExhausted, match="max_calls 4 is used up"):
        connected(address, Run(), partition=0, stage=7)


@pytest.mark.parametrize("divided", [False, True])
def test_a_task_that_comes_while_others_end_their_calls_begins_none_and_fails_with_them(
    driver, wait_for, divided
):
    address = driver.register(totals=(4,) if divided else (), tasks=3)
    first, other, late = runs = [Run(), Run(), Run()]
    links = [connected(address, run, partition=n, stage=7) for n, run in enumerate(runs[:2])]
    links[0].send_failure(AT_THE_CAP)
    wait_for(lambda: other.calls_ended)
    links.append(connected(address, late, partition=2, stage=7))
    wait_for(lambda: late.calls_ended)
    links[1].send_failure(AT_THE_CAP)
    assert not first.happened.is_set()
    links[2].send_failure(AT_THE_CAP)
    for link in links:
        link.wait_until_stopped()
        link.close()
    assert {str(run.error) for run in runs} == {"max_calls 4 is used up"}


def test_the_next_attempt_of_a_task_that_died_at_the_cap_fails_at_the_cap(driver, run, wait_for):
    address = driver.register()
    links = [connected(address, Run(), partition=n, stage=7) for n in range(2)]
    links[0].send_failure(AT_THE_CAP)
    for link in links:
        link.close()
    again = connected(address, run, partition=1, stage=7)
    wait_for(lambda: run.calls_ended)
    again.send_failure(AT_THE_CAP)
    again.wait_until_stopped()
    again.close()
    assert str(run.error) == "max_calls 4 is used up"


def test_a_task_at_the_cap_does_not_wait_for_others_once_one_fails_otherwise(driver):
    address = driver.register()
    waits, fails = (connected(address, Run(), partition=n, stage=7) for n in range(2))
    waits.send_failure(AT_THE_CAP)
    fails.send_failure(RowFailed("lookup w: a row ended as error"))
    waits.wait_until_stopped()
    for link in (waits, fails):
        link.close()


def test_an_unreachable_driver_stops_no_task(driver, run, caplog):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = dataclasses.replace(driver.register(), port=nobody.getsockname()[1])
        assert not DriverLink().connect(address, run, partition=0, stage=1)
    assert "is not reached" in caplog.text
    assert not run.happened.is_set()


def test_progress_of_a_task_reaches_the_listener_of_its_job(driver, wait_for):
    heard = []
    address = driver.register(progress=driver.listen(heard.append))
    link = connected(address, Run(), partition=0, stage=7)
    link.send_progress(TaskProgress(0, 0, rows=5))
    wait_for(lambda: heard)
    assert heard[0]["rows"] == 5
    link.close()


def test_late_progress_of_an_ended_day_reaches_no_listener_of_the_next_day(driver, wait_for):
    before, after = [], []
    ended = driver.listen(before.append)
    address = driver.register(progress=ended)
    late = connected(address, Run(), partition=0, stage=7)
    driver.forget(ended)
    number = driver.listen(after.append)
    late.send_progress(TaskProgress(0, 0, rows=5))
    other = connected(driver.register(progress=number), Run(), partition=0, stage=7)
    other.send_progress(TaskProgress(0, 0, rows=6))
    wait_for(lambda: after)
    assert [message["rows"] for message in after] == [6]
    assert before == []
    late.close()
    other.close()


def test_the_tasks_of_a_job_that_is_over_are_stopped_and_none_begins(driver, clock, wait_for):
    address, run = driver.register(), Run()
    link = connected(address, run, partition=0, stage=7)
    driver.release(address)
    with pytest.raises(TaskFailed, match="the job of this task has ended"):
        connected(address, Run(), partition=1, stage=7)
    clock.now += link_server.LOOK_EVERY
    assert run.happened.wait(30)
    assert run.reason == "Spark no longer wants this stage"
    link.close()
    wait_for(lambda: not driver._jobs)


@pytest.mark.parametrize("failed", [False, True])
def test_the_end_of_a_job_waits_until_its_stopped_tasks_have_ended_their_calls(
    driver, clock, wait_for, failed
):
    address, run = driver.register(), Run()
    calls = connected(address, run, partition=0, stage=7)
    if failed:
        fails = connected(address, Run(), partition=1, stage=7)
        fails.send_failure(RowFailed("lookup w: a row ended as error"))
        fails.close()
    ending = threading.Thread(target=driver.end, args=[address])
    ending.start()
    wait_for(lambda: not driver._jobs)
    clock.now += link_server.LOOK_EVERY
    assert run.happened.wait(30)
    ending.join(0.2)
    assert ending.is_alive()
    calls.close()
    ending.join(2)
    assert not ending.is_alive()


def test_the_end_of_a_job_waits_for_a_task_whose_connection_broke(driver, wait_for):
    """It may be at work; one that died has ended its connection."""
    address = driver.register()
    for number, waits in ((0, False), (1, True)):
        ends = connection(address)
        ends.sendall(hello(address, partition=number))
        assert b"go" in ends.recv(1000)
        if waits:
            ends.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # resets
        ends.close()
        job = driver._jobs[address.job]
        wait_for(lambda job=job, lost=number + 1: len(job.lost) == lost)
        assert bool(job.broken) == waits
    times = iter([0.0, 1.0, 2.0, coordinating.LAST_CALLS])
    driver.end(address, clock=times.__next__)
    assert list(times) == []


def test_the_end_of_a_job_does_not_wait_for_ever_for_a_task_that_hangs(driver):
    address = driver.register()
    with contextlib.closing(connected(address, Run(), partition=0, stage=7)):
        driver.end(address, clock=iter([0.0, 1.0, coordinating.LAST_CALLS]).__next__)


# -- where it listens
# --------------------------------------------------------------------------------------------------
def test_the_driver_listens_on_the_first_free_of_the_named_ports(stages, run, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = taken.getsockname()[1]
        monkeypatch.setenv(link_server.LINK_PORT, f"{first}-{first + 20}")
        driver = DriverCoordinator("127.0.0.1", "127.0.0.1", stages, ports=link_server.link_ports())
        address = driver.register()
        assert first < address.port <= first + 20
        still_serves(address)
        with pytest.raises(
            RunStopped, match=f"no port of {first}-{first} .TIDEGATE_LINK_PORT. is free"
        ):
            DriverCoordinator("127.0.0.1", "127.0.0.1", stages, ports=[first])


@pytest.mark.parametrize(
    "text", ["x", "70000", "7109-7100", "-1", "7100-", "7100,7101", "http://host:7100"]
)
def test_a_malformed_port_is_refused(monkeypatch, text):
    monkeypatch.setenv(link_server.LINK_PORT, text)
    with pytest.raises(
        DeclarationError,
        match=(
            r"TIDEGATE_LINK_PORT is .*; it must be a port, such as "
            r"7100, or several"
        ),
    ):
        link_server.link_ports()


def test_without_a_named_port_any_free_port_is_used(monkeypatch):
    monkeypatch.delenv(link_server.LINK_PORT, raising=False)
    assert [*link_server.link_ports()] == [0]


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("bind_host", ["::1", "an address of nobody here"])
def test_tasks_reach_the_driver_by_ipv6(stages, bind_host):
    still_serves(DriverCoordinator("::1", bind_host, stages).register())


def test_the_local_engine_reaches_its_tasks_also_in_a_forked_process():
    assert LocalEngine("in the parent").coordinator.is_here
    if (child := os.fork()) == 0:
        signal.alarm(10)
        with contextlib.suppress(BaseException):
            still_serves(LocalEngine("in the child").coordinator.register())
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


# -- connections that are no task's
# ------------------------------------------------------------------------------------
def connection(address):
    found = socket.create_connection((address.host, address.port), 30)
    found.settimeout(30)
    return found


def closed(stranger):
    """Whether the coordinator has closed it, and has said nothing before."""
    with contextlib.suppress(ConnectionError):
        return stranger.recv(10) == b""
    return True


def hello(address, **changed):
    place = {"partition": 0, "stage": 7, "attempt": 0, "at": 99}
    message = {"kind": "hello", "job": address.job} | place | changed
    return address.secret.encode() + b"\n" + json.dumps(message).encode() + b"\n"


def still_serves(address):
    connected(address, Run(), partition=0, stage=7).close()


STRANGE = [
    b"GET / HTTP/1.1\r\nHost: driver.example.internal\r\nAccept: */*\r\nConnection: close\r\n\r\n",
    b"[" * 100_000 + b"\n",
    b"\n" * 100,
    b'{"kind": "progress"}\n' * 10,
    b"\xff" * 5000,
    b"0" * 64 + b"\n" + b'{"kind": "hello", "job": 0, "partition": 0, "stage": 7, "task": 0}\n',
]


@pytest.mark.parametrize("message", STRANGE, ids=lambda message: repr(message[:20]))
def test_a_stranger_without_the_secret_gets_no_answer_and_disturbs_no_task(driver, message):
    address = driver.register()
    with connection(address) as stranger:
        with contextlib.suppress(ConnectionError):
            stranger.sendall(message)
        assert closed(stranger)
    still_serves(address)


MISFITS = [
    b"[" * 60_000 + b"\n",
    b"[]\n",
    b"7\n",
    b"null\n",
    b"{}\n",
    b"no JSON\n",
    b"\xff\xfe\n",
    b'{"kind": "progress", "progress": 1}\n',
    b'{"kind": "progress", "progress": {"rows": 1}}\n',
    b'{"kind": "heartbeat", "number": "x", "services": {}}\n',
    b'{"kind": "heartbeat", "number": 1, "at": 1, "services": {"s": 1}}\n',
    b'{"kind": "hello", "job": 0}\n',
    b'{"kind": "ended", "ended": 1e999}\n',
    b'{"kind": "quit"}\n',
    b"x" * 70_000,
]


@pytest.mark.parametrize("message", MISFITS, ids=lambda message: repr(message[:30]))
def test_a_message_that_does_not_fit_ends_its_own_connection_only(driver, message):
    address = driver.register(progress=driver.listen(TaskProgress.from_message))
    other = connected(address, stays := Run(), partition=1, stage=7)
    with connection(address) as task:
        task.sendall(hello(address))
        assert json.loads(task.recv(1000))["kind"] == "go"
        with contextlib.suppress(ConnectionError):
            task.sendall(message)
        assert closed(task)
    still_serves(address)
    assert not stays.happened.is_set()
    other.close()


@pytest.mark.parametrize("message", [b"", b"0" * 10, "secret", "half a hello"])
def test_a_connection_without_a_hello_is_closed_after_a_while(driver, clock, message):
    address = driver.register()
    message = {"secret": address.secret.encode() + b"\n", "half a hello": hello(address)[:-5]}.get(
        message, message
    )
    with connection(address) as stranger:
        stranger.sendall(message)
        still_serves(address)
        stranger.settimeout(0.3)
        with pytest.raises(TimeoutError):
            stranger.recv(1)
        clock.now += link_server.HELLO_WITHIN
        stranger.settimeout(30)
        assert closed(stranger)


def test_many_silent_connections_keep_no_task_out_and_no_task_gives_way_to_them(driver):
    address = driver.register()
    task = connected(address, run := Run(), partition=1, stage=7)
    with contextlib.ExitStack() as connections:
        silent = [
            connections.enter_context(connection(address))
            for _ in range(link_server.MOST_UNACCEPTED + 20)
        ]
        still_serves(address)
        assert closed(silent[0])
        assert not select.select(silent[-1:], [], [], 0)[0]
    assert not run.happened.is_set()
    task.close()


def thrown(address, times, seed):
    """Random and crafted bytes, each on a connection of its own; some with a hello before them."""
    chance = random.Random(seed)
    for _ in range(times):
        crafted = chance.choice([*STRANGE, *MISFITS, chance.randbytes(chance.randrange(200))])
        known = hello(address, partition=chance.randrange(3)) if chance.random() < 0.2 else b""
        with contextlib.suppress(OSError), connection(address) as stranger:
            stranger.sendall(known + crafted)


@pytest.mark.parametrize("times", [200, pytest.param(10_000, marks=pytest.mark.proof)])
def test_tasks_are_served_while_strangers_send_random_bytes(driver, times):
    address = driver.register(totals=(9,), tasks=3)
    throwing = [
        threading.Thread(target=thrown, args=(address, times // 4, seed)) for seed in range(4)
    ]
    for thread in throwing:
        thread.start()
    while any(thread.is_alive() for thread in throwing):
        run = Run()
        link = connected(address, run, partition=0, stage=7)
        assert run.shares
        link.close()
    for thread in throwing:
        thread.join()
    assert not any(thread.is_alive() for thread in throwing)
    still_serves(address)


def test_the_secret_is_shown_by_no_address(driver):
    address = driver.register()
    assert len(address.secret) == 2 * coordinating.SECRET_BYTES
    assert address.secret not in repr(address)
    assert DriverCoordinator("127.0.0.1", "127.0.0.1", lambda _: True)._secret != address.secret


# -- shares
# --------------------------------------------------------------------------------------------------
class Task:
    """One that has sent hello, and then sends what a task sends."""

    def __init__(self, address, number):
        self.lines = Lines(connection(address))
        self.heartbeats = 0
        self.messages = []
        self.lines.socket.sendall(hello(address, partition=number))
        self.first = self.receives()["share"]

    def receives(self):
        if not self.messages:
            self.messages = self.lines.read()
        return self.messages.pop(0)

    def sends(self, kind, **facts):
        self.lines.socket.sendall(json.dumps({"kind": kind} | facts).encode() + b"\n")

    def report(self, keeps, wants, at):
        """The share that answers a heartbeat, after what was sent before it."""
        self.heartbeats += 1
        self.sends(
            "heartbeat", number=self.heartbeats, at=at, keeps=keeps, wants=wants, services={}
        )
        while (message := self.receives())["kind"] != "limits":
            assert message["kind"] == "ask"
        assert message["number"] == self.heartbeats
        return message["share"]

    def is_asked(self):
        return self.receives()["kind"] == "ask"

    def is_sent_nothing(self):
        return not select.select([self.lines.socket], [], [], 0.1)[0]

    def end(self, at):
        self.sends("ended", ended=at)
        self.lines.socket.close()


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_reading_task_gets_every_message_in_order(seed, clock, wait_for):
    draw, sizes, connections = random.Random(seed), [], []

    def fill(connection, message):
        """More than the system's buffers take, as of many changes of limits to a task that stands
        still.
        """
        if connection.sender is None:
            server.accept(connection, "task")
            connections.append(connection)
        more = draw.randrange(1, 5)
        while more and connection.is_open:
            sizes.append(draw.randrange(1, 40_000))
            server.send(connection, "limits", number=len(sizes), padding="x" * sizes[-1])
            more -= sum(sizes) > 6_000_000 or bool(getattr(connection, "unsent", b""))

    server = link_server.LinkServer(
        "127.0.0.1",
        "secret",
        on_message=fill,
        on_close=lambda _: None,
        on_look=lambda: None,
        on_wake=lambda: None,
        clock=clock,
    )
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), 30) as reader:
        lines, heard = Lines(reader), 0
        for turn in range(3):
            reader.sendall((b"secret\n" if turn == 0 else b"") + b'{"kind": "heartbeat"}\n')
            threading.Event().wait(0.2)
            while turn == 0 and not connections:
                threading.Event().wait(0.01)
            while heard < len(sizes):
                messages = lines.read()
                assert messages, f"the connection ended after {heard} of {len(sizes)} messages"
                for message in messages:
                    assert message["number"] == heard + 1
                    assert len(message["padding"]) == sizes[heard]
                    heard += 1
        assert connections[0].is_open
    wait_for(lambda: not connections[0].is_open)


@pytest.mark.proof
def test_a_task_that_never_reads_is_dropped_and_blocks_no_other_task(driver, task, wait_for):
    address = driver.register(totals=[8], tasks=2)
    deaf, other = task(address, 0), task(address, 1)
    line = b'{"kind": "heartbeat", "number": 1, "at": 100, "keeps": [4], "wants": [4], "services": {}}\n'
    with contextlib.suppress(OSError):
        deaf.lines.socket.settimeout(0.5)
        while True:
            deaf.lines.socket.sendall(line * 1000)
    wait_for(lambda: len(driver._jobs[address.job].tasks) == 1)
    assert other.report([4], [4], 200)


@pytest.fixture
def task(driver):
    """Makes tasks of one run, and lets them go at the end."""
    made = []

    def begun(address, number):
        made.append(Task(address, number))
        return made[-1]

    yield begun
    for connected_task in made:
        connected_task.lines.socket.close()


def test_the_share_of_an_ended_task_goes_to_working_tasks_with_its_time(driver, task):
    address = driver.register(totals=(10, 4), tasks=3)
    first, second, third = (task(address, number) for number in range(3))
    assert [started.first for started in (first, second, third)] == [[4, 2], [3, 1], [3, 1]]
    third.end(500)
    assert first.is_asked()
    assert second.is_asked()
    assert first.report([4, 2], [10, 4], at=101) == [5, 2]
    assert second.report([3, 1], [10, 4], at=102) == [5, 2]
    second.end(600)
    assert first.is_asked()
    assert first.report([5, 2], [10, 4], at=103) == [10, 4]
    first.end(700)
    assert driver.shares_given(address) == [
        ShareGiven(2, (0, 0), 500), ShareGiven(0, (5, 2), 101), ShareGiven(1, (5, 2), 102),
        ShareGiven(1, (0, 0), 600), ShareGiven(0, (10, 4), 103), ShareGiven(0, (0, 0), 700),
    ]  # fmt: skip


def test_a_share_that_a_task_no_longer_needs_goes_to_others_before_it_ends(driver, task):
    address = driver.register(totals=(10, 4), tasks=2)
    first, second = task(address, 0), task(address, 1)
    assert second.report([3, 1], [3, 1], at=500) == [3, 1]
    assert first.is_asked()
    assert first.report([5, 2], [10, 4], at=101) == [7, 3]
    assert second.report([1, 0], [1, 0], at=600) == [1, 0]
    assert first.is_asked()
    assert first.report([7, 3], [10, 4], at=102) == [9, 4]
    second.end(700)
    assert first.is_asked()
    first.end(800)
    assert driver.shares_given(address) == [
        ShareGiven(1, (3, 1), 500), ShareGiven(0, (7, 3), 101), ShareGiven(1, (1, 0), 600),
        ShareGiven(0, (9, 4), 102), ShareGiven(1, (0, 0), 700), ShareGiven(0, (0, 0), 800),
    ]  # fmt: skip


def test_the_share_of_a_dead_task_is_kept_for_its_next_attempt(driver, task):
    address = driver.register(totals=(4,), tasks=2)
    other, dies = task(address, 0), task(address, 1)
    dies.lines.socket.close()
    assert other.report([2], [4], at=1) == [2]
    assert task(address, 1).first == [2]
    assert other.is_sent_nothing()


def test_a_dead_task_without_a_next_attempt_loses_its_share_after_a_while(
    driver, task, clock, looks
):
    address = driver.register(totals=(4,), tasks=2)
    other, dies = task(address, 0), task(address, 1)
    dies.lines.socket.close()
    looks()
    assert other.is_sent_nothing()
    clock.now += DEADLINES.lost - 1
    assert other.report([2], [4], at=1) == [2]
    clock.now += 1
    assert other.is_asked()
    assert other.report([2], [4], at=1) == [4]


def test_a_task_silent_for_30_s_is_lost_and_other_tasks_get_its_calls(driver, task, clock, looks):
    address = driver.register(totals=(4,), tasks=2)
    other, silent = task(address, 0), task(address, 1)
    clock.now += DEADLINES.lost - 1
    assert other.report([2], [4], at=1) == [2]
    looks()
    clock.now += 1
    assert other.is_asked()
    assert other.report([2], [4], at=2) == [4]
    assert closed(silent.lines.socket)
    assert task(address, 1).first == [0]


def test_a_task_that_only_sends_heartbeats_keeps_its_calls(driver, task, clock, looks):
    address = driver.register(totals=(4,), tasks=2)
    other, quiet = task(address, 0), task(address, 1)
    for at in range(5):
        clock.now += 20
        quiet.sends("alive", at=at)
        assert quiet.receives()["at"] == at
        assert other.report([2], [4], at=at) == [2]
    looks()
    assert other.is_sent_nothing()
    quiet.end(9)


def test_the_lease_of_a_lost_task_is_given_back_once_its_calls_have_ended(
    stages, clock, looks, wait_for
):
    left = []
    driver = DriverCoordinator("127.0.0.1", "127.0.0.1", stages, clock=clock)
    address = driver.register(
        keepers={"credit": SimpleNamespace(leave=left.append, lost_since=None, listeners=set())}
    )
    dies, other = (connection(address) for _ in range(2))
    for number, task_connection in enumerate((dies, other)):
        task_connection.sendall(hello(address, partition=number))
        assert b"go" in task_connection.recv(1000)
    dies.close()
    looks()
    assert left == []
    clock.now += DEADLINES.lost - 1
    other.sendall(b'{"kind": "alive", "at": 1.0}\n')
    assert b"alive" in other.recv(1000)
    looks()
    wait_for(lambda: left == ["0-0-1"])
    other.close()


def test_the_lease_of_a_lost_task_is_given_back_also_after_its_job(stages, clock, looks, wait_for):
    left = []
    driver = DriverCoordinator("127.0.0.1", "127.0.0.1", stages, clock=clock)
    keeper = SimpleNamespace(
        leave=left.append, lost_since=None, listeners=set(), release=lambda: None
    )
    address = driver.register(keepers={"credit": keeper})
    dies = connection(address)
    dies.sendall(hello(address, partition=0))
    assert b"go" in dies.recv(1000)
    dies.close()
    wait_for(lambda: driver._jobs[address.job].lost)
    driver.release(address)
    later = driver.register()
    other = connection(later)  # of the run's next job: the driver looks while one is connected
    other.sendall(hello(later, partition=0))
    assert b"go" in other.recv(1000)
    for seconds in (DEADLINES.lost - 1, 1):  # this connection is never silent for so long
        clock.now += seconds
        other.sendall(b'{"kind": "alive", "at": 1.0}\n')
        assert b"alive" in other.recv(1000)
    looks()
    wait_for(lambda: left == ["0-0-1"])
    wait_for(lambda: not driver._released)
    other.close()


def test_an_ended_task_that_runs_again_gets_the_calls_that_others_leave(driver, task):
    address = driver.register(totals=(4,), tasks=2)
    other = task(address, 0)
    task(address, 1).end(500)
    assert other.is_asked()
    assert other.report([2], [4], at=1) == [4]
    again = task(address, 1)
    assert again.first == [0]
    other.end(600)
    assert again.is_asked()
    assert again.report([0], [4], at=2) == [4]
