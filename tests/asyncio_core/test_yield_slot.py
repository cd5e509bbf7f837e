"""Calls that wait for another call of their operator, and leave their part of the concurrency to
others meanwhile.
"""

import asyncio
import random

import pytest

from asyncio_core import AsyncFunction, AsyncWaitOperator, OutputMode, StreamRecord
from asyncio_core.retry import NO_RETRY, fixed_delay
from asyncio_core.testing import run_virtual


class Joining(AsyncFunction):
    """A value (key, seconds): the first of a key works so long, those that come meanwhile wait for
    it.
    """

    def __init__(self, *, survives=False):
        self.operator = None
        self.survives = survives
        self.began = {}
        self.working = self.most_working = 0
        self._first = {}

    async def async_invoke(self, value):
        key, seconds = value
        if key in self._first:
            with self.operator.yield_slot():
                await self._first[key].wait()
            return [("joined", key)]
        over = self._first[key] = asyncio.Event()
        self.began.setdefault(key, asyncio.get_running_loop().time())
        self.working += 1
        self.most_working = max(self.most_working, self.working)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.working -= 1
            del self._first[key]
            over.set()
        return [("worked", key)]

    def survives_timeout(self, value):
        return self.survives and value[1] > 1.0

    def timeout(self, value):
        return [("late", value[0])]


def run(
    values,
    *,
    concurrency,
    timeout=None,
    mode=OutputMode.ORDERED,
    every=0.0,
    retry_strategy=NO_RETRY,
    survives=False,
):
    """What left, the function, and the operator's last figures."""
    function, left = Joining(survives=survives), []

    async def main():
        operator = function.operator = AsyncWaitOperator(
            function, lambda record: left.append(record.value), mode=mode, timeout=timeout,
            capacity=100, concurrency=concurrency, retry_strategy=retry_strategy,
        )  # fmt: skip
        await operator.open()
        for value in values:
            await operator.process_element(StreamRecord(value))
            if every:
                await asyncio.sleep(every)
        await operator.end_input()
        figures = operator.statistics()
        await operator.close()
        return figures

    return left, function, run_virtual(main)


def test_a_call_that_waits_for_another_call_frees_its_slot():
    left, function, _ = run([("a", 1.0), *[("a", 1.0)] * 20, ("b", 1.0)], concurrency=2)
    assert function.began == {"a": 0.0, "b": 0.0}
    assert left == [("worked", "a"), *[("joined", "a")] * 20, ("worked", "b")]


def test_calls_that_come_back_to_work_stay_within_the_concurrency():
    values = [*[("a", 1.0)] * 5, *[(number, 1.0) for number in range(10)]]
    left, function, figures = run(values, concurrency=2)
    assert len(left) == 15
    assert function.most_working == 2
    assert [function.began[number] for number in range(10)] == [
        0.0,
        1.0,
        1.0,
        2.0,
        2.0,
        3.0,
        3.0,
        4.0,
        4.0,
        5.0,
    ]
    assert figures.running == 0


def test_a_call_that_waits_for_another_is_not_counted_as_running():
    async def main():
        function = Joining()
        operator = function.operator = AsyncWaitOperator(
            function,
            lambda _: None,
            mode=OutputMode.ORDERED,
            timeout=None,
            capacity=10,
            concurrency=5,
        )
        await operator.open()
        for value in [("a", 1.0), ("a", 1.0), ("a", 1.0), ("b", 1.0)]:
            await operator.process_element(StreamRecord(value))
        await asyncio.sleep(0.5)
        figures = operator.statistics()
        await operator.close()  # while some wait
        return figures.running, figures.outstanding

    assert run_virtual(main) == (2, 4)


def test_the_time_limit_of_a_waiting_call_runs_on_and_its_slot_is_not_lost():
    values = [("a", 5.0), ("a", 1.0), ("b", 0.5), ("c", 0.5), ("d", 0.5)]
    left, function, figures = run(values, concurrency=2, timeout=1.0, every=0.1, survives=True)
    assert left == [("late", "a"), ("late", "a"), ("worked", "b"), ("worked", "c"), ("worked", "d")]
    assert [function.began[key] for key in "bcd"] == pytest.approx([0.2, 0.7, 1.2])
    assert function.most_working == 2
    assert figures.running == 1  # the first, which goes on


@pytest.mark.parametrize("seed", range(20))
def test_calls_that_wait_for_each_other_lose_no_record_and_keep_the_concurrency(seed):
    draw = random.Random(seed)
    values = [(draw.randrange(6), draw.choice([0.0, 0.1, 0.4, 1.5])) for _ in range(100)]
    concurrency = draw.choice([1, 2, 5])
    left, function, figures = run(
        values, concurrency=concurrency, timeout=draw.choice([None, 1.0]),
        every=draw.choice([0.0, 0.05]),
        mode=draw.choice([OutputMode.ORDERED, OutputMode.UNORDERED]),
        retry_strategy=fixed_delay(max_retries=2, delay=0.2, on_result=lambda _: draw.random() < 0.2),
    )  # fmt: skip
    assert sorted(key for _, key in left) == sorted(key for key, _ in values)
    assert function.most_working <= concurrency
    assert figures.running == 0


def test_a_slot_taken_for_a_second_call_serves_no_record_until_it_is_given_back():
    async def main():
        function, loop = Joining(), asyncio.get_running_loop()
        operator = AsyncWaitOperator(
            function, lambda _: None, mode=OutputMode.ORDERED, timeout=None, concurrency=2
        )
        await operator.open()
        try:
            loop.call_later(0.5, operator.take_slot())
            for key in range(2):
                await operator.process_element(StreamRecord((key, 1.0)))
            await operator.end_input()
        finally:
            await operator.close()
        return function.began

    assert run_virtual(main) == {0: 0.0, 1: 0.5}
