"""Functions that do not end, or block the event loop: the run ends, and says whose function
it was.
"""

import asyncio
import contextlib
import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jobs.errors import TaskFailed
from jobs.task import chain, runner
from jobs.task.runner import PartitionRun
from jobs.task.threads import call_threads, loop_watch
from tests.jobs.task.test_runner import Function, answered, batches, in_time, lookup, plan

ENDS = 0.5  # s
LIMIT = 0.5  # s of a row
FOR_EVER = 100.0  # s
HANGS = 3  # the key whose call does not end


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    for module in (call_threads, loop_watch, chain, runner):
        monkeypatch.setattr(module, "ENDS_WITHIN", ENDS)
    monkeypatch.setattr(loop_watch, "WARNS_AFTER", 0.3)
    monkeypatch.setattr(loop_watch, "LOOK_EVERY", 0.1)


class Hanging(Function):
    """Answers, but for one key; `released` lets its threads go."""

    def __init__(self, way):
        super().__init__()
        self.way, self.released = way, threading.Event()

    async def async_invoke(self, value):
        if value["k"] == HANGS:
            await getattr(self, self.way)()
        return answered(value["k"])

    async def blocks_a_thread(self):
        await asyncio.to_thread(self.released.wait, FOR_EVER)

    async def blocks_a_thread_of_its_own_task(self):
        await asyncio.ensure_future(asyncio.to_thread(self.released.wait, FOR_EVER))

    async def waits(self):
        await asyncio.sleep(FOR_EVER)

    async def swallows_its_cancellation(self):
        while not self.released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    async def leaves_a_task(self):
        self.left = asyncio.ensure_future(self.swallows_its_cancellation())

    async def leaves_a_task_that_ends(self):
        self.left = asyncio.ensure_future(asyncio.sleep(FOR_EVER))


class HangsAsItCloses(Function):
    def __init__(self, *, blocks):
        super().__init__()
        self.blocks, self.released = blocks, threading.Event()

    async def close(self):
        if self.blocks:
            self.released.wait(FOR_EVER)
        else:
            await asyncio.sleep(FOR_EVER)


def ran(function, **fields):
    def work():
        run = PartitionRun(plan(lookup(function, timeout=LIMIT, **fields)), 0, 0)
        return [row for out in run.run(iter(batches(20))) for row in out.to_pylist()]

    return in_time(work)


def warned(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "tidegate"]


@pytest.mark.parametrize(
    ("way", "status", "named"),
    [
        (
            "blocks_a_thread",
            "timeout",
            ["lookup first: its function in a thread (asyncio.to_thread)"],
        ),
        (
            "blocks_a_thread_of_its_own_task",
            "timeout",
            ["a function in a thread (asyncio.to_thread)"],
        ),
        ("waits", "timeout", []),
        ("swallows_its_cancellation", "timeout", ["lookup first: its function"]),
        (
            "leaves_a_task",
            "ok",
            ["the task Hanging.swallows_its_cancellation that a function began"],
        ),
        ("leaves_a_task_that_ends", "ok", []),
    ],
)
def test_a_function_that_does_not_end_is_named_and_its_task_ends(way, status, named, caplog):
    function = Hanging(way)
    try:
        with caplog.at_level(logging.WARNING, "tidegate"):
            rows = ran(function)
    finally:
        function.released.set()
    assert {row["k"]: row["first_status"] for row in rows} == dict.fromkeys(range(20), "ok") | {
        HANGS: status
    }
    assert len(rows) == 20
    expected = [
        f"{name} did not end within {ENDS:.0f} s after the last row; the task ends without it. A "
        "blocking client needs a time limit of its own."
        for name in named
    ]
    assert warned(caplog) == expected


@pytest.mark.parametrize("blocks", [False, True])
def test_a_close_that_does_not_end_is_named_and_its_task_ends(blocks, caplog):
    function = HangsAsItCloses(blocks=blocks)
    with caplog.at_level(logging.WARNING, "tidegate"):
        rows = ran(function)
    function.released.set()
    assert [row["first_status"] for row in rows] == ["ok"] * 20
    assert any("did not end within" in message for message in warned(caplog))


class Blocking(Function):
    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.released = seconds, threading.Event()

    async def async_invoke(self, value):
        if value["k"] == HANGS:
            self.released.wait(self.seconds)  # as a synchronous client does
        return answered(value["k"])


def test_a_function_that_blocks_the_loop_for_ever_fails_its_task_and_is_named():
    function = Blocking(FOR_EVER)
    began = time.monotonic()
    with pytest.raises(
        TaskFailed, match=r"^lookup first: its function has blocked the event loop for \d+ s, at "
    ) as caught:
        ran(function)
    function.released.set()
    assert "threading.py" not in str(caught.value)
    assert "test_functions_that_do_not_end.py:" in str(caught.value)
    assert (
        "in Blocking.async_invoke: no call, answer or time limit goes on meanwhile; await it"
        in str(caught.value)
    )
    assert time.monotonic() - began < FOR_EVER


def test_a_function_that_blocks_the_loop_for_a_while_is_named_once_and_continues(caplog):
    with caplog.at_level(logging.WARNING, "tidegate"):
        rows = ran(Blocking(0.8))
    assert len(rows) == 20
    (message,) = warned(caplog)
    assert message.startswith("lookup first: its function has blocked the event loop for ")


NEVER_ENDS = """
import asyncio, time
from jobs.task.threads.call_threads import CallThreads, run_to_its_end

async def main():
    asyncio.ensure_future(asyncio.to_thread(time.sleep, 1000))
    await asyncio.sleep(0.1)

print(run_to_its_end(asyncio.new_event_loop(), main(), CallThreads()))
"""


@pytest.mark.process
def test_a_thread_that_never_ends_does_not_keep_its_process_from_ending():
    ended = subprocess.run(
        [sys.executable, "-c", NEVER_ENDS],
        cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert ended.stdout.strip() == "['a function in a thread (asyncio.to_thread)']"


def test_calls_in_threads_run_at_once_and_return_or_raise_as_usual():
    threads, together = call_threads.CallThreads(), threading.Barrier(4)

    def work(number):
        together.wait(10)
        if number % 2:
            raise ValueError(number)
        return number

    found = [threads.submit(work, number) for number in range(4)]
    assert [future.exception(10) is None for future in found] == [True, False] * 2
    assert [found[0].result(), found[2].result()] == [0, 2]
    begun = threading.active_count()
    assert [threads.submit(int, "7").result(10) for _ in range(20)] == [7] * 20
    assert threading.active_count() <= begun, "threads are used again"
    threads.shutdown()
