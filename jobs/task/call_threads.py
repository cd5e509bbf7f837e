"""The threads in which functions wait for a blocking client (asyncio.to_thread), and the end of a task's loop."""

import asyncio
import contextlib
import inspect
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from jobs.task.user_code import user_code_at

T = TypeVar("T")
OURS = ("tidegate", "asyncio_core")  # begin the names of our tasks
ENDS_WITHIN = 5.0  # s after the last row, for functions and their threads


class CallThreads(ThreadPoolExecutor):
    """Knows for which lookup each of its threads works."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="tidegate-call")
        self._running: dict[Future[Any], str] = {}

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        code = user_code_at(inspect.currentframe())
        future = super().submit(fn, *args, **kwargs)
        self._running[future] = "a function" if code is None else f"lookup {code.lookup}: its function"
        future.add_done_callback(lambda ended: self._running.pop(ended, None))
        return future

    def unfinished(self, seconds: float) -> list[str]:
        """Who still has a thread after so many seconds."""
        _, left = wait([*self._running], seconds)
        return sorted({f"{self._running.get(future, 'a function')} in a thread (asyncio.to_thread)" for future in left})


def run_to_its_end(
    loop: asyncio.AbstractEventLoop,
    main: Coroutine[Any, Any, None],
    threads: CallThreads,
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Run `main` on the loop and close it, as asyncio.Runner does, but wait for what a function left running only
    ENDS_WITHIN s. Returns what has not ended then.
    """
    loop.set_default_executor(threads)
    unfinished: list[str] = []
    try:
        loop.run_until_complete(loop.create_task(main))
    finally:
        ends_by = clock() + ENDS_WITHIN
        unfinished += _cancelled(loop, asyncio.all_tasks(loop), ENDS_WITHIN)
        with contextlib.suppress(TimeoutError):
            loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), max(0.1, ends_by - clock())))
        unfinished += threads.unfinished(max(0.0, ends_by - clock()))
        loop.close()
    return unfinished


def _cancelled(loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[Any]], seconds: float) -> list[str]:
    """Cancel these tasks, and wait for those of functions. Returns what has not ended.

    A task of ours is still there only if its function is, which is known then.
    """
    for task in tasks:
        task.cancel()
    foreign = {task for task in tasks if not task.get_name().startswith(OURS)}
    if not foreign:
        return []
    done, left = loop.run_until_complete(asyncio.wait(foreign, timeout=seconds))
    for task in done:
        if not task.cancelled() and (error := task.exception()) is not None:
            loop.call_exception_handler({"message": "a task left running failed", "exception": error, "task": task})
    names = {getattr(task.get_coro(), "__qualname__", task.get_name()) for task in left}
    return [f"the task {name} that a function began" for name in sorted(names)]
