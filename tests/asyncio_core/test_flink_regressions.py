"""Mistakes that Flink's operator once made, by the number of the issue that mended them; ours must
not make them.
"""

import asyncio
import gc
import weakref

import pytest

from asyncio_core import (
    AsyncFunction,
    AsyncInvokeError,
    AsyncWaitOperator,
    OutputMode,
    StreamRecord,
    Watermark,
    fixed_delay,
)
from asyncio_core.testing import Fail, Hang, Reply, ScriptedFunction, run_virtual


def now():
    return asyncio.get_running_loop().time()


def timers():
    """The timers that are set on the running loop."""
    return [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]


class Value:
    """Something a weak reference can point to."""


class Chain:
    """Two operators, the first one feeding the second through a pump."""

    def __init__(self, first, second):
        self.between = asyncio.Queue(maxsize=1)
        self.found = []
        self.overflow = []
        options = {"mode": OutputMode.ORDERED, "timeout": None, "capacity": 1}
        self.first = AsyncWaitOperator(first, self.overflow.append, **options)
        self.second = AsyncWaitOperator(second, self.found.append, **options)

    async def pump(self):
        while True:
            while self.overflow:
                await self.second.process_element(self.overflow.pop(0))
            await asyncio.sleep(0.1)


def test_flink_5638_closing_two_chained_operators_does_not_deadlock():
    async def main():
        chain = Chain(ScriptedFunction(), ScriptedFunction({1: Hang()}))
        await chain.second.open()
        await chain.first.open()
        pump = asyncio.create_task(chain.pump())
        for value in (1, 2, 3):
            await chain.first.process_element(StreamRecord(value))
        await asyncio.sleep(1.0)
        await chain.first.close()
        await chain.second.close()
        with pytest.raises(RuntimeError, match="clos"):
            await pump

    run_virtual(main)


def test_flink_5652_a_finished_record_leaves_neither_timer_nor_reference(opened):
    async def main():
        async with opened({}, timeout=3600.0, capacity=4) as run:
            seen = []
            for _ in range(20):
                value = Value()
                seen.append(weakref.ref(value))
                await run.put(value)
                del value
            await run.operator.end_input()
            run.emitted.clear()
            run.function.calls.clear()
            run.function._attempts.clear()
            gc.collect()
            assert [reference() for reference in seen] == [None] * 20
            assert len(timers()) <= 1, "one timer serves all records"
        assert timers() == []

    run_virtual(main)


def test_flink_6435_an_error_or_an_expired_limit_wakes_a_producer_that_waits_for_room(opened):
    async def main():
        for script in ({1: Fail(OSError("boom"), 1.0)}, {1: Hang()}):
            async with opened(script, timeout=2.0, capacity=1) as run:
                await run.put(1)
                with pytest.raises(AsyncInvokeError):
                    await run.put(2)
                assert run.emitted == [], "no result is made up for the failed record"

    run_virtual(main)


def test_flink_7789_the_users_timeout_handler_decides(opened):
    async def main():
        async with opened({1: Hang()}, timeouts={1: ["fallback"]}, timeout=1.0) as run:
            await run.put(1)
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == ["fallback"]


def test_flink_7949_restoring_one_element_more_than_the_queue_holds_does_not_deadlock(opened):
    async def main():
        async with opened({value: Reply([value], 1.0) for value in range(5)}, capacity=4) as run:
            await run.operator.restore_state([StreamRecord(value) for value in range(5)])
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == [0, 1, 2, 3, 4]


def test_flink_12351_an_element_cannot_be_changed_while_the_operator_holds_it():
    record = StreamRecord([1], 5)
    for name in ("value", "timestamp"):
        with pytest.raises(AttributeError):
            setattr(record, name, None)


def test_flink_13063_a_crash_between_chained_operators_emits_every_record_once(opened):
    async def main():
        async with opened({1: Reply([1]), 2: Reply([2], 1.0), 3: Hang()}) as run:
            await run.put(1, 2, 3)
            await asyncio.sleep(2.0)
            left, state = run.values, run.operator.snapshot_state()
        async with opened({}) as run:
            await run.operator.restore_state(state)
            await run.operator.end_input()
            return left + run.values

    assert run_virtual(main) == [1, 2, 3]


def test_flink_13491_end_of_input_waits_for_results_still_open(opened):
    async def main():
        async with opened({1: Reply([1], 100.0)}) as run:
            await run.put(1)
            await run.operator.end_input()
            return run.values, now()

    assert run_virtual(main) == ([1], 100.0)


def test_flink_13635_an_expired_limit_disturbs_no_other_code(opened):
    async def main():
        async with opened(
            {1: Hang(), 2: Reply([2], 3.0)}, timeouts={1: [], 2: []}, timeout=2.5, capacity=2
        ) as run:
            await run.put(1)
            await asyncio.sleep(2.0)
            await run.put(2)  # under way when the limit of 1 expires
            waiting = asyncio.create_task(run.put(3))
            await asyncio.sleep(0.25)
            assert not waiting.done()
            await waiting
            await run.operator.end_input()
            return [
                call.cancelled for call in run.function.calls
            ], asyncio.current_task().cancelling()

    assert run_virtual(main) == ([True, True, False], 0)


def test_flink_16219_a_chained_operator_takes_what_the_first_operator_emits():
    async def main():
        chain = Chain(
            ScriptedFunction({1: Reply([10, 11], 1.0)}), ScriptedFunction({10: Reply([100], 1.0)})
        )
        await chain.second.open()
        await chain.first.open()
        pump = asyncio.create_task(chain.pump())
        for element in (StreamRecord(1, 5), Watermark(5), StreamRecord(2, 6)):
            await chain.first.process_element(element)
        await chain.first.end_input()
        await asyncio.sleep(10)
        await chain.second.end_input()
        pump.cancel()
        await chain.first.close()
        await chain.second.close()
        return chain.found

    assert run_virtual(main) == [
        StreamRecord(100, 5),
        StreamRecord(11, 5),
        Watermark(5),
        StreamRecord(2, 6),
    ]


def test_flink_22573_a_result_that_came_in_time_is_not_followed_by_a_timeout(opened):
    async def main():
        options = {"timeouts": {1: ["too late"], 2: ["in time"]}, "timeout": 2.0}
        async with opened({1: Reply([1], 1.0), 2: Hang()}, **options) as run:
            await run.put(2, 1)  # 1 is complete long before its limit, and still waits behind 2
            await run.operator.end_input()
            return run.values, run.function.timed_out

    assert run_virtual(main) == (["in time", 1], [2])


def test_flink_27878_a_retry_keeps_the_records_place_and_its_one_outcome(opened):
    async def main():
        strategy = fixed_delay(max_retries=3, delay=1.0, on_result=lambda results: not results)
        async with opened({1: [Reply([]), Reply([1])]}, retry_strategy=strategy) as run:
            await run.put(1, 2)
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == [1, 2]


def test_flink_30477_a_limit_that_expires_during_a_backoff_ends_the_retries(opened):
    async def main():
        strategy = fixed_delay(max_retries=9, delay=2.0, on_exception=lambda error: True)
        async with opened(
            {1: Fail(OSError())}, timeouts={1: [-1]}, timeout=1.0, retry_strategy=strategy
        ) as run:
            await run.put(1)
            await run.operator.end_input()
            assert timers() == [], "the retry's timer is gone"
            await asyncio.sleep(10.0)
            return run.times, len(run.function.calls)

    assert run_virtual(main) == ([1.0], 1)


def test_flink_35810_nothing_is_scheduled_after_close(opened):
    async def main():
        strategy = fixed_delay(max_retries=9, delay=5.0, on_exception=lambda error: True)
        options = {"timeout": 60.0, "retry_strategy": strategy, "capacity": 3, "concurrency": 2}
        async with opened({1: Fail(OSError()), 2: Hang()}, **options) as run:
            await run.put(1, 2, 3)
            await asyncio.sleep(1.0)
            calls = len(run.function.calls)
            assert timers()
        assert timers() == []
        await asyncio.sleep(100.0)
        return len(run.function.calls) - calls

    assert run_virtual(main) == 0


def test_flink_38082_the_error_of_a_timeout_is_not_retried(opened):
    async def main():
        strategy = fixed_delay(max_retries=9, delay=0.1, on_exception=lambda error: True)
        async with opened({1: Hang()}, timeout=1.0, retry_strategy=strategy) as run:
            await run.put(1)
            with pytest.raises(AsyncInvokeError, match="timed out"):
                await run.operator.end_input()
            return len(run.function.calls), now()

    assert run_virtual(main) == (1, 1.0)


def test_flink_39680_a_full_queue_does_not_delay_a_snapshot(opened):
    async def main():
        async with opened({1: Hang()}, capacity=1) as run:
            await run.put(1)
            waiting = asyncio.create_task(run.put(2))
            await asyncio.sleep(1.0)
            state = run.operator.snapshot_state()
            waiting.cancel()
            await asyncio.wait([waiting])
            return state, now()

    assert run_virtual(main) == ([StreamRecord(1), StreamRecord(2)], 1.0)


@pytest.mark.parametrize("attempt_takes", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_flink_40456_a_limit_that_meets_a_retry_in_one_instant_loses_no_record(
    opened, attempt_takes, seed
):
    """The limit expires in the very instant in which an attempt fails, or in which the next one is
    due.
    """

    async def main():
        strategy = fixed_delay(max_retries=9, delay=1.0, on_exception=lambda error: True)
        script = {value: Fail(OSError(), attempt_takes) for value in range(3)}
        options = {
            "timeout": 3.0,
            "timeouts": {value: [value] for value in range(3)},
            "retry_strategy": strategy,
        }
        async with opened(script, **options) as run:
            await run.put(0, 1, 2)
            await run.operator.end_input()
            await asyncio.sleep(50.0)
            statistics = run.operator.statistics()
            return (
                run.values,
                run.times,
                sorted(run.function.timed_out),
                statistics.waiting_for_retry,
            )

    assert run_virtual(main, seed=seed) == ([0, 1, 2], [3.0] * 3, [0, 1, 2], 0)


def test_item_78_a_retry_in_flight_at_the_end_of_input_gets_no_second_call(opened):
    async def main():
        strategy = fixed_delay(max_retries=9, delay=1.0, on_exception=lambda error: True)
        async with opened({1: [Fail(OSError()), Reply([1], 5.0)]}, retry_strategy=strategy) as run:
            await run.put(1)
            await asyncio.sleep(2.0)
            await run.operator.end_input()
            return run.values, len(run.function.calls)

    assert run_virtual(main) == ([1], 2)


def test_item_79_a_record_that_timed_out_in_its_first_backoff_is_never_called_again(opened):
    async def main():
        strategy = fixed_delay(max_retries=9, delay=2.0, on_exception=lambda error: True)
        script = {1: Fail(OSError()), 2: Reply([2], 9.0)}
        async with opened(script, timeouts={1: [-1]}, timeout=10.0, retry_strategy=strategy) as run:
            run.operator._calls._limit = 1.0
            await run.put(1)
            await asyncio.sleep(1.5)
            await run.operator.end_input()
            return run.values, len(run.function.calls)

    assert run_virtual(main) == ([-1], 1)


class Unpaired(AsyncFunction):
    """Completes first with a value and then, cancelled, with another one."""

    async def async_invoke(self, value):
        try:
            await asyncio.sleep(value)
        except asyncio.CancelledError:
            return ["second"]
        return ["first"]

    def timeout(self, value):
        return ["timeout"]


def test_item_36_the_first_outcome_wins_and_later_outcomes_are_dropped_silently(opened):
    async def main():
        async with opened(Unpaired(), timeout=2.0) as run:
            await run.put(9.0, 1.0)
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == ["timeout", "first"]
