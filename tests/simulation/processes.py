"""Simulated processes and their threads, and the threads of the operating system that carry them."""

import _thread
import asyncio
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from enum import Enum

LAST_LINES = 40  # of a stack, in a report


class Killed(BaseException):
    """The thread's process is dead, or the night is over."""


class State(Enum):
    NEW = "new"
    RUNNABLE = "runnable"
    RUNNING = "running"
    BLOCKED = "blocked"
    DONE = "done"


class Process:
    """Threads that die together. state: module-wide state of the product, by name: each real
    process has its own.
    """

    def __init__(self, name: str, pid: int, host: str = "host1") -> None:
        self.name, self.pid, self.host = name, pid, host
        self.is_dead = self.was_cut = False  # was_cut: it was killed at work
        self.died_at = 0.0
        self.driver: Process | None = None  # of a worker
        self.has_delivered = False  # a worker: its result is the task's
        self.unwanted_since: float | None = None  # of a worker: its stage is over
        self.threads: list[SimulatedThread] = []
        self.loops: list[asyncio.AbstractEventLoop] = []
        self.on_exit: list[Callable[[], object]] = []
        self.state: dict[str, object] = {}

    @property
    def has_ended(self) -> bool:
        """Its main thread has returned, or it was killed."""
        return self.is_dead or self.threads[0].state is State.DONE

    def __repr__(self) -> str:
        return self.name


class SimulatedThread:
    """What the scheduler knows of a thread."""

    def __init__(self, name: str, process: Process) -> None:
        self.name, self.process = name, process
        self.state = State.NEW
        self.number = 0
        self.ticket = 0  # of its last wait: an older timer does not wake it
        self.was_woken = False
        self.baton = _thread.allocate_lock()
        self.baton.acquire()
        self.joining: list[SimulatedThread] = []
        self.os_ident = 0
        self.function: Callable[[], object] | None = None
        self.local: dict[str, object] = {}


here = threading.local()


def current() -> SimulatedThread | None:
    """The simulated thread that asks; None outside of a simulation."""
    return getattr(here, "thread", None)


def describe(processes: Sequence[Process]) -> str:
    """Where each thread stands."""
    frames, lines = sys._current_frames(), []
    for process in processes:
        for thread in process.threads:
            if thread.state in (State.BLOCKED, State.RUNNABLE) and thread.os_ident in frames:
                stack = traceback.extract_stack(frames[thread.os_ident])
                places = [
                    f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
                    for frame in reversed(stack)
                ]
                shown = [
                    place
                    for place in places
                    if not place.startswith(("scheduler.py", "processes.py", "threads.py"))
                ]
                lines.append(
                    f"  {process}/{thread.name} {thread.state.value}: {' < '.join(shown[:6])}"
                )
    return "\n".join(lines[:LAST_LINES])


class Carrier:
    """A thread of the operating system that carries one simulated thread after the other, as
    starting one is slow.
    """

    def __init__(self) -> None:
        self._work: Callable[[], None] | None = None
        self._thread: SimulatedThread | None = None
        self._ready = _thread.allocate_lock()
        self._ready.acquire()
        self._ident = _thread.start_new_thread(self._serve, ())

    def carry(self, thread: SimulatedThread, work: Callable[[], None]) -> None:
        self._thread, self._work = thread, work
        thread.os_ident = self._ident
        self._ready.release()

    def end(self) -> None:
        self._work = None
        self._ready.release()

    def _serve(self) -> None:
        while True:
            self._ready.acquire()
            work, thread, self._work = self._work, self._thread, None
            if work is None or thread is None:
                return
            thread.baton.acquire()
            here.thread = thread
            work()
