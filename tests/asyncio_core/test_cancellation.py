"""Cancellation from every side: of the producer, of a call, of a worker's task, of close, of
everything at the end.
"""

import asyncio

import pytest

from asyncio_core import (
    AsyncFunction,
    AsyncInvokeError,
    AsyncWaitOperator,
    OutputMode,
    StreamRecord,
    fixed_delay,
)
from asyncio_core.testing import Fail, Hang, Reply, ScriptedFunction, run_virtual


def now():
    return asyncio.get_running_loop().time()


class Scenes(AsyncFunction):
    """Each value names a method of the test's own: `async def scene()`."""

    def __init__(self, **scenes):
        self.scenes = scenes
        self.closed = 0

    def close(self):
        self.closed += 1

    def timeout(self, value):
        return [f"{value} timed out"]

    async def async_invoke(self, value):
        return await self.scenes[value]()


async def reply():
    await asyncio.sleep(0.1)
    return ["reply"]


async def hang():
    await asyncio.get_running_loop().create_future()


def test_a_cancelled_process_element_has_not_taken_its_element(opened):
    async def main():
        async with opened({1: Reply([1], 1.0)}, capacity=1) as run:
            await run.put(1)
            waiting = asyncio.create_task(run.put(2))
            await asyncio.sleep(0.5)
            assert run.operator.snapshot_state() == [StreamRecord(1), StreamRecord(2)]
            waiting.cancel()
            await asyncio.wait([waiting])
            assert run.operator.snapshot_state() == [StreamRecord(1)]
            await run.put(3)
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == [1, 3]


def test_a_process_element_cancelled_as_room_appears_has_not_taken_its_element(
    opened,
):
    async def main():
        async with opened({1: Reply([1], 1.0)}, capacity=1) as run:
            await run.put(1)
            waiting = asyncio.create_task(run.put(2))
            await asyncio.sleep(1.0)
            waiting.cancel()
            taken = (await asyncio.gather(waiting, return_exceptions=True))[0] is None
            await run.put(3)
            await run.operator.end_input()
            return taken, run.values

    for seed in range(4):
        taken, values = run_virtual(main, seed=seed)
        assert values == ([1, 2, 3] if taken else [1, 3])


def test_a_cancelled_end_input_can_be_called_again(opened):
    async def main():
        async with opened({1: Reply([1], 5.0)}) as run:
            await run.put(1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(run.operator.end_input(), 1.0)
            with pytest.raises(RuntimeError, match="has ended"):
                await run.put(2)
            await run.operator.end_input()
            return run.values, now()

    assert run_virtual(main) == ([1], 5.0)


def test_a_cancelled_open_closes_the_function():
    class SlowOpen(ScriptedFunction):
        async def open(self, runtime_context):
            await asyncio.sleep(10)

    async def main():
        function = SlowOpen()
        operator = AsyncWaitOperator(function, print, mode=OutputMode.ORDERED, timeout=1.0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(operator.open(), 1.0)
        await operator.close()
        return function.closed

    assert run_virtual(main) == 1


@pytest.mark.parametrize(
    "ending", ["raises CancelledError", "returns", "raises an error", "goes on"]
)
def test_an_expired_call_does_not_disturb_the_next_call_of_its_task(opened, ending):
    tasks = []

    async def expired():
        tasks.append(asyncio.current_task())
        try:
            await hang()
        except asyncio.CancelledError:
            if ending == "returns":
                return ["too late"]
            if ending == "raises an error":
                raise OSError("too late") from None
            if ending == "goes on":
                await asyncio.sleep(3.0)
                return ["far too late"]
            raise

    async def follower():
        """Would be cut short by any cancellation left over, and by a count of cancellations left
        over.
        """
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1.0))
        assert asyncio.current_task() is tasks[0], "the task serves on"
        assert asyncio.current_task().cancelling() == 0
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await hang()
        return ["undisturbed"]

    async def main():
        scenes = Scenes(a=expired, b=follower)
        async with opened(scenes, timeout=2.0, capacity=2, concurrency=1) as run:
            await run.put("a", "b")
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == ["a timed out", "undisturbed"]


def test_a_cancelled_error_raised_by_the_function_fails_the_record_and_reaches_no_predicate(opened):
    async def awaits_a_cancelled_future():
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async def main():
        shown = []
        strategy = fixed_delay(
            max_retries=3, delay=1.0, on_exception=lambda error: shown.append(error) or True
        )
        async with opened(Scenes(a=awaits_a_cancelled_future), retry_strategy=strategy) as run:
            await run.put("a")
            with pytest.raises(AsyncInvokeError) as failure:
                await run.operator.end_input()
        return type(failure.value.__cause__), shown

    assert run_virtual(main) == (asyncio.CancelledError, [])


def cancelled_elsewhere(*_context):
    raise asyncio.CancelledError


@pytest.mark.parametrize("raising", ["timeout", "survives_timeout", "on_result", "on_exception"])
def test_a_cancelled_error_from_a_hook_or_predicate_fails_the_record(opened, raising):
    predicate = {raising: cancelled_elsewhere} if raising.startswith("on_") else {"on_result": bool}
    script = {"on_result": Reply([0]), "on_exception": Fail(OSError())}

    async def main():
        function = ScriptedFunction({1: script.get(raising, Hang())})
        if not raising.startswith("on_"):
            setattr(function, raising, cancelled_elsewhere)
        strategy = fixed_delay(max_retries=3, delay=1.0, **predicate)
        async with opened(function, timeout=5.0, retry_strategy=strategy) as run:
            await run.put(1)
            with pytest.raises(AsyncInvokeError) as failure:
                await run.operator.end_input()
        return type(failure.value.__cause__)

    assert run_virtual(main) is asyncio.CancelledError


def test_a_cancelled_error_from_the_output_does_not_cancel_the_producer(opened):
    async def main():
        async with opened({}) as run:
            run.operator._output = cancelled_elsewhere
            await run.put(1)
            with pytest.raises(RuntimeError, match="output raised CancelledError"):
                await run.operator.end_input()

    run_virtual(main)


def test_a_call_that_cancels_its_own_task_ends_that_task_and_no_other_call(opened):
    async def cancels_itself():
        asyncio.current_task().cancel()
        return ["done"]

    async def main():
        async with opened(Scenes(a=cancels_itself, b=reply), capacity=4, concurrency=1) as run:
            await run.put("a", "b", "a", "b")
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == ["done", "reply", "done", "reply"]


def test_a_cancelled_idle_worker_is_replaced(opened):
    async def main():
        async with opened(Scenes(a=reply), capacity=4, concurrency=1) as run:
            await run.put("a")
            await asyncio.sleep(1)
            for task in asyncio.all_tasks():
                if task.get_name() == "asyncio_core worker":
                    task.cancel()
            await run.put("a")
            await asyncio.sleep(1)
            await run.put("a")
            await run.operator.end_input()
            return run.values, run.operator.statistics().running

    assert run_virtual(main) == (["reply"] * 3, 0)


def test_a_worker_cancelled_in_a_call_fails_the_record(opened):
    async def main():
        async with opened(Scenes(a=hang)) as run:
            await run.put("a")
            await asyncio.sleep(1)
            next(
                task for task in asyncio.all_tasks() if task.get_name() == "asyncio_core worker"
            ).cancel()
            with pytest.raises(AsyncInvokeError) as failure:
                await run.operator.end_input()
            return type(failure.value.__cause__)

    assert run_virtual(main) is asyncio.CancelledError


def test_a_keyboard_interrupt_in_a_call_reaches_the_caller_of_the_loop():
    async def interrupt():
        raise KeyboardInterrupt

    scenes = Scenes(a=interrupt)

    async def main():
        operator = AsyncWaitOperator(scenes, print, mode=OutputMode.ORDERED, timeout=1.0)
        await operator.open()
        try:
            await operator.process_element(StreamRecord("a"))
            await operator.end_input()
        finally:
            await operator.close()

    with pytest.raises(KeyboardInterrupt):
        run_virtual(main)
    assert scenes.closed == 1


def test_close_cancels_the_calls_and_waits_for_calls_that_swallow_the_cancellation(opened):
    async def main():
        async with opened({1: Hang(), 2: Hang(clings=5.0)}) as run:
            await run.put(1, 2)
            await asyncio.sleep(1.0)
            await run.operator.close()
            assert run.function.running == 0
            return (
                now(),
                [call.cancelled for call in run.function.calls],
                run.operator.statistics().cancelled,
            )

    assert run_virtual(main) == (6.0, [True, False], 2)


def test_a_cancelled_close_closes_the_function_and_then_raises_the_cancellation():
    async def main():
        function = ScriptedFunction({1: Hang(clings=5.0)})
        operator = AsyncWaitOperator(function, print, mode=OutputMode.ORDERED, timeout=None)
        await operator.open()
        await operator.process_element(StreamRecord(1))
        await asyncio.sleep(1.0)
        closing = asyncio.create_task(operator.close())
        await asyncio.sleep(1.0)
        closing.cancel()
        await asyncio.wait([closing])
        return (
            closing.cancelled(),
            function.closed,
            function.running,
            now(),
            len(asyncio.all_tasks()),
        )

    assert run_virtual(main) == (True, 1, 0, 6.0, 1)


def test_a_close_cancelled_while_the_function_closes_cancels_the_close_hook():
    class SlowClose(ScriptedFunction):
        async def close(self):
            await hang()

    async def main():
        operator = AsyncWaitOperator(SlowClose(), print, mode=OutputMode.ORDERED, timeout=None)
        await operator.open()
        closing = asyncio.create_task(operator.close())
        await asyncio.sleep(1.0)
        closing.cancel()
        await asyncio.wait([closing])
        await operator.close()
        return closing.cancelled(), now()

    assert run_virtual(main) == (True, 1.0)


def test_an_operator_that_was_never_closed_does_not_block_the_end_of_the_loop():
    async def main():
        operator = AsyncWaitOperator(
            ScriptedFunction({1: Hang()}), print, mode=OutputMode.ORDERED, timeout=None
        )
        await operator.open()
        await operator.process_element(StreamRecord(1))
        await operator.process_element(StreamRecord(2))
        await asyncio.sleep(1.0)

    run_virtual(main)


def test_an_open_that_awaits_a_cancelled_task_fails():
    class Slip(ScriptedFunction):
        open = cancelled_elsewhere

    async def main():
        operator = AsyncWaitOperator(Slip(), print, mode=OutputMode.ORDERED, timeout=1.0)
        await operator.open()

    with pytest.raises(RuntimeError, match=r"Slip\.open awaited something that was cancelled"):
        run_virtual(main)


def test_a_close_that_awaits_a_cancelled_task_fails_and_hides_no_error():
    class Slip(ScriptedFunction):
        close = cancelled_elsewhere

    async def main(script):
        operator = AsyncWaitOperator(Slip(script), print, mode=OutputMode.ORDERED, timeout=1.0)
        await operator.open()
        await operator.process_element(StreamRecord(1))
        await asyncio.sleep(0.5)
        await operator.close()

    with pytest.raises(RuntimeError, match=r"Slip\.close awaited something that was cancelled"):
        run_virtual(main({1: Reply([])}))
    with pytest.raises(AsyncInvokeError, match="boom") as failure:
        run_virtual(main({1: Fail(ValueError("boom"))}))
    assert "awaited something that was cancelled" in failure.value.__notes__[0]
