"""An event loop with a virtual clock: waits take no time, and each run has the same order."""

import asyncio
import heapq
import random
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

_TURNS_WITHOUT_TIME = 1_000_000


class StuckError(RuntimeError):
    """The program is deadlocked, or it runs without ever waiting."""


def run_virtual(
    main: Callable[[], Coroutine[Any, Any, T]] | Coroutine[Any, Any, T], *, seed: int = 0
) -> T:
    """Run an async program like asyncio.run, in virtual time, and return its result.

    Time stands still while code runs and jumps to the next timer when all tasks wait; `loop.time()`
    starts at 0. Threads and sockets raise RuntimeError, as they use real time.

    Args:
        main: A coroutine function without arguments, or a coroutine.
        seed: Sets the order of timers that are due at the same instant, which asyncio leaves open;
            everything else keeps asyncio's order. The same seed repeats the same run.

    Returns:
        The program's result.

    Raises:
        StuckError: All tasks wait and no timer is set, or the program runs for a million turns of
            the loop without letting time pass. The error names where each task waits.
    """
    coroutine = main if asyncio.iscoroutine(main) else main()
    with asyncio.Runner(loop_factory=lambda: _VirtualTimeLoop(seed)) as runner:
        return runner.run(coroutine)


class _Clock(selectors.DefaultSelector):
    """The loop's selector: it advances the clock instead of sleeping."""

    now = 0.0
    turns = 0
    loop: "_VirtualTimeLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise StuckError("no task can go on and no timer is set\n" + _describe_tasks(self.loop))
        if timeout > 0:
            self.now += timeout
            self.turns = 0
        else:
            self.turns += 1
            if self.turns > _TURNS_WITHOUT_TIME:
                self.turns = 0  # the tasks are cancelled now and may need some turns to clean up
                raise StuckError(
                    "the program runs without ever waiting for time to "
                    "pass\n" + _describe_tasks(self.loop)
                )
        return []


class _Timer(asyncio.TimerHandle):
    """A timer with a random order among timers of the same instant."""

    __slots__ = ("_chance",)

    def __init__(self, chance: float, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._chance = chance

    def __lt__(self, other: asyncio.TimerHandle) -> bool:
        if isinstance(other, _Timer) and self.when() == other.when():
            return self._chance < other._chance
        return self.when() < other.when()


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    _scheduled: list[asyncio.TimerHandle]  # the base class's heap of timers

    def __init__(self, seed: int) -> None:
        self._clock = _Clock()
        self._chance = random.Random(seed)
        super().__init__(self._clock)
        self._clock.loop = self

    def time(self) -> float:
        return self._clock.now

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Timer(self._chance.random(), when, callback, args, self, context)
        if when < float("inf"):  # else the clock would advance for ever
            heapq.heappush(self._scheduled, timer)
            timer._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001 - as the base class does
        return timer

    def run_in_executor(self, *_: object) -> NoReturn:
        raise RuntimeError(
            "a thread keeps real time: in run_virtual() use an async stand-in instead"
        )

    def _ensure_fd_no_transport(self, fd: object) -> NoReturn:
        raise RuntimeError(
            f"a socket keeps real time, got {fd!r}: in run_virtual() use an async stand-in instead"
        )


def _describe_tasks(loop: asyncio.AbstractEventLoop) -> str:
    lines = []
    for task in sorted(asyncio.all_tasks(loop), key=asyncio.Task.get_name):
        frames = task.get_stack(limit=1)
        place = (
            f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "not started"
        )
        lines.append(f"  {task.get_name()} waits at {place}")
    return "\n".join(lines)
