"""Snapshot and restore: every element in exactly one place."""

import asyncio
import itertools

import pytest

from asyncio_core import OutputMode, StreamRecord, Watermark, fixed_delay
from asyncio_core.testing import Fail, Hang, Reply, ScriptedFunction, run_virtual


def now():
    return asyncio.get_running_loop().time()


def test_a_snapshot_holds_inputs_whose_results_have_not_left(opened):
    async def main():
        script = {1: Reply([10]), 2: Hang(), 3: Reply([30]), 4: Hang()}
        async with opened(script, capacity=4) as run:
            await run.put(StreamRecord(1, 1), StreamRecord(2, 2), Watermark(3), StreamRecord(3, 4))
            await asyncio.sleep(1)
            waiting = asyncio.create_task(run.put(Watermark(5), StreamRecord(4, 6)))
            await asyncio.sleep(1)
            snapshot = run.operator.snapshot_state()
            waiting.cancel()
            await asyncio.wait([waiting])
            return run.values, snapshot

    values, snapshot = run_virtual(main)
    assert values == [10]
    assert snapshot == [
        StreamRecord(2, 2),
        Watermark(3),
        StreamRecord(3, 4),
        Watermark(5),
        StreamRecord(4, 6),
    ]


def test_a_snapshot_taken_while_results_leave_splits_no_entry(opened):
    snapshots = []

    async def main():
        async with opened({1: Reply([10, 11])}) as run:
            take = run.operator._output

            def take_and_snapshot(element):
                take(element)
                snapshots.append(run.operator.snapshot_state())

            run.operator._output = take_and_snapshot
            await run.put(1)
            await run.operator.end_input()

    run_virtual(main)
    assert snapshots == [[], []], "an element whose results are leaving has left"


@pytest.mark.parametrize("mode", [OutputMode.ORDERED, OutputMode.UNORDERED])
def test_more_elements_than_capacity_are_restored_in_their_order_before_new_input(opened, mode):
    async def main():
        state = [StreamRecord(value, value) for value in range(7)]
        state.insert(3, Watermark(2))
        script = {value: Reply([value], 1.0 + value / 100) for value in range(8)}
        async with opened(script, mode=mode, capacity=2) as run:
            await run.operator.restore_state(state)
            await run.put(StreamRecord(7, 7))
            await run.operator.end_input()
            return run.values, state

    values, _ = run_virtual(main)
    assert values == [0, 1, 2, Watermark(2), 3, 4, 5, 6, 7]


@pytest.mark.parametrize("mode", [OutputMode.ORDERED, OutputMode.UNORDERED])
def test_at_every_turn_of_a_restore_each_element_is_in_exactly_one_place(opened, mode):
    async def main():
        state = [StreamRecord(value) for value in range(12)]
        script = {value: Reply([value], 0.1 * (value % 3)) for value in range(12)}
        async with opened(script, mode=mode, capacity=3, concurrency=2) as run:
            restoring = asyncio.create_task(run.operator.restore_state(state))
            for pause in itertools.cycle([0, 0, 0, 0.01]):
                await asyncio.sleep(pause)
                if restoring.done():
                    break
                inside = [record.value for record in run.operator.snapshot_state()]
                assert sorted(run.values + inside) == list(range(12))
            await restoring
            await run.operator.end_input()
            return len(run.values)

    assert run_virtual(main) == 12


def test_a_cancelled_restore_keeps_the_rest_and_restores_it_before_new_input(opened):
    async def main():
        script = {value: Reply([value], 1.0) for value in range(4)}
        async with opened(script, capacity=1) as run:
            state = [StreamRecord(value) for value in range(4)]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(run.operator.restore_state(state), 1.5)
            assert run.operator.snapshot_state() == state[1:]
            waiting = asyncio.create_task(run.put(4))
            await asyncio.sleep(0)
            assert run.operator.snapshot_state() == [*state[1:], StreamRecord(4)]
            await waiting
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == [0, 1, 2, 3, 4]


def test_end_input_takes_what_a_cancelled_restore_has_left(opened):
    async def main():
        async with opened({value: Reply([value], 1.0) for value in range(3)}, capacity=1) as run:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(run.operator.restore_state(map(StreamRecord, range(3))), 0.5)
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == [0, 1, 2]


def test_several_states_may_be_restored_but_none_after_new_input(opened):
    async def main():
        async with opened({}) as run:
            await run.operator.restore_state([StreamRecord(1)])
            await run.operator.restore_state([StreamRecord(2)])
            await run.put(3)
            with pytest.raises(RuntimeError, match="restored elements come first"):
                await run.operator.restore_state([StreamRecord(4)])
            await run.operator.end_input()
            with pytest.raises(RuntimeError, match="restored elements come first"):
                await run.operator.restore_state([StreamRecord(4)])
            return run.values

    assert run_virtual(main) == [1, 2, 3]


def test_a_state_with_anything_but_elements_is_refused_as_a_whole(opened):
    async def main():
        async with opened({}) as run:
            with pytest.raises(TypeError, match="StreamRecord and Watermark"):
                await run.operator.restore_state([StreamRecord(1), 2])
            return run.operator.snapshot_state()

    assert run_virtual(main) == []


def test_attempts_and_clocks_start_anew_after_a_restore(opened):
    async def main():
        strategy = fixed_delay(max_retries=1, delay=1.0, on_exception=lambda error: True)
        options = {"timeout": 2.0, "timeouts": {1: [-1]}, "retry_strategy": strategy}
        async with opened({1: Fail(OSError(), 0.75)}, **options) as run:
            await run.put(1)
            await asyncio.sleep(1.9)
            state = run.operator.snapshot_state()
        before = now()
        function = ScriptedFunction({1: [Fail(OSError(), 0.75), Reply([1])]}, timeouts={1: [-1]})
        options.pop("timeouts")
        async with opened(function, **options) as run:
            await run.operator.restore_state(state)
            await run.operator.end_input()
            return run.values, now() - before, len(function.calls)

    assert run_virtual(main) == ([1], pytest.approx(1.75), 2)


def test_a_key_ordered_snapshot_restores_the_order_of_each_key(opened):
    async def main():
        script = {
            "a1": Reply(["a1"], 5.0),
            "a2": Reply(["a2"], 1.0),
            "b1": Reply(["b1"], 2.0),
            "c1": Hang(),
        }
        options = {"mode": OutputMode.KEY_ORDERED, "key": lambda value: value[0]}
        async with opened(script, **options) as run:
            await run.put("a1", "a2", "b1", "c1")
            await asyncio.sleep(1.5)
            state = run.operator.snapshot_state()
            assert run.values == []
        async with opened({"a1": Reply(["a1"], 3.0)}, **options) as run:
            await run.operator.restore_state(state)
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == ["b1", "c1", "a1", "a2"]
