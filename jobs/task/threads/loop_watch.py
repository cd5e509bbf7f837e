"""Notices that a function blocks the event loop, and with it calls, answers and time limits."""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping

from jobs.errors import TaskFailed
from jobs.task.threads.call_threads import ENDS_WITHIN
from jobs.task.threads.user_code import UserCode, user_code_at

TICK = 0.25  # s
LOOK_EVERY = 0.5  # s
WARNS_AFTER = 2.0  # s for which the loop has been blocked
WARNS_AGAIN_AFTER = 60.0  # s, about the same place in the code
CURE = "await it, or run it in asyncio.to_thread"


class LoopWatch:
    """Watches the loop of a task from a separate thread.

    Args:
        limits: Each lookup's timeout; a call that blocks the loop for longer fails the task.
        give_up: Called with the error of such a call, or with None where only a `close` blocks.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        limits: Mapping[str, float | None],
        give_up: Callable[[Exception | None], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits, self._give_up, self._clock = limits, give_up, clock
        self._ended = threading.Event()
        self._ticked = clock()
        self._warned_at: dict[str, float] = {}

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to watch. Call it in the loop's thread."""
        self._tick(loop)
        watched = threading.get_ident()
        threading.Thread(
            target=self._watch, args=(watched,), name="tidegate-watch", daemon=True
        ).start()

    def end(self) -> None:
        self._ended.set()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ticked = self._clock()
        if not self._ended.is_set():
            loop.call_later(TICK, self._tick, loop)

    def _watch(self, watched: int) -> None:
        while not self._ended.wait(LOOK_EVERY):
            seconds = self._clock() - self._ticked
            if seconds < WARNS_AFTER:
                continue
            code = user_code_at(sys._current_frames().get(watched))  # noqa: SLF001  # the only way to another's stack
            if code is not None and not self._ended.is_set():
                self._warn(code, seconds)
                if self._is_stuck(code, seconds):
                    self._give_up(
                        None if code.step == "close" else TaskFailed(f"{_sentence(code, seconds)}.")
                    )
                    return

    def _warn(self, code: UserCode, seconds: float) -> None:
        now = self._clock()
        if now - self._warned_at.get(code.place, -WARNS_AGAIN_AFTER) >= WARNS_AGAIN_AFTER:
            self._warned_at[code.place] = now
            logging.getLogger("tidegate").warning("%s", _sentence(code, seconds))

    def _is_stuck(self, code: UserCode, seconds: float) -> bool:
        if code.step == "open":
            return False
        limit = 0.0 if code.step == "close" else self._limits.get(code.lookup)
        return limit is not None and seconds > limit + ENDS_WITHIN


def _sentence(code: UserCode, seconds: float) -> str:
    return (
        f"lookup {code.lookup}: its function has blocked the event loop for {seconds:.0f} s, at "
        f"{code.place}: no call, answer or time limit goes on meanwhile; {CURE}"
    )
