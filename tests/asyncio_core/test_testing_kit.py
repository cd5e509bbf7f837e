"""The test kit itself: virtual time and the scripted function."""

import asyncio
import inspect
import random
import time

import pytest

import asyncio_core.testing
from asyncio_core.testing import Fail, Hang, Reply, ScriptedFunction, StuckError, run_virtual


def now():
    return asyncio.get_running_loop().time()


def test_virtual_time_does_not_wait_in_real_time():
    async def main():
        await asyncio.sleep(30 * 24 * 3600.0)
        return now()

    started = time.monotonic()
    assert run_virtual(main) == 30 * 24 * 3600.0
    assert time.monotonic() - started < 3600


def test_run_virtual_accepts_a_coroutine_and_a_coroutine_function():
    async def main():
        return 7

    assert run_virtual(main) == run_virtual(main()) == 7


def test_time_starts_at_zero_and_stands_still_while_code_runs():
    async def main():
        before = now()
        sum(range(10_000))
        await asyncio.sleep(0)
        return before, now()

    assert run_virtual(main) == (0.0, 0.0)


def test_time_limits_of_asyncio_work_in_virtual_time():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(6)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        return now()

    assert run_virtual(main) == 10.0


def test_a_program_that_waits_for_ever_is_an_error_that_names_the_place():
    async def waits_in_vain():
        await asyncio.Event().wait()

    async def main():
        await asyncio.create_task(waits_in_vain(), name="the stuck one")

    with pytest.raises(StuckError, match=r"the stuck one waits at .*test_testing_kit\.py:\d+"):
        run_virtual(main)


def test_a_program_that_sleeps_for_ever_is_an_error():
    with pytest.raises(StuckError, match="no task can go on"):
        run_virtual(asyncio.sleep(float("inf")))


@pytest.mark.proof
@pytest.mark.slow
def test_a_program_that_never_waits_is_an_error():
    async def main():
        while True:  # noqa: ASYNC110 - the mistake under test
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match="without ever waiting"):
        run_virtual(main)


def test_threads_and_sockets_are_refused():
    async def thread():
        await asyncio.to_thread(print)

    async def socket():
        await asyncio.open_connection("127.0.0.1", 9)

    with pytest.raises(RuntimeError, match="keeps real time"):
        run_virtual(thread)
    with pytest.raises((RuntimeError, OSError)):
        run_virtual(socket)


async def race():
    order = []

    async def runner(name):
        for _ in range(5):
            await asyncio.sleep(1.0)
            order.append(name)

    await asyncio.gather(*map(runner, range(8)))
    return order


def test_the_same_seed_gives_the_same_order_and_other_seeds_other_orders():
    orders = [run_virtual(race, seed=seed) for seed in range(5)]
    assert orders == [run_virtual(race, seed=seed) for seed in range(5)]
    assert len(set(map(tuple, orders))) > 1


def test_a_seed_does_not_change_the_order_of_different_instants():
    async def main():
        order = []
        loop = asyncio.get_running_loop()
        delays = [random.Random(1).random() for _ in range(1)] + [0.5, 0.25, 3.0, 1.0]
        for delay in delays:
            loop.call_later(delay, order.append, delay)
        await asyncio.sleep(9)
        return order == sorted(delays)

    assert all(run_virtual(main, seed=seed) for seed in range(10))


def test_a_scripted_function_follows_its_script_and_records_its_calls():
    async def main():
        function = ScriptedFunction({1: [Fail(OSError("x"), 0.5), Reply([10], 1.0)]})
        with pytest.raises(OSError, match="x"):
            await function.async_invoke(1)
        assert await function.async_invoke(1) == [10]
        assert await function.async_invoke(1) == [10], "the last step is repeated"
        assert await function.async_invoke("unscripted") == ["unscripted"]
        return [
            (call.value, call.attempt, call.started, call.ended) for call in function.calls
        ], function.peak

    calls, peak = run_virtual(main)
    assert calls == [
        (1, 1, 0.0, 0.5),
        (1, 2, 0.5, 1.5),
        (1, 3, 1.5, 2.5),
        ("unscripted", 1, 2.5, 2.5),
    ]
    assert peak == 1


def test_a_script_may_be_a_function_of_the_value_and_the_attempt():
    async def main():
        function = ScriptedFunction(lambda value, attempt: Reply([value, attempt]))
        return await function.async_invoke(5), await function.async_invoke(5)

    assert run_virtual(main) == ([5, 1], [5, 2])


def test_a_hanging_call_may_swallow_its_cancellation_for_some_time():
    async def main():
        function = ScriptedFunction({1: Hang(), 2: Hang(clings=2.0)})
        calls = [asyncio.create_task(function.async_invoke(value)) for value in (1, 2)]
        await asyncio.sleep(1.0)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        return now(), [call.cancelled() for call in calls]

    assert run_virtual(main) == (3.0, [True, False])


def test_the_example_of_the_documentation_runs():
    text = inspect.cleandoc(asyncio_core.testing.__doc__).split("Example:\n")[1]
    exec(inspect.cleandoc(text), {**vars(asyncio_core), **vars(asyncio_core.testing)})
