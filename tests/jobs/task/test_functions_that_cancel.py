"""Functions that cancel a task and wait for it, or cancel the tasks of others: no row is lost
without an error.
"""

import asyncio
import logging

import pytest

from jobs.errors import RowFailed, RunCancelled, TaskFailed, TidegateError
from jobs.task.runner import PartitionRun
from tests.jobs.task.test_runner import (
    Function,
    answered,
    batches,
    collected,
    in_time,
    lookup,
    plan,
)

BREAKS = 10  # the key whose call fails its row, in functions that break
AWAITS_CANCELLED = "something that the function waited for was cancelled"


class Beating(Function):
    """Has a background task, which `close` cancels and then awaits, as is easily written."""

    def __init__(self, *, breaks):
        super().__init__()
        self.breaks = breaks

    async def open(self, _context):
        self.beat = asyncio.create_task(asyncio.sleep(1000))

    async def async_invoke(self, value):
        if self.breaks and value["k"] == BREAKS:
            raise ValueError("a bug")
        return answered(value["k"])

    async def close(self):
        self.beat.cancel()
        await self.beat


def test_a_close_that_awaits_a_cancelled_task_does_not_hide_the_error_of_a_row(caplog):
    with caplog.at_level(logging.WARNING, "tidegate"), pytest.raises(RowFailed, match="a bug"):
        collected(plan(lookup(Beating(breaks=True), on_error="fail")), batches(20))
    assert f"lookup first: its function cannot be closed: {AWAITS_CANCELLED}" in caplog.messages


def test_a_close_that_cancels_its_task_does_not_hide_the_error_of_a_row():
    class CancelsItself(Beating):
        def close(self):
            asyncio.current_task().cancel()

    with pytest.raises(RowFailed, match="a bug"):
        collected(plan(lookup(CancelsItself(breaks=True), on_error="fail")), batches(20))


@pytest.mark.parametrize("error", [asyncio.CancelledError(), ValueError("x"), SystemExit(3)])
@pytest.mark.parametrize(("hook", "done"), [("open", "opened"), ("close", "closed")])
def test_an_open_or_close_that_fails_ends_the_run_by_its_lookups_name(hook, done, error):
    def fail(*_context):
        raise error

    function = Function()
    setattr(function, hook, fail)
    said = AWAITS_CANCELLED if isinstance(error, asyncio.CancelledError) else type(error).__name__
    with pytest.raises(
        TidegateError, match=f"^lookup first: its function cannot be {done}: {said}"
    ):
        collected(plan(lookup(function)), batches(20))


def test_a_function_that_cancels_all_tasks_fails_its_task():
    class CancelsAll(Function):
        async def async_invoke(self, value):
            if value["k"] == BREAKS:
                for task in asyncio.all_tasks():
                    task.cancel()
            await asyncio.sleep(0)
            return answered(value["k"])

    with pytest.raises(TaskFailed, match="cancelled from within"):
        collected(plan(lookup(CancelsAll())), batches(20))


def test_a_run_that_is_stopped_while_it_closes_lets_close_end():
    class Closing(Beating):
        async def close(self):
            self.beat.cancel()
            self.run.stop("stopped")
            await asyncio.sleep(0.05)
            self.closed += 1

    function = Closing(breaks=True)
    function.run = PartitionRun(plan(lookup(function, on_error="fail")), 0, 0)
    with pytest.raises(RunCancelled):
        in_time(lambda: list(function.run.run(iter(batches(20)))))
    assert function.closed == 1
