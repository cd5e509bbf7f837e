"""Runs the threads of a night one at a time, in an order that the seed decides, on a virtual clock.

Each simulated thread is a thread of the operating system that runs only while it holds the baton.
It gives the baton back at each step: a lock, an event, a queue, a socket, a file. The scheduler
then draws who runs next. Nothing waits in real time: if no thread can run, the clock jumps to the
next timer.

A process is a set of threads. Once it is killed, each further step of its threads raises Killed, so
that none of them has an effect on anything outside of the process.
"""

import _thread
import asyncio
import contextvars
import heapq
import math
import random
import sys
import threading
import traceback
import zlib
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.schema.records import RunBill
    from tests.simulation.sockets import Network

EPOCH = 1_700_000_000.0  # s; the time of day at which every night begins
MOST_STEPS = 3_000_000
LAST_LINES = 40  # of a stack, in a report
_DIGEST_BITS = 0xFFFFFFFFFFFF


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


_here = threading.local()


def current() -> SimulatedThread | None:
    """The simulated thread that asks; None outside of a simulation."""
    return getattr(_here, "thread", None)


class Scheduler:
    """One night's threads, processes, clock and random numbers.

    Attributes:
        now: Virtual seconds since the night began.
        digest: Of everything that happened so far, in order.
        failures: What no thread may do: deadlocks, livelocks, errors of threads that nobody
            handles.
        trace: The lines of what happened; None unless they are wanted.
        network: The sockets of the night.
    """

    network: "Network"

    def __init__(
        self, seed: str, *, preempts: float = 0.3, trace: bool = False, folder: str = ""
    ) -> None:
        """folder: The real folder of the night, whose name is not part of what happens."""
        self._folder = folder
        self.now = 0.0
        self.digest = 0
        self.steps = self.switches = 0
        self.failures: list[str] = []
        self.trace: list[str] | None = [] if trace else None
        self.processes: list[Process] = []
        self.is_stopping = False
        self.clock_offset = 0.0  # s by which the time of day is wrong
        self.limits_away = (0.0, 0.0)  # between which the store of the limits does not answer
        self.starts = 1  # of the machine
        self.bills: dict[str, RunBill] = {}  # by run
        self.preempts = preempts
        self._seed = seed
        self._order = self.stream("order")
        self._names = self.stream("names")
        self._runnable: list[SimulatedThread] = []
        self._timers: list[tuple[float, float, int, Callable[[], object]]] = []
        self._numbers = 0
        self._in_timer = False
        self._carriers: list[_Carrier] = []
        # loops and tasks of killed processes: their ends must not run
        self._kept: list[object] = []
        self.root = SimulatedThread("root", self._process("root"))
        self.root.process.threads.append(self.root)
        self.root.state = State.RUNNING
        _here.thread = self.root

    def stream(self, name: str) -> random.Random:
        """A stream of random numbers that is independent of all other names' streams."""
        return random.Random(f"{self._seed}:{name}")

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def token_bits(self, bits: int) -> int:
        """The next random number of the product: tokens, run ids, jitter."""
        return self._names.getrandbits(bits)

    @property
    def jitter(self) -> random.Random:
        return self._names

    def say(self, *words: object) -> None:
        """Record what happened, in the digest and in the trace."""
        line = " ".join(map(str, words)).replace(self._folder, "")
        self.digest = (
            zlib.crc32(line.encode(), self.digest & 0xFFFFFFFF) ^ (self.digest << 7) & _DIGEST_BITS
        )
        if self.trace is not None:
            me = current()
            self.trace.append(f"{self.now:10.4f} {me.process.name if me else '-':16s} {line}")

    def fail(self, message: str) -> None:
        self.failures.append(f"{self.now:.4f}: {message}")
        self.say("FAILURE", message.split("\n", 1)[0])

    # -- time
    # ----------------------------------------------------------------------------------------------
    def at(self, when: float, callback: Callable[[], object]) -> None:
        """Call back at this time, from whichever thread holds the baton then. The callback must not
        wait.
        """
        heapq.heappush(self._timers, (when, self._order.random(), self.next_number(), callback))

    def after(self, seconds: float, callback: Callable[[], object]) -> None:
        self.at(self.now + seconds, callback)

    def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            self.give_way()
            return
        end = self.now + seconds
        while self.now < end:
            self.block(end - self.now)

    # -- steps
    # ----------------------------------------------------------------------------------------------
    def me(self) -> SimulatedThread:
        """The thread that runs. Raises Killed if it must not go on."""
        me: SimulatedThread = _here.thread
        if not self._in_timer and (
            me.process.is_dead or (self.is_stopping and me is not self.root)
        ):
            raise Killed
        return me

    def give_way(self) -> None:
        """A step: another thread may take over."""
        me = self.me()
        if self._in_timer or self._order.random() >= self.preempts:
            return
        if (
            not self._runnable
            and not (self._timers and self._timers[0][0] <= self.now)
            and self.steps < MOST_STEPS
        ):
            self.steps += 1
            return  # no other thread can run
        me.state = State.RUNNABLE
        self._runnable.append(me)
        self._switch(me)
        self.me()

    def block(self, timeout: float | None = None) -> bool:
        """Wait until woken (True) or for so long (False)."""
        me = self.me()
        me.state, me.was_woken = State.BLOCKED, False
        me.ticket += 1
        if timeout is not None:
            ticket = me.ticket

            def due() -> None:
                if me.state is State.BLOCKED and me.ticket == ticket:
                    self._make_runnable(me)

            self.at(
                max(self.now + timeout, math.nextafter(self.now, math.inf))
                if timeout > 0
                else self.now,
                due,
            )
        self._switch(me)
        self.me()
        return me.was_woken

    def wake(self, thread: SimulatedThread) -> None:
        if thread.state is State.BLOCKED:
            thread.was_woken = True
            self._make_runnable(thread)

    def _make_runnable(self, thread: SimulatedThread) -> None:
        thread.state = State.RUNNABLE
        self._runnable.append(thread)

    def _switch(self, me: SimulatedThread) -> None:
        """Pass the baton on. `me` has its new state already; returns when it holds the
        baton again.
        """
        self.steps += 1
        if self.steps > MOST_STEPS and not self.is_stopping:
            self.fail(f"livelock: {MOST_STEPS} steps\n{self.describe()}")
            self.stop()
        chosen = self._next()
        if chosen is None and not self.is_stopping:
            self.fail(f"deadlock\n{self.describe()}")
            self.stop()
            chosen = self._next()
        if chosen is None:
            return
        chosen.state = State.RUNNING
        if chosen is not me:
            self.switches += 1
            chosen.baton.release()
            if me.state is not State.DONE:
                me.baton.acquire()

    def _next(self) -> SimulatedThread | None:
        while True:
            while self._timers and self._timers[0][0] <= self.now:
                callback = heapq.heappop(self._timers)[3]
                self._in_timer = True
                try:
                    callback()
                finally:
                    self._in_timer = False
            if self._runnable:
                count = len(self._runnable)
                place = self._order.randrange(count) if count > 1 else 0
                self._runnable[place], self._runnable[-1] = (
                    self._runnable[-1],
                    self._runnable[place],
                )
                chosen = self._runnable.pop()
                self.digest = (
                    self.digest * 1000003 + chosen.number + int(self.now * 1e6)
                ) & _DIGEST_BITS
                return chosen
            if not self._timers:
                return None
            self.now = self._timers[0][0]

    # -- threads and processes
    # -----------------------------------------------------------------------------------------
    def _process(self, name: str, host: str = "host1") -> Process:
        process = Process(name, 1000 + len(self.processes), host)
        self.processes.append(process)
        return process

    def spawn(
        self, name: str, function: Callable[..., object], *arguments: object, host: str = "host1"
    ) -> Process:
        """Start a process whose main thread runs the function."""
        process = self._process(name, host)
        self.start(SimulatedThread(name, process), lambda: function(*arguments))
        return process

    def start(self, thread: SimulatedThread, function: Callable[[], object]) -> None:
        thread.number = self.next_number()
        thread.process.threads.append(thread)
        thread.function = function
        self._make_runnable(thread)
        carrier = self._carriers.pop() if self._carriers else _Carrier()
        carrier.carry(thread, lambda: self._run(thread, carrier))

    def _run(self, thread: SimulatedThread, carrier: "_Carrier") -> None:
        try:
            if not (thread.process.is_dead or self.is_stopping) and thread.function is not None:
                contextvars.Context().run(thread.function)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001  # a thread's last words
            if not (thread.process.is_dead or self.is_stopping):
                self.fail(
                    f"{thread.process}/{thread.name} died: {error!r}\n{traceback.format_exc()}"
                )
        thread.function = None  # its objects end here, while this thread holds the baton
        thread.state = State.DONE
        for joining in thread.joining:
            self.wake(joining)
        self._carriers.append(carrier)
        self._switch(thread)

    def kill(self, process: Process) -> None:
        """End a process as kill -9 does: at its next step each of its threads ends."""
        if process.is_dead:
            return
        self.say("KILL", process)
        process.was_cut = not process.has_ended
        process.is_dead, process.died_at = True, self.now
        for loop in process.loops:
            self._kept += [loop, *asyncio.all_tasks(loop)]
        for thread in process.threads:
            if thread.state is State.BLOCKED:
                self._make_runnable(thread)
        for callback in process.on_exit:
            callback()

    def with_pid(self, pid: int) -> Process | None:
        """The living process of this number."""
        number = pid - 1000
        found = self.processes[number] if 0 <= number < len(self.processes) else None
        return None if found is None or found.has_ended else found

    def wait_for(self, process: Process, limit: float) -> bool:
        """Wait until the process ends. False if it has not ended within so many seconds."""
        end = self.now + limit
        while not process.has_ended:
            if self.now >= end:
                return False
            self.sleep(0.25)
        return True

    # -- the end
    # ----------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """End the night: each thread but the root ends at its next step."""
        self.is_stopping = True
        for process in self.processes:
            for thread in process.threads:
                if thread.state is State.BLOCKED:
                    self._make_runnable(thread)

    def finish(self) -> None:
        """End all threads. Called by the root, at the very end."""
        self.stop()
        while any(
            thread.state is not State.DONE for one in self.processes[1:] for thread in one.threads
        ):
            if not self._runnable:
                raise AssertionError(f"threads that cannot end:\n{self.describe()}")
            self.root.state = State.RUNNABLE
            self._runnable.insert(0, self.root)
            self._switch(self.root)
        self._timers.clear()
        for carrier in self._carriers:
            carrier.end()
        self.root.process.is_dead = True  # objects that end later do nothing
        self._kept.clear()

    def describe(self) -> str:
        """Where each thread stands."""
        frames, lines = sys._current_frames(), []
        for process in self.processes:
            for thread in process.threads:
                if thread.state in (State.BLOCKED, State.RUNNABLE) and thread.os_ident in frames:
                    stack = traceback.extract_stack(frames[thread.os_ident])
                    places = [
                        f"{one.filename.rsplit('/', 1)[-1]}:{one.lineno}" for one in reversed(stack)
                    ]
                    shown = [
                        place
                        for place in places
                        if not place.startswith(("scheduler.py", "threads.py"))
                    ]
                    lines.append(
                        f"  {process}/{thread.name} {thread.state.value}: {' < '.join(shown[:6])}"
                    )
        return "\n".join(lines[:LAST_LINES])


class _Carrier:
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
            _here.thread = thread
            work()
