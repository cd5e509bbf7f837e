"""The threads of functions that block (asyncio.to_thread), and the end of a task's loop."""

import asyncio
import contextlib
import functools
import inspect
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import Any, TypeVar

from jobs.task.threads.user_code import user_code_at

T = TypeVar("T")
TASK_NAMES = ("tidegate", "asyncio_core")  # prefixes of the tasks that Tidegate starts
MOST_THREADS = min(32, (os.cpu_count() or 1) + 4)  # as asyncio has by default
ENDS_WITHIN = 5.0  # s after the last row, for functions and their threads


class CallThreads(ThreadPoolExecutor):
    """Runs blocking calls, and knows for which lookup each of its threads works.

    Its threads are daemons: at its end Python waits for the threads of a ThreadPoolExecutor, and a
    thread that never ends would make it wait for ever.
    """

    def __init__(self) -> None:
        super().__init__()
        self._running: dict[Future[Any], str] = {}
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads_begun = 0

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        code = user_code_at(inspect.currentframe())
        future: Future[T] = Future()
        self._running[future] = (
            "a function" if code is None else f"lookup {code.lookup}: its function"
        )
        future.add_done_callback(lambda ended: self._running.pop(ended, None))
        self._calls.put((future, functools.partial(fn, *args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._threads_begun < MOST_THREADS:
            self._threads_begun += 1
            threading.Thread(target=self._work, name="tidegate-call", daemon=True).start()
        return future

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, work = call
            if future.set_running_or_notify_cancel():
                try:
                    result = work()
                except BaseException as error:  # noqa: BLE001  # whoever waits for the call raises it
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del call, future, work  # what they hold may be large
            self._idle.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """End the threads after the calls so far, without waiting for them."""
        for _ in range(self._threads_begun):
            self._calls.put(None)

    def unfinished(self, seconds: float) -> list[str]:
        """Wait this many seconds; return whose calls still hold a thread."""
        _, left = wait([*self._running], seconds)
        return sorted(
            {
                f"{self._running.get(future, 'a function')} in a thread (asyncio.to_thread)"
                for future in left
            }
        )


def run_to_its_end(
    loop: asyncio.AbstractEventLoop,
    main: Coroutine[Any, Any, None],
    threads: CallThreads,
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Run `main` on the loop and close it, as asyncio.Runner does.

    Waits at most about ENDS_WITHIN s for what a function left running. Returns what has not ended
    then.
    """
    loop.set_default_executor(threads)
    unfinished: list[str] = []
    try:
        loop.run_until_complete(loop.create_task(main))
    finally:
        ends_by = clock() + ENDS_WITHIN
        unfinished += _cancelled(loop, asyncio.all_tasks(loop), ENDS_WITHIN)
        with contextlib.suppress(TimeoutError):
            loop.run_until_complete(
                asyncio.wait_for(loop.shutdown_asyncgens(), max(0.1, ends_by - clock()))
            )
        unfinished += threads.unfinished(max(0.0, ends_by - clock()))
        loop.close()
    return unfinished


def _cancelled(
    loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[Any]], seconds: float
) -> list[str]:
    """Cancel these tasks, and wait for tasks of functions. Returns what has not ended.

    A task of ours is still running only if its function is, which is known then.
    """
    for task in tasks:
        task.cancel()
    foreign = {task for task in tasks if not task.get_name().startswith(TASK_NAMES)}
    if not foreign:
        return []
    done, left = loop.run_until_complete(asyncio.wait(foreign, timeout=seconds))
    for task in done:
        if not task.cancelled() and (error := task.exception()) is not None:
            loop.call_exception_handler(
                {"message": "a task left running failed", "exception": error, "task": task}
            )
    names = {getattr(task.get_coro(), "__qualname__", task.get_name()) for task in left}
    return [f"the task {name} that a function began" for name in sorted(names)]
