"""Life cycle, capacity, concurrency, order and errors of the operator."""

import asyncio
import types

import pytest

from asyncio_core import (
    AsyncFunction,
    AsyncInvokeError,
    AsyncWaitOperator,
    Gate,
    OutputMode,
    StreamRecord,
    Watermark,
    fixed_delay,
)
from asyncio_core.testing import Fail, Hang, Reply, ScriptedFunction, run_virtual


def now():
    return asyncio.get_running_loop().time()


def slow(*values, after=1.0):
    return {value: Reply([value], after=after) for value in values}


@pytest.mark.parametrize("mode", list(OutputMode))
def test_no_record_crosses_a_watermark(opened, mode):
    async def main():
        script = {1: Reply([1], 3.0), 2: Reply([2], 1.0), 3: Reply([3], 2.0), 4: Reply([4], 0.5)}
        key = (lambda value: value % 2) if mode is OutputMode.KEY_ORDERED else None
        async with opened(script, mode=mode, key=key) as run:
            await run.put(1, 2, Watermark(5), 3, 4, Watermark(6))
            await run.operator.end_input()
            return run.values

    first, second = ([1, 2], [3, 4]) if mode is OutputMode.ORDERED else ([2, 1], [4, 3])
    assert run_virtual(main) == [*first, Watermark(5), *second, Watermark(6)]


def test_key_ordered_lets_other_keys_overtake_and_lets_calls_of_a_key_overlap(opened):
    async def main():
        script = {"a1": Reply(["a1"], 3.0), "a2": Reply(["a2"], 1.0), "b1": Reply(["b1"], 2.0)}
        async with opened(script, mode=OutputMode.KEY_ORDERED, key=lambda value: value[0]) as run:
            await run.put("a1", "a2", "b1")
            await run.operator.end_input()
            return run.values, run.times, run.function.peak

    assert run_virtual(main) == (["b1", "a1", "a2"], [2.0, 3.0, 3.0], 3)


def test_a_watermark_without_an_open_record_before_it_leaves_at_once(opened):
    async def main():
        async with opened({}) as run:
            await run.put(Watermark(1))
            return run.values

    assert run_virtual(main) == [Watermark(1)]


def test_results_leave_without_waiting_for_the_next_input(opened):
    async def main():
        async with opened(slow(1)) as run:
            await run.put(1)
            await asyncio.sleep(1.5)
            return run.times

    assert run_virtual(main) == [1.0]


def test_a_full_queue_holds_up_the_input_until_an_element_has_left(opened):
    async def main():
        async with opened(slow(1) | slow(2, 3, after=1.5), capacity=2) as run:
            await run.put(1, 2)
            assert now() == 0.0
            await run.put(3)
            return now(), run.operator.statistics().queued

    assert run_virtual(main) == (1.0, 2)


def test_while_records_wait_for_calls_a_full_queue_refills_in_steps_of_several_places(
    opened,
):
    async def main():
        async with opened(slow(*range(19)), capacity=17, concurrency=1) as run:
            await run.put(*range(17))
            assert now() == 0.0
            await run.put(17)
            assert now() == 2.0
            await run.put(18)
            return now()

    assert run_virtual(main) == 2.0


@pytest.mark.parametrize("waiting", ["for a retry", "aside"])
def test_a_producer_that_waits_for_several_places_leaves_no_slot_idle(opened, waiting):
    class Function(AsyncFunction):
        async def async_invoke(self, value):
            if value == 0:
                await asyncio.sleep(1)
            elif value < 17 and waiting == "aside":
                with run.operator.yield_slot():
                    await asyncio.sleep(100)
            elif value < 17 and now() < 100:
                raise OSError
            called[value] = now()
            return [value]

    called = {}

    async def main():
        nonlocal run
        async with opened(
            Function(),
            capacity=17,
            concurrency=1,
            mode=OutputMode.UNORDERED,
            retry_strategy=fixed_delay(max_retries=9, delay=100, on_exception=bool),
        ) as run:
            await run.put(*range(18))
            await run.operator.end_input()

    run = None
    run_virtual(main)
    assert called[0] == called[17] == 1.0


def test_watermarks_take_capacity_but_no_concurrency(opened):
    async def main():
        async with opened(slow(1, 2), capacity=3, concurrency=2) as run:
            await run.put(1, Watermark(1), 2)
            await asyncio.sleep(0.5)
            return run.operator.statistics().queued, run.function.running

    assert run_virtual(main) == (3, 2)


def test_concurrency_bounds_the_calls_below_capacity(opened):
    async def main():
        async with opened(slow(*range(10)), capacity=10, concurrency=3) as run:
            await run.put(*range(10))
            assert now() == 0.0
            await run.operator.end_input()
            return run.function.peak, now()

    assert run_virtual(main) == (3, 4.0)


def test_ordered_mode_with_spare_capacity_keeps_all_slots_busy_behind_a_slow_head(opened):
    async def main():
        script = {0: Reply([0], 10.0)} | slow(*range(1, 11))
        async with opened(script, capacity=20, concurrency=2) as run:
            await run.put(*range(11))
            await run.operator.end_input()
            return now(), run.values

    assert run_virtual(main) == (10.0, list(range(11)))


def test_each_result_carries_the_timestamp_of_its_record(opened):
    async def main():
        async with opened({1: Reply([10, 11]), 2: Reply([]), 3: Reply([30])}) as run:
            await run.put(StreamRecord(1, 5), StreamRecord(2, 6), StreamRecord(3))
            await run.operator.end_input()
            return run.emitted

    assert run_virtual(main) == [StreamRecord(10, 5), StreamRecord(11, 5), StreamRecord(30)]


def test_end_input_waits_for_everything_and_adds_no_watermark(opened):
    async def main():
        async with opened(slow(1, 2)) as run:
            await run.put(1, 2)
            await run.operator.end_input()
            await run.operator.end_input()
            return run.values, now()

    assert run_virtual(main) == ([1, 2], 1.0)


@pytest.mark.parametrize(
    "method", ["process_element", "end_input", "restore_state", "snapshot_state"]
)
def test_every_method_is_refused_before_open_and_after_close(method):
    async def call(operator):
        arguments = {"process_element": [StreamRecord(1)], "restore_state": [[]]}.get(method, [])
        returned = getattr(operator, method)(*arguments)
        if method != "snapshot_state":
            await returned

    async def main():
        operator = AsyncWaitOperator(
            ScriptedFunction(), print, mode=OutputMode.ORDERED, timeout=1.0
        )
        with pytest.raises(RuntimeError, match="not open yet"):
            await call(operator)
        await operator.open()
        with pytest.raises(RuntimeError, match="opened once"):
            await operator.open()
        await operator.close()
        with pytest.raises(RuntimeError, match="closed"):
            await call(operator)

    run_virtual(main)


def test_input_after_end_input_is_refused(opened):
    async def main():
        async with opened({}) as run:
            await run.operator.end_input()
            with pytest.raises(RuntimeError, match="has ended"):
                await run.put(1)

    run_virtual(main)


@pytest.mark.parametrize("method", ["process_element", "end_input", "restore_state"])
def test_a_second_concurrent_producer_is_refused(opened, method):
    async def main():
        async with opened({1: Hang()}, capacity=1) as run:
            await run.put(1)
            waiting = asyncio.create_task(run.put(2))
            await asyncio.sleep(0)
            arguments = {"process_element": [StreamRecord(3)], "restore_state": [[]]}.get(
                method, []
            )
            with pytest.raises(RuntimeError, match="one producer"):
                await getattr(run.operator, method)(*arguments)
            waiting.cancel()
            await asyncio.wait([waiting])

    run_virtual(main)


def test_a_value_that_is_not_an_element_is_refused(opened):
    async def main():
        async with opened({}) as run:
            with pytest.raises(TypeError, match="StreamRecord and Watermark"):
                await run.operator.process_element(5)
            await run.put(1)
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == [1]


def test_close_without_open_calls_nothing():
    async def main():
        function = ScriptedFunction()
        operator = AsyncWaitOperator(function, print, mode=OutputMode.ORDERED, timeout=1.0)
        await operator.close()
        await operator.close()
        with pytest.raises(RuntimeError, match="closed"):
            await operator.open()
        return function.opened, function.closed

    assert run_virtual(main) == (0, 0)


def test_a_failed_open_closes_the_function_once():
    class Broken(ScriptedFunction):
        def open(self, runtime_context):
            super().open(runtime_context)
            raise OSError("no service")

    async def main():
        function = Broken()
        operator = AsyncWaitOperator(function, print, mode=OutputMode.ORDERED, timeout=1.0)
        with pytest.raises(OSError, match="no service"):
            await operator.open()
        await operator.close()
        return function.opened, function.closed

    assert run_virtual(main) == (1, 1)


def test_close_while_open_is_under_way_is_refused():
    class Slow(ScriptedFunction):
        async def open(self, runtime_context):
            await asyncio.sleep(1)

    async def main():
        operator = AsyncWaitOperator(Slow(), print, mode=OutputMode.ORDERED, timeout=1.0)
        opening = asyncio.create_task(operator.open())
        await asyncio.sleep(0.5)
        with pytest.raises(RuntimeError, match="cancel open"):
            await operator.close()
        await opening
        await operator.close()

    run_virtual(main)


def test_a_second_close_waits_for_the_first():
    class SlowClose(ScriptedFunction):
        async def close(self):
            super().close()
            await asyncio.sleep(1)

    async def main():
        function = SlowClose()
        operator = AsyncWaitOperator(function, print, mode=OutputMode.ORDERED, timeout=1.0)
        await operator.open()
        first = asyncio.create_task(operator.close())
        await asyncio.sleep(0)
        await operator.close()
        assert first.done()
        return now(), function.closed

    assert run_virtual(main) == (1.0, 1)


def test_close_from_within_the_function_is_refused(opened):
    class Suicidal(AsyncFunction):
        async def async_invoke(self, value):
            await value.close()
            return []

    async def main():
        async with opened(Suicidal()) as run:
            await run.put(run.operator)
            with pytest.raises(AsyncInvokeError, match="from within the function"):
                await run.operator.end_input()

    run_virtual(main)


def test_close_wakes_a_waiting_producer(opened):
    async def main():
        async with opened({1: Hang()}, capacity=1) as run:
            await run.put(1)
            waiting = asyncio.create_task(run.put(2))
            await asyncio.sleep(0)
            await run.operator.close()
            with pytest.raises(RuntimeError, match="clos"):
                await waiting

    run_virtual(main)


def test_an_operators_error_names_record_attempt_and_time_and_has_the_users_error_as_cause(opened):
    async def main():
        strategy = fixed_delay(
            max_retries=2, delay=1.0, on_exception=lambda error: isinstance(error, OSError)
        )
        boom = ValueError("boom")
        script = {7: [Fail(OSError("refused"), 0.5), Fail(boom, 0.5)]}
        async with opened(script, retry_strategy=strategy) as run:
            await run.put(StreamRecord(7, 70))
            with pytest.raises(
                AsyncInvokeError,
                match=(
                    r"record 7 .*attempt 2 after 2\.000 "
                    r"s.*boom"
                ),
            ) as failure:
                await run.operator.end_input()
        error = failure.value
        assert error.__cause__ is boom
        return error.element, error.attempts, error.elapsed

    assert run_virtual(main) == (StreamRecord(7, 70), 2, 2.0)


def test_every_method_raises_the_first_error_and_close_does_not_repeat_it(opened):
    async def main():
        async with opened(
            {1: Fail(ValueError("first"), 1.0), 2: Fail(ValueError("second"), 2.0)}
        ) as run:
            await run.put(1, 2)
            await asyncio.sleep(3.0)
            for call in (run.put(3), run.operator.end_input(), run.operator.restore_state([])):
                with pytest.raises(AsyncInvokeError, match="first"):
                    await call

    run_virtual(main)


def test_close_raises_an_error_that_no_other_method_raised():
    async def main():
        function = ScriptedFunction({1: Fail(ValueError("boom"))})
        operator = AsyncWaitOperator(function, print, mode=OutputMode.ORDERED, timeout=1.0)
        await operator.open()
        await operator.process_element(StreamRecord(1))
        await asyncio.sleep(0.5)
        with pytest.raises(AsyncInvokeError, match="boom"):
            await operator.close()
        await operator.close()
        return function.closed

    assert run_virtual(main) == 1


@pytest.mark.parametrize("waits_in", ["process_element", "end_input"])
def test_an_error_wakes_the_waiting_producer(opened, waits_in):
    async def main():
        async with opened({1: Fail(ValueError("boom"), 1.0)}, capacity=1) as run:
            await run.put(1)
            with pytest.raises(AsyncInvokeError, match="boom"):
                await (run.put(2) if waits_in == "process_element" else run.operator.end_input())
            return now()

    assert run_virtual(main) == 1.0


def test_after_an_error_no_result_leaves_and_no_call_starts(opened):
    async def main():
        script = {1: Fail(ValueError("boom"), 1.0), 2: Reply([2], 0.5), 3: Reply([3], 2.0)}
        async with opened(script, mode=OutputMode.UNORDERED, concurrency=3) as run:
            await run.put(1, 2, 3, 4)
            await asyncio.sleep(5)
            with pytest.raises(AsyncInvokeError):
                await run.operator.end_input()
            snapshot = run.operator.snapshot_state()
        return (
            run.values,
            [call.value for call in run.function.calls],
            {record.value for record in snapshot},
        )

    values, calls, snapshot = run_virtual(main)
    assert values == [2, 4]
    assert calls == [1, 2, 3, 4]
    assert snapshot == {1, 3}, "what failed or did not leave is still in the state"


def test_an_output_that_raises_fails_the_operator(opened):
    async def main():
        async with opened({}) as run:
            run.operator._output = lambda element: 1 / 0
            await run.put(1)
            with pytest.raises(ZeroDivisionError):
                await run.operator.end_input()
        async with opened({}) as run:
            run.operator._output = lambda element: 1 / 0
            with pytest.raises(ZeroDivisionError):
                await run.put(Watermark(1))

    run_virtual(main)


def test_an_error_of_close_is_raised_or_noted_on_the_error_before_it():
    class BrokenClose(ScriptedFunction):
        def close(self):
            raise OSError("cannot close")

    async def main(script):
        operator = AsyncWaitOperator(
            BrokenClose(script), print, mode=OutputMode.ORDERED, timeout=1.0
        )
        await operator.open()
        await operator.process_element(StreamRecord(1))
        await asyncio.sleep(0.5)
        await operator.close()

    with pytest.raises(OSError, match="cannot close"):
        run_virtual(main({1: Reply([])}))
    with pytest.raises(AsyncInvokeError, match="boom") as failure:
        run_virtual(main({1: Fail(ValueError("boom"))}))
    assert "cannot close" in failure.value.__notes__[0]


def test_statistics_count_the_elements_inside_and_the_calls_made(opened):
    async def main():
        strategy = fixed_delay(max_retries=1, delay=2.0, on_exception=lambda error: True)
        script = {1: [Fail(OSError()), Reply([1])], 2: Hang(), 3: Reply([3], 0.5), 4: Reply([4])}
        options = {
            "timeout": 4.0,
            "timeouts": {2: []},
            "capacity": 6,
            "concurrency": 2,
            "retry_strategy": strategy,
        }
        async with opened(script, **options) as run:
            await run.put(1, 2, 3, Watermark(9), 4)
            await asyncio.sleep(1.0)
            middle = run.operator.statistics()
            await run.operator.end_input()
        return middle, run.operator.statistics()

    middle, end = run_virtual(main)
    assert (middle.capacity, middle.concurrency) == (6, 2)
    assert (middle.queued, middle.running, middle.waiting_for_retry, middle.outstanding) == (
        5,
        1,
        1,
        2,
    )
    assert (middle.records, middle.watermarks, middle.emitted) == (4, 1, 0)
    assert (middle.attempts, middle.retries, middle.failures, middle.timeouts) == (4, 0, 1, 0)
    assert (end.queued, end.running, end.waiting_for_retry, end.outstanding) == (0, 0, 0, 0)
    assert (end.records, end.watermarks, end.emitted) == (4, 1, 5)
    assert (end.attempts, end.retries, end.failures, end.timeouts, end.cancelled) == (5, 1, 1, 1, 1)


def test_statistics_after_close_count_emitted_and_dropped_records_separately(opened):
    async def main():
        async with opened({1: Reply([1]), 2: Hang()}, concurrency=2) as run:
            await run.put(1, 2, 3, Watermark(5))
            await asyncio.sleep(1)
        return run.operator.statistics()

    end = run_virtual(main)
    assert (end.records, end.watermarks, end.emitted, end.queued, end.attempts, end.cancelled) == (
        3,
        1,
        1,
        0,
        3,
        1,
    )


def test_a_retry_that_comes_due_while_an_idle_worker_looks_for_records_is_made():
    class Function(AsyncFunction):
        def __init__(self):
            self.go, self.called = asyncio.Event(), []

        async def async_invoke(self, value):
            self.called.append(value)
            await self.go.wait()
            if value == "second":
                asyncio.get_running_loop()._clock.now += 0.002  # its own work
                await asyncio.sleep(0)
            elif self.called.count(value) == 1:
                raise ValueError
            return [value]

    async def main():
        function, emitted = Function(), []
        retry = fixed_delay(max_retries=1, delay=0.001, on_exception=lambda _error: True)
        operator = AsyncWaitOperator(
            function,
            emitted.append,
            mode=OutputMode.UNORDERED,
            timeout=None,
            capacity=2,
            retry_strategy=retry,
        )
        await operator.open()
        asyncio.get_running_loop().call_later(1.0, function.go.set)
        # the last one finds it full
        for element in (StreamRecord("first"), StreamRecord("second"), Watermark(1)):
            await operator.process_element(element)
        await operator.end_input()
        await operator.close()
        return [element.value for element in emitted[:2]]

    assert run_virtual(main) == ["second", "first"]


def eagerly(loop, coroutine, **named):
    """Runs a worker's first step at once, as asyncio.eager_task_factory does in Python 3.12."""
    if not coroutine.__qualname__.endswith("._work"):
        return asyncio.Task(coroutine, loop=loop, **named)
    awaited = coroutine.send(None)

    @types.coroutine
    def rest():
        yield awaited
        return (yield from coroutine)

    return asyncio.Task(rest(), loop=loop, **named)


EAGERLY = getattr(asyncio, "eager_task_factory", eagerly)


def test_a_loop_with_eager_tasks_calls_all_records_and_refuses_close_within_a_call():
    class Closes(ScriptedFunction):
        async def async_invoke(self, value):
            with pytest.raises(RuntimeError, match="from within the function"):
                await operator.close()
            return [value]

    async def main():
        nonlocal operator
        asyncio.get_running_loop().set_task_factory(EAGERLY)
        gate, out = Gate(), []
        operator = AsyncWaitOperator(
            Closes(), out.append, mode=OutputMode.ORDERED, timeout=1.0, capacity=2000, gate=gate
        )
        await operator.open()
        gate.close()
        for number in range(2000):
            await operator.process_element(StreamRecord(number))
        gate.open()
        await operator.end_input()
        await operator.close()
        return [record.value for record in out]

    operator = None
    assert run_virtual(main) == [*range(2000)]
