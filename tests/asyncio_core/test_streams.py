"""ordered_wait, unordered_wait and key_ordered_wait."""

import asyncio
from contextlib import aclosing

import pytest

from asyncio_core import (
    AsyncInvokeError,
    StreamRecord,
    Watermark,
    key_ordered_wait,
    ordered_wait,
    unordered_wait,
)
from asyncio_core.testing import Fail, Hang, Reply, ScriptedFunction, run_virtual

SCRIPT = {1: Reply([1], 3.0), 2: Reply([2], 1.0), 3: Reply([3], 2.0)}
ELEMENTS = [StreamRecord(1, 1), StreamRecord(2, 2), Watermark(5), StreamRecord(3, 6)]


def now():
    return asyncio.get_running_loop().time()


async def collect(stream):
    return [element async for element in stream]


async def read(stream, seen):
    async for element in stream:
        seen.append(element.value)


def values(elements):
    return [element.value if isinstance(element, StreamRecord) else element for element in elements]


async def slowly(elements, pause=1.0):
    for element in elements:
        await asyncio.sleep(pause)
        yield element


@pytest.mark.parametrize("source", [list, iter, slowly])
@pytest.mark.parametrize(
    ("wait", "options", "expected"),
    [
        (ordered_wait, {}, [1, 2, Watermark(5), 3]),
        (unordered_wait, {}, [2, 1, Watermark(5), 3]),
        (key_ordered_wait, {"key": lambda value: value % 2}, [2, 1, Watermark(5), 3]),
        (key_ordered_wait, {"key": lambda value: 0}, [1, 2, Watermark(5), 3]),
    ],
)
def test_the_generators_yield_in_their_order(source, wait, options, expected):
    async def main():
        script = {**SCRIPT, 1: Reply([1], 9.0)}
        return values(
            await collect(wait(source(ELEMENTS), ScriptedFunction(script), timeout=None, **options))
        )

    assert run_virtual(main) == expected


def test_results_come_while_the_source_is_still_waiting():
    async def main():
        stream = unordered_wait(slowly(ELEMENTS, 10.0), ScriptedFunction(SCRIPT), timeout=None)
        return [(values([element])[0], now()) async for element in stream]

    assert run_virtual(main) == [(1, 13.0), (2, 21.0), (Watermark(5), 30.0), (3, 42.0)]


@pytest.mark.parametrize("wait", [ordered_wait, unordered_wait])
@pytest.mark.parametrize(
    "wrong", [{"timeout": 0}, {"timeout": 1, "capacity": 0}, {"timeout": 1, "concurrency": 0}]
)
def test_arguments_are_checked_at_the_call(wait, wrong):
    with pytest.raises(ValueError, match=next(reversed(wrong))):
        wait([], ScriptedFunction(), **wrong)


def test_a_source_that_cannot_be_iterated_is_refused_at_the_call():
    with pytest.raises(TypeError, match="iterable"):
        ordered_wait(5, ScriptedFunction(), timeout=1.0)


def test_no_call_runs_before_the_first_element_is_requested():
    async def main():
        function = ScriptedFunction()
        stream = ordered_wait([StreamRecord(1)], function, timeout=1.0)
        await asyncio.sleep(1)
        await stream.aclose()
        return function.opened

    assert run_virtual(main) == 0


@pytest.mark.parametrize("source", ["plain", "async"])
def test_results_already_allowed_out_come_before_an_error_of_the_source(source):
    def plain():
        yield StreamRecord(4)
        yield StreamRecord(1)
        raise OSError("source")

    async def asynchronous():
        for element in (StreamRecord(4), StreamRecord(1)):
            yield element
        await asyncio.sleep(0.5)
        raise OSError("source")

    async def main():
        function = ScriptedFunction(SCRIPT)
        seen = []
        elements = plain() if source == "plain" else asynchronous()
        with pytest.raises(OSError, match="source"):
            await read(ordered_wait(elements, function, timeout=None, capacity=1), seen)
        return seen, function.closed, function.running

    seen, closed, running = run_virtual(main)
    assert seen[:1] == [4]
    assert (closed, running) == (1, 0)


@pytest.mark.parametrize("pause", [0.0, 100.0])
def test_results_already_allowed_out_come_before_an_error_of_the_function(
    pause,
):
    async def main():
        function = ScriptedFunction({1: Reply([1], 1.0), 2: Fail(ValueError("boom"), 2.0)})
        seen = []

        async def source():
            yield StreamRecord(1)
            yield StreamRecord(2)
            await asyncio.sleep(pause)
            yield StreamRecord(3)

        with pytest.raises(AsyncInvokeError, match="boom"):
            await read(ordered_wait(source(), function, timeout=None), seen)
        return seen, now(), function.closed

    assert run_virtual(main) == ([1], 2.0, 1)


def test_a_slow_reader_gets_all_results_that_came_before_an_error():
    async def main():
        function = ScriptedFunction({1: Reply([1, 11], 1.0), 2: Fail(ValueError("boom"), 2.0)})
        seen = []

        async def read_slowly():
            async for element in ordered_wait(map(StreamRecord, (1, 2)), function, timeout=None):
                seen.append(element.value)
                await asyncio.sleep(5.0)

        with pytest.raises(AsyncInvokeError, match="boom"):
            await read_slowly()
        return seen

    assert run_virtual(main) == [1, 11]


def test_an_expired_time_limit_ends_the_generator_with_its_error():
    async def main():
        return await collect(
            ordered_wait([StreamRecord(1)], ScriptedFunction({1: Hang()}), timeout=1.0)
        )

    with pytest.raises(AsyncInvokeError, match="timed out"):
        run_virtual(main)


def test_leaving_the_generator_cancels_the_calls_and_closes_the_function():
    async def main():
        function = ScriptedFunction({1: Hang(), 2: Hang(clings=3.0)})
        async with aclosing(
            unordered_wait(map(StreamRecord, range(100)), function, timeout=None)
        ) as stream:
            async for element in stream:
                first = element.value
                break
        return first, function.closed, function.running, len(asyncio.all_tasks()), now()

    assert run_virtual(main) == (0, 1, 0, 1, 3.0)


def test_a_cancelled_reader_leaves_nothing_behind():
    async def main():
        function = ScriptedFunction({1: Hang()})
        reader = asyncio.create_task(
            collect(ordered_wait(slowly([StreamRecord(1)] * 9), function, timeout=None))
        )
        await asyncio.sleep(3.5)
        reader.cancel()
        await asyncio.wait([reader])
        return reader.cancelled(), function.closed, function.running, len(asyncio.all_tasks())

    assert run_virtual(main) == (True, 1, 0, 1)


@pytest.mark.parametrize("wait", [ordered_wait, unordered_wait])
@pytest.mark.parametrize("capacity", [1, 3])
def test_a_slow_reader_makes_the_generator_hold_no_more_than_capacity_and_one(wait, capacity):
    taken = 0

    def source():
        nonlocal taken
        for value in range(50):
            taken += 1
            yield StreamRecord(value)

    async def main():
        read = most = 0
        async for _ in wait(source(), ScriptedFunction(), timeout=None, capacity=capacity):
            read += 1
            await asyncio.sleep(1.0)
            most = max(most, taken - read)
        return most

    assert run_virtual(main) <= capacity + 1
