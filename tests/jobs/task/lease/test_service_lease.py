"""Calls of functions keep the lease of their service. Virtual time, the real chain of a task."""

import asyncio
from dataclasses import replace

import pytest

from asyncio_core import AsyncFunction, Gate, StreamRecord
from asyncio_core.testing import run_virtual
from jobs.clients.client import NotSent, Throttled
from jobs.clients.request_counter import RequestCounts
from jobs.declare.lookup import service_identity
from jobs.ledger.plan import CallCap
from jobs.limits.lease_book import CLOSED, OPEN, PROBE, Answer, Limit, Share
from jobs.limits.lease_keeper import LeaseKeeper
from jobs.limits.limits_plan import CALLS, Reserved, ServiceLimits
from jobs.task import operators
from jobs.task.lease.call_budget import CallBudget
from jobs.task.lease.lease_messages import parse_claims, write_message
from jobs.task.lease.service_lease import AFTER_ROW, ServiceLease
from jobs.task.link.progress import AttemptCounts
from jobs.task.lookup.lookup_state import LookupState, Row
from jobs.task.operators import Surroundings, chain
from jobs.task.task_limits import TaskLimits
from tests.jobs.limits.test_rates import most_in_a_window
from tests.jobs.task.test_runner import lookup
from tests.jobs.task.test_runner import plan as task_plan
from tidegate import Cache, Retry

LONGEST, TTL = 10.0, 15.0


class Function(AsyncFunction):
    """Each call takes as long as its key says; notes when it began."""

    def __init__(self, seconds):
        self.seconds, self.began, self.running, self.highest = seconds, [], 0, 0

    async def async_invoke(self, value):
        (key,) = value.values()
        self.began.append(asyncio.get_running_loop().time())
        self.running += 1
        self.highest = max(self.highest, self.running)
        try:
            await asyncio.sleep(self.seconds(key))
        finally:
            self.running -= 1
        return [{"first_x": key}]


class NoDriver:
    is_connected = False


class Driver:
    """Answers heartbeats from a keeper, after a delay in seconds."""

    is_connected = True

    def __init__(self, keeper, delay=0.003):
        self.keeper, self.delay, self.limits = keeper, delay, None

    def send(self, _kind, number, at, services):
        found = {
            service: write_message(
                self.keeper.heartbeat(str(id(self)), parse_claims(claims, self.keeper.declared))
            )
            for service, claims in services.items()
        }
        asyncio.get_running_loop().call_later(self.delay, self.limits.take, number, [], found)


class Task:
    """One task, whose driver is the test."""

    def __init__(
        self, function, *, cache=None, share=4, driver=None, limits=None, allowance=None, **fields
    ):
        self.function, self.rows = function, []
        loop = asyncio.get_running_loop()
        declared = lookup(function, timeout=LONGEST, cache=cache, max_concurrency=share, **fields)
        limits = limits or ServiceLimits(service_identity(declared), {CALLS: Limit(share)}, LONGEST)
        plan = replace(task_plan(declared, share=share), limits=(limits,))
        clock = lambda: int(loop.time() * 1e6)  # noqa: E731
        self.limits = TaskLimits(plan, 0, driver or NoDriver(), clock, lambda _share: None)
        ask_soon = self.limits.ask_soon if driver else lambda: None
        surroundings = Surroundings(
            plan, [share], [None], allowance, clock, AttemptCounts(), ask_soon=ask_soon
        )
        self.chain = chain(surroundings, self.rows.append)
        self.limits.set_operators(self.chain)
        if driver is not None:
            driver.limits = self.limits
            loop.call_later(0.25, self.tick)
        (self.lease,), (self.operator,) = self.chain.leases, self.chain.operators
        self.gate = self.operator._calls._gate

    def answer(self, calls=4, gate=OPEN, ttl=TTL):
        """The driver's answer to a heartbeat of now."""
        now = asyncio.get_running_loop().time()
        claims = self.lease.claims(calls)
        self.lease.take(Answer({CALLS: Share(calls, calls)}, ttl, gate), asked_at=now)
        self.limits._resize()
        return claims["claims"][CALLS]

    def tick(self):
        self.limits.send_heartbeat()
        asyncio.get_running_loop().call_later(0.25, self.tick)

    async def ask(self, keys, *, cut_at=None):
        await self.operator.open()
        try:
            async with asyncio.timeout(cut_at):
                for key in keys:
                    await self.operator.process_element(
                        StreamRecord(Row(None, key, (LookupState((key,)),)))
                    )
                await self.operator.end_input()
        except TimeoutError:
            pass
        finally:
            await self.operator.close()

    @property
    def outcomes(self):
        return [row.value.asked[0].status for row in self.rows]


def test_no_more_calls_run_than_are_leased():
    async def main():
        task = Task(Function(lambda key: 0.1))
        task.answer(3)
        await task.ask(range(60))
        return task

    task = run_virtual(main)
    assert (task.outcomes, task.function.highest) == (["ok"] * 60, 3)


def test_the_time_limit_of_a_call_starts_after_its_wait_for_budget():
    cap = CallCap("max_cost", parts=(1.0,), weights=(1.0,), settled=({"token": 0.1},))

    async def main():
        task = Task(
            Function(lambda key: key), share=2, allowance=CallBudget(cap, 0, [RequestCounts()])
        )
        task.answer()
        loop = asyncio.get_running_loop()
        for second in range(1, 30):
            loop.call_at(second, task.answer)
        await task.ask([9.0, 5.0])
        return task

    task = run_virtual(main)
    assert (task.outcomes, len(task.function.began), task.function.highest) == (["ok", "ok"], 2, 1)


def test_an_unsent_call_does_not_count_as_a_failure_of_the_service():
    async def main():
        limits = ServiceLimits("s", {CALLS: Limit(4)}, LONGEST, at_least=1)
        lease = ServiceLease(limits, Gate(), lambda: None)
        lease.take(Answer({CALLS: Share(4, 4)}, TTL), asked_at=0.0)

        async def send(_key):
            raise NotSent

        with pytest.raises(NotSent):
            await lease.within(send, (1,))
        return lease.observed.report(0.0, waits=False)

    seen = run_virtual(main)
    assert (seen["refused"], seen["failed"], seen["answered"]) == (0, 0, 0)


def test_no_call_starts_that_could_outlive_the_lease_until_the_lease_is_renewed():
    async def main():
        task, loop = Task(Function(lambda key: 1.0)), asyncio.get_running_loop()
        task.answer()
        for quarter in range(1, 120):  # heartbeats of a driver that has lost its store
            loop.call_at(quarter / 4, task.answer, 4, OPEN, TTL - quarter / 4)
        loop.call_at(30.0, task.answer)
        await task.ask(range(40))
        return task

    task = run_virtual(main)
    starts = task.function.began
    assert max(start for start in starts if start < 30.0) <= TTL - LONGEST
    assert len([start for start in starts if start >= 30.0]) == 40 - 6 * 4
    assert task.outcomes == ["ok"] * 40, "no clock ran meanwhile"


def test_a_paused_process_starts_no_call_after_its_lease(monkeypatch):
    stopped = [0.0]

    class StoppedLease(ServiceLease):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            clock = self.clock
            self.clock = lambda: clock() + stopped[0]

    monkeypatch.setattr(operators, "ServiceLease", StoppedLease)

    async def main():
        task = Task(Function(lambda key: 0.0))
        task.answer()

        async def at_once(value):
            task.function.began.append(value)
            stopped[0] = 60.0 if len(task.function.began) == 5 else stopped[0]
            return [{"first_x": 1}]

        task.function.async_invoke = at_once
        await task.ask(range(40), cut_at=1.0)
        return task

    assert len(run_virtual(main).function.began) == 5


@pytest.mark.parametrize("cache", [None, Cache()])
def test_calls_behind_a_closed_gate_end_with_the_lease_and_their_rows_are_retried(cache):
    async def main():
        first = []

        def seconds(key):
            first.append(key)
            return 1000.0 if len(first) <= 4 else 0.1

        task = Task(Function(seconds), cache=cache)
        loop = asyncio.get_running_loop()
        task.answer()
        loop.call_later(1.0, task.gate.close, 59.0)
        ended = []
        loop.call_later(LONGEST - 0.001, lambda: ended.append(task.function.running))
        end = LONGEST + AFTER_ROW
        loop.call_later(end + 0.001, lambda: ended.append(task.function.running))
        loop.call_later(60.5, task.answer)
        await task.ask(range(4))
        return task, ended

    task, ended = run_virtual(main)
    assert ended == [4, 0]
    assert task.outcomes == ["ok"] * 4


def test_a_hanging_call_ends_at_the_time_limit_of_its_row():
    async def main():
        task, loop = (
            Task(Function(lambda key: 1000.0), retry=Retry(retries=0)),
            asyncio.get_running_loop(),
        )
        task.answer()

        def look_late():  # in a turn of the loop that takes 2 ms, before the rows' timer
            clock = task.lease.clock
            task.lease.clock = lambda: clock() + 0.002
            task.lease._end_late_calls()
            task.lease.clock = clock

        loop.call_at(LONGEST - 0.001, look_late)
        await task.ask(range(4))
        return task.outcomes

    assert run_virtual(main) == ["timeout"] * 4


def test_a_smaller_share_applies_after_the_calls_above_it_have_ended():
    async def main():
        task = Task(Function(lambda key: 1.0))
        loop, found = asyncio.get_running_loop(), []
        task.answer(4)
        loop.call_later(0.5, lambda: found.append(task.answer(2)))
        loop.call_later(1.5, lambda: found.append(task.answer(2)))
        loop.call_later(1.6, lambda: found.append(task.function.running))
        await task.ask(range(12), cut_at=4.2)
        return found

    assert run_virtual(main) == [[4, 2], [2, 2], 2]


def test_after_a_pause_one_call_probes_and_then_others_start():
    async def main():
        task = Task(Function(lambda key: 0.3))
        loop = asyncio.get_running_loop()
        began = loop.time()
        task.answer(gate=CLOSED)
        loop.call_later(2.0, task.answer, 4, PROBE)
        loop.call_later(2.4, task.answer)
        await task.ask(range(20))
        return task, [round(start - began, 1) for start in task.function.began]

    task, starts = run_virtual(main)
    assert starts[:5] == [2.0, 2.4, 2.4, 2.4, 2.4]
    assert task.outcomes == ["ok"] * 20


@pytest.mark.parametrize(("answer", "shared"), [((0, OPEN), 5.0), ((4, CLOSED), 0.0)])
def test_a_wait_for_calls_of_other_runs_does_not_count_as_a_pause_of_the_service(answer, shared):
    async def main():
        task, loop = Task(Function(lambda key: 0.1)), asyncio.get_running_loop()
        task.answer(*answer)
        for quarter in range(1, 20):
            loop.call_at(quarter / 4, task.answer, *answer)
        loop.call_at(5.0, task.answer)
        await task.ask(range(8))
        return task.gate.closed_seconds, task.lease.shared_s

    assert run_virtual(main) == pytest.approx((5.0, shared), abs=0.1)


def test_the_end_of_a_call_ends_no_later_call_of_its_worker():
    async def main():
        task, loop = Task(Function(lambda key: 1.0)), asyncio.get_running_loop()
        for second in range(1, 60):
            loop.call_at(second, task.answer)
        await task.ask(range(100))
        return task

    assert run_virtual(main).outcomes == ["ok"] * 100


@pytest.mark.parametrize("rate", [1000, 10_000])
def test_a_rate_shared_by_two_tasks_is_kept_and_used(rate):
    async def main():
        loop = asyncio.get_running_loop()
        limits = {CALLS: Limit(200), "r": Limit(rate, 1.0)}
        declared = ServiceLimits(
            "function first", limits, LONGEST, {"r": Reserved({("request", None): 1}, 1)}
        )
        keeper = LeaseKeeper(declared, "", "", None, loop.time)
        function = Function(lambda key: 0.005 + key % 7 / 500)
        tasks = [
            Task(function, share=100, driver=Driver(keeper), limits=declared) for _ in range(2)
        ]
        await asyncio.gather(*(task.ask(range(100_000), cut_at=2.0) for task in tasks))
        return function.began

    began = run_virtual(main)
    assert most_in_a_window([(when, 1) for when in began], 1.0) <= rate
    assert len([when for when in began if when >= 1.0]) >= 0.93 * rate


def test_after_a_failed_probe_no_waiting_call_starts_before_the_driver_is_informed():
    async def main():
        task = Task(Function(lambda key: 0.3))
        loop = asyncio.get_running_loop()
        answered = task.function.async_invoke

        async def at_first_throttled(value):
            answer = await answered(value)
            if loop.time() < 9.0:
                raise Throttled("429", 5.0)
            return answer

        task.function.async_invoke = at_first_throttled
        task.answer(gate=CLOSED)
        loop.call_later(2.0, task.answer, 4, PROBE)
        stale = Answer({CALLS: Share(4, 4)}, TTL, PROBE)
        # the driver knew of no end
        loop.call_later(2.31, lambda: task.lease.take(stale, asked_at=2.29))
        loop.call_later(9.0, task.answer, 4, PROBE)
        loop.call_later(9.4, task.answer)
        await task.ask(range(8))
        return task, [round(start, 1) for start in task.function.began]

    task, starts = run_virtual(main)
    assert starts[:6] == [2.0, 9.0, 9.4, 9.4, 9.4, 9.4]
    assert task.outcomes == ["ok"] * 8


def test_a_task_that_asks_all_the_time_uses_the_answers_of_a_slow_driver():
    async def main():
        loop, used = asyncio.get_running_loop(), set()
        declared = ServiceLimits("function first", {CALLS: Limit(4)}, LONGEST)
        driver = Driver(LeaseKeeper(declared, "", "", None, loop.time), delay=0.05)
        task = Task(Function(lambda key: 0.0), driver=driver, limits=declared)
        for _ in range(200):
            task.limits.ask_soon()
            await asyncio.sleep(0.005)
            used.add(task.lease._holder.until)
        return len(used), loop.time()

    used, seconds = run_virtual(main)
    assert (used >= 8, round(seconds)) == (True, 1)


def test_calls_that_wait_for_a_rate_wait_for_the_end_of_a_pause_too():
    async def main():
        loop = asyncio.get_running_loop()
        limits = {CALLS: Limit(40), "r": Limit(10, 1.0)}
        declared = ServiceLimits(
            "function first", limits, LONGEST, {"r": Reserved({("request", None): 1}, 1)}
        )
        task = Task(Function(lambda key: 0.05), share=40, limits=declared)
        shares = {CALLS: Share(40, 40), "r": Share(10, 10)}
        task.lease.take(Answer(shares, 60.0), asked_at=0.0)
        task.limits._resize()
        loop.call_later(0.5, task.limits._note_pause, task.lease.service, 5.0)
        await task.ask(range(40), cut_at=5.6)
        return [round(start, 2) for start in task.function.began]

    assert run_virtual(main) == [0.0] * 10 + [5.5] * 10


def test_the_clock_of_a_call_that_waits_for_a_lease_stands_still():
    async def main():
        task = Task(Function(lambda key: 9.0))
        loop = asyncio.get_running_loop()
        task.answer()
        for quarter in range(1, 56):  # heartbeats of a driver that has lost its store
            loop.call_at(quarter / 4, task.answer, 4, OPEN, TTL - quarter / 4)
        for second in range(14, 30):
            loop.call_at(second, task.answer)
        await task.operator.open()
        for at, key in ((4.9, 0), (5.5, 1)):
            await asyncio.sleep(at - loop.time())
            await task.operator.process_element(
                StreamRecord(Row(None, key, (LookupState((key,)),)))
            )
        await task.operator.end_input()
        await task.operator.close()
        return task.outcomes

    assert run_virtual(main) == ["ok", "ok"]


def test_calls_that_end_at_once_keep_their_lease_while_rows_come():
    async def main():
        loop = asyncio.get_running_loop()
        declared = ServiceLimits("function first", {CALLS: Limit(4)}, LONGEST)
        keeper = LeaseKeeper(declared, "", "", None, loop.time)
        function = Function(lambda key: 0.0)
        task = Task(function, driver=Driver(keeper), limits=declared)
        held = []
        await task.operator.open()
        for key in range(300):
            await task.operator.process_element(
                StreamRecord(Row(None, key, (LookupState((key,)),)))
            )
            await asyncio.sleep(0.01)
            held.append(task.lease.calls)
        await task.operator.close()
        return held, function.began

    held, began = run_virtual(main)
    assert set(held[100:]) == {4}
    assert len(began) == 300


def test_a_task_that_returned_its_share_takes_no_call():
    async def main():
        loop = asyncio.get_running_loop()
        declared = ServiceLimits("function first", {CALLS: Limit(4)}, LONGEST)
        keeper = LeaseKeeper(declared, "", "", None, loop.time)
        task = Task(Function(lambda key: 0.1), driver=Driver(keeper), limits=declared)
        await task.ask([0, 1], cut_at=0.5)
        held = [keeper.tasks.held(CALLS)]
        task.limits.give_back()
        await asyncio.sleep(1.0)  # the ticks of a task whose rows never ended go on
        return [*held, keeper.tasks.held(CALLS)]

    assert run_virtual(main) == [2, 0]
