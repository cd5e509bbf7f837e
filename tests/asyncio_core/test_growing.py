"""An operator that gets more places and calls while it works."""

import asyncio

import pytest

from asyncio_core import Watermark
from asyncio_core.testing import Reply, run_virtual


def slow(count):
    return {number: Reply([number], after=1.0) for number in range(count)}


def test_calls_that_waited_for_the_concurrency_start_at_once_and_no_more_than_there_may_be(opened):
    async def main():
        async with opened(slow(10), capacity=10, concurrency=2) as run:
            await run.put(*range(10))
            await asyncio.sleep(0.5)
            run.operator.grow(capacity=10, concurrency=5)
            await run.operator.end_input()
            return run.times, run.function.peak

    assert run_virtual(main) == ([1.0] * 2 + [1.5] * 3 + [2.0] * 2 + [2.5] * 3, 5)


def test_a_producer_that_waits_for_a_place_goes_on_at_once(opened):
    async def main():
        async with opened(slow(4), capacity=1) as run:
            await run.put(0)
            waiting = asyncio.create_task(run.put(1, 2))
            await asyncio.sleep(0.5)
            run.operator.grow(capacity=3, concurrency=3)
            await waiting
            taken = asyncio.get_running_loop().time(), run.operator.statistics().queued
            await run.operator.end_input()
            return taken, run.times

    assert run_virtual(main) == ((0.5, 3), [1.0, 1.5, 1.5])


def test_the_end_of_the_input_waits_for_everything_all_the_same(opened):
    async def main():
        async with opened(slow(3), capacity=3, concurrency=1) as run:
            await run.put(0, 1, 2)
            ending = asyncio.create_task(run.operator.end_input())
            await asyncio.sleep(0.5)
            run.operator.grow(capacity=4, concurrency=2)
            await ending
            return run.times

    assert run_virtual(main) == [1.0, 1.5, 2.0]


def test_it_may_come_from_within_the_output_and_no_order_changes(opened):
    async def main():
        async with opened(slow(8), capacity=2) as run:

            def take(element):
                run.take(element)
                run.operator.grow(capacity=2 + len(run.emitted), concurrency=2 + len(run.emitted) // 2)

            run.operator._output = take
            await run.put(0, 1, Watermark(1), 2, 3, 4, 5, Watermark(2), 6, 7)
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == [0, 1, Watermark(1), 2, 3, 4, 5, Watermark(2), 6, 7]


@pytest.mark.parametrize("narrower", [{"capacity": 3, "concurrency": 2}, {"capacity": 4, "concurrency": 1}])
def test_it_is_made_no_narrower(opened, narrower):
    async def main():
        async with opened({}, capacity=4, concurrency=2) as run:
            with pytest.raises(ValueError, match="capacity and concurrency can only grow; they are 4 and 2"):
                run.operator.grow(**narrower)
            with pytest.raises(ValueError, match=r"from 1 to capacity \(5\), got 6"):
                run.operator.grow(capacity=5, concurrency=6)

    run_virtual(main)
