"""An operator that gets more, or fewer, places and calls while it works."""

import asyncio

import pytest

from asyncio_core import OutputMode, Watermark, fixed_delay
from asyncio_core.testing import Fail, Reply, run_virtual


def slow(count):
    return {number: Reply([number], after=1.0) for number in range(count)}


def test_a_raised_concurrency_starts_waiting_calls_at_once_up_to_the_new_limit(opened):
    async def main():
        async with opened(slow(10), capacity=10, concurrency=2) as run:
            await run.put(*range(10))
            await asyncio.sleep(0.5)
            run.operator.resize(capacity=10, concurrency=5)
            await run.operator.end_input()
            return run.times, run.function.peak

    assert run_virtual(main) == ([1.0] * 2 + [1.5] * 3 + [2.0] * 2 + [2.5] * 3, 5)


def test_a_raised_capacity_releases_a_waiting_producer_at_once(opened):
    async def main():
        async with opened(slow(4), capacity=1) as run:
            await run.put(0)
            waiting = asyncio.create_task(run.put(1, 2))
            await asyncio.sleep(0.5)
            run.operator.resize(capacity=3, concurrency=3)
            await waiting
            taken = asyncio.get_running_loop().time(), run.operator.statistics().queued
            await run.operator.end_input()
            return taken, run.times

    assert run_virtual(main) == ((0.5, 3), [1.0, 1.5, 1.5])


def test_the_end_of_the_input_waits_for_every_call_after_a_resize(opened):
    async def main():
        async with opened(slow(3), capacity=3, concurrency=1) as run:
            await run.put(0, 1, 2)
            ending = asyncio.create_task(run.operator.end_input())
            await asyncio.sleep(0.5)
            run.operator.resize(capacity=4, concurrency=2)
            await ending
            return run.times

    assert run_virtual(main) == [1.0, 1.5, 2.0]


def test_a_resize_within_the_output_changes_no_order(opened):
    async def main():
        async with opened(slow(8), capacity=2) as run:

            def take(element):
                run.take(element)
                run.operator.resize(
                    capacity=2 + len(run.emitted), concurrency=2 + len(run.emitted) // 2
                )

            run.operator._output = take
            await run.put(0, 1, Watermark(1), 2, 3, 4, 5, Watermark(2), 6, 7)
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == [0, 1, Watermark(1), 2, 3, 4, 5, Watermark(2), 6, 7]


def test_a_lowered_concurrency_ends_no_running_call_and_starts_none_above_the_limit(opened):
    async def main():
        async with opened(slow(10), capacity=10, concurrency=5) as run:
            await run.put(*range(10))
            await asyncio.sleep(0.5)
            run.operator.resize(capacity=10, concurrency=2)
            figures = run.operator.statistics()
            await run.operator.end_input()
            last = run.operator.statistics()
            return figures.running, figures.concurrency, last.cancelled, last.failures, run.times

    assert run_virtual(main) == (5, 2, 0, 0, [1.0] * 5 + [2.0] * 2 + [3.0] * 2 + [4.0])


def test_a_lowered_concurrency_holds_for_calls_that_start_later(opened):
    async def main():
        async with opened(slow(12), capacity=12, concurrency=6) as run:
            await run.put(*range(6))
            await asyncio.sleep(2.0)  # all six workers are parked
            run.operator.resize(capacity=12, concurrency=1)
            await run.put(*range(6, 9))
            await asyncio.sleep(1.5)
            run.operator.resize(capacity=12, concurrency=3)
            await run.put(*range(9, 12))
            await run.operator.end_input()
            return run.times[6:], run.function.peak

    assert run_virtual(main) == ([3.0, 4.0, 4.5, 4.5, 5.0, 5.5], 6)


def test_a_lowered_concurrency_holds_back_a_retry_that_is_due(opened):
    script = {
        0: [Fail(OSError(), after=1.0), Reply([0], after=1.0)],
        1: Reply([1], after=4.0),
        2: Reply([2], after=5.5),
    }
    retry = fixed_delay(max_retries=1, delay=0.5, on_exception=lambda _: True)

    async def main():
        async with opened(
            script, capacity=3, concurrency=3, retry_strategy=retry, mode=OutputMode.UNORDERED
        ) as run:
            await run.put(0, 1, 2)
            await asyncio.sleep(1.2)
            run.operator.resize(capacity=3, concurrency=2)
            await run.operator.end_input()
            return run.values, run.times

    assert run_virtual(main) == ([1, 0, 2], [4.0, 5.0, 5.5])


def test_a_lowered_capacity_takes_no_element_until_the_queue_is_below_it(opened):
    async def main():
        async with opened(slow(6), capacity=4, concurrency=4) as run:
            await run.put(0, 1, 2, 3)
            waiting = asyncio.create_task(run.put(4, 5))
            await asyncio.sleep(0.5)
            run.operator.resize(capacity=1, concurrency=1)
            await asyncio.sleep(0.0)
            queued = run.operator.statistics().queued
            await waiting
            taken = asyncio.get_running_loop().time()
            await run.operator.end_input()
            return queued, taken, run.times

    assert run_virtual(main) == (4, 2.0, [1.0] * 4 + [2.0, 3.0])


def test_a_call_that_yielded_its_slot_waits_for_a_slot_under_a_lowered_concurrency(opened):
    async def main():
        class Yielding:
            async def async_invoke(self, value):
                if value == 0:
                    with run.operator.yield_slot():
                        await asyncio.sleep(1.5)
                else:
                    await asyncio.sleep(1.0 + value / 100)
                return [value]

        async with opened(Yielding(), capacity=6, concurrency=2, mode=OutputMode.UNORDERED) as run:
            await run.put(*range(6))
            await asyncio.sleep(0.5)
            run.operator.resize(capacity=6, concurrency=1)
            await run.operator.end_input()
            return run.values, run.operator.statistics().running, asyncio.get_running_loop().time()

    assert run_virtual(main) == ([1, 2, 0, 3, 4, 5], 0, pytest.approx(1.02 + 1.03 + 1.04 + 1.05))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            {"capacity": 0, "concurrency": 1},
            "capacity is the number of places in the queue, at least 1, got 0",
        ),
        ({"capacity": 5, "concurrency": 6}, r"from 1 to capacity \(5\), got 6"),
        ({"capacity": 5, "concurrency": 0}, r"from 1 to capacity \(5\), got 0"),
    ],
)
def test_a_resize_with_a_wrong_size_changes_nothing(opened, wrong, sentence):
    async def main():
        async with opened({}, capacity=4, concurrency=2) as run:
            with pytest.raises(ValueError, match=sentence):
                run.operator.resize(**wrong)
            figures = run.operator.statistics()
            return figures.capacity, figures.concurrency

    assert run_virtual(main) == (4, 2)
