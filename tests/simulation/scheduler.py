"""Runs the threads of a night one at a time, in an order that the seed decides, on a virtual clock.

Each simulated thread is a thread of the operating system that runs only while it holds the baton.
It gives the baton back at each step: a lock, an event, a queue, a socket, a file. The scheduler
then draws who runs next. Nothing waits in real time: if no thread can run, the clock jumps to the
next timer.

A process is a set of threads. Once it is killed, each further step of its threads raises Killed, so
that none of them has an effect on anything outside of the process.
"""

import asyncio
import contextvars
import heapq
import math
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.chronicle import DIGEST_BITS, Chronicle
from tests.simulation.processes import (
    Carrier,
    Killed,
    Process,
    SimulatedThread,
    State,
    describe,
    here,
)

if TYPE_CHECKING:
    from jobs.schema.records import RunBill
    from tests.simulation.sockets import Network

EPOCH = 1_700_000_000.0  # s; the time of day at which every night begins
MOST_STEPS = 3_000_000


class Scheduler(Chronicle):
    """One night's threads, processes and clock.

    Attributes:
        network: The sockets of the night.
    """

    network: "Network"

    def __init__(
        self, seed: str, *, preempts: float = 0.3, trace: bool = False, folder: str = ""
    ) -> None:
        super().__init__(seed, trace=trace, folder=folder)
        self.steps = self.switches = 0
        self.processes: list[Process] = []
        self.is_stopping = False
        self.clock_offset = 0.0  # s by which the time of day is wrong
        self.limits_away = (0.0, 0.0)  # between which the store of the limits does not answer
        self.starts = 1  # of the machine
        self.bills: dict[str, RunBill] = {}  # by run
        self.preempts = preempts
        self._order = self.stream("order")
        self._runnable: list[SimulatedThread] = []
        self._timers: list[tuple[float, float, int, Callable[[], object]]] = []
        self._in_timer = False
        self._carriers: list[Carrier] = []
        # loops and tasks of killed processes: their ends must not run
        self._kept: list[object] = []
        self.root = SimulatedThread("root", self._process("root"))
        self.root.process.threads.append(self.root)
        self.root.state = State.RUNNING
        here.thread = self.root

    # -- time --------------------------------------------------------------------------------------
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

    # -- steps -------------------------------------------------------------------------------------
    def me(self) -> SimulatedThread:
        """The thread that runs. Raises Killed if it must not go on."""
        me: SimulatedThread = here.thread
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
                ) & DIGEST_BITS
                return chosen
            if not self._timers:
                return None
            self.now = self._timers[0][0]

    # -- threads and processes ---------------------------------------------------------------------
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
        carrier = self._carriers.pop() if self._carriers else Carrier()
        carrier.carry(thread, lambda: self._run(thread, carrier))

    def _run(self, thread: SimulatedThread, carrier: Carrier) -> None:
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

    # -- the end -----------------------------------------------------------------------------------
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
            thread.state is not State.DONE
            for process in self.processes[1:]
            for thread in process.threads
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
        return describe(self.processes)
