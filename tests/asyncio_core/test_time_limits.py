"""Time limits, retries and the gate: what the clock of a record counts, and who decides."""

import asyncio

import pytest

from asyncio_core import (
    AsyncInvokeError,
    Gate,
    OutputMode,
    StreamRecord,
    exponential_backoff,
    fixed_delay,
)
from asyncio_core.testing import Fail, Hang, Reply, run_virtual


def now():
    return asyncio.get_running_loop().time()


def retry(max_retries=3, delay=1.0, **predicates):
    return fixed_delay(
        max_retries=max_retries, delay=delay, **(predicates or {"on_exception": lambda error: True})
    )


def starts(function, value):
    return [call.started for call in function.calls if call.value == value]


def test_an_expired_time_limit_gives_the_results_of_the_timeout_method(opened):
    async def main():
        async with opened(
            {1: Hang(), 2: Hang()}, timeouts={1: [-1, -2], 2: []}, timeout=1.0
        ) as run:
            await run.put(StreamRecord(1, 5), 2)
            await run.operator.end_input()
            return run.emitted, run.times, run.function.timed_out

    assert run_virtual(main) == ([StreamRecord(-1, 5), StreamRecord(-2, 5)], [1.0, 1.0], [1, 2])


def test_by_default_an_expired_time_limit_fails_the_operator(opened):
    async def main():
        async with opened({1: Hang()}, timeout=1.0) as run:
            await run.put(1)
            with pytest.raises(
                AsyncInvokeError,
                match=(
                    r"attempt 1 after 1\.000 s.*timed "
                    r"out"
                ),
            ) as failure:
                await run.operator.end_input()
            assert isinstance(failure.value.__cause__, TimeoutError)

    run_virtual(main)


def test_the_expired_call_is_cancelled_and_its_slot_is_free(opened):
    async def main():
        async with opened(
            {1: Hang()}, timeouts={1: [-1]}, timeout=1.0, capacity=2, concurrency=1
        ) as run:
            await run.put(1, 2)
            await run.operator.end_input()
            first, second = run.function.calls
            return first.cancelled, first.ended, second.started, run.values

    assert run_virtual(main) == (True, 1.0, 1.0, [-1, 2])


def survivors(*values):
    """What lets the calls of these values go on when their records' time is up."""
    return lambda value: value in values


def test_a_call_that_survives_its_time_limit_runs_on_and_its_result_is_dropped(opened):
    async def main():
        script = {1: Reply(["late"], after=3.0), 2: Reply([2], after=0.5)}
        async with opened(
            script, timeouts={1: [-1]}, survives_timeout=survivors(1), timeout=1.0, concurrency=1
        ) as run:
            await run.put(1, 2)
            await run.operator.end_input()
            first, second = run.function.calls
            figures = run.operator.statistics()
            return (
                first.cancelled,
                first.ended,
                second.started,
                run.values,
                figures.timeouts,
                figures.cancelled,
            )

    assert run_virtual(main) == (False, 3.0, 3.0, [-1, 2], 1, 0)


def test_the_error_of_a_call_that_survived_its_time_limit_is_dropped(opened):
    async def main():
        script = {1: Fail(ValueError("late"), after=3.0), 2: Reply([2])}
        async with opened(
            script, timeouts={1: [-1]}, survives_timeout=survivors(1), timeout=1.0, concurrency=1
        ) as run:
            await run.put(1, 2)
            await run.operator.end_input()
            return run.values

    assert run_virtual(main) == [-1, 2]


def test_close_cancels_a_call_that_survived_its_time_limit(opened):
    async def main():
        async with opened(
            {1: Hang()}, timeouts={1: [-1]}, survives_timeout=survivors(1), timeout=1.0
        ) as run:
            await run.put(1)
            await run.operator.end_input()
            assert not run.function.calls[0].cancelled
            await run.operator.close()
            cancelled = run.operator.statistics().cancelled
            return run.function.calls[0].cancelled, run.values, cancelled

    assert run_virtual(main) == (True, [-1], 1)


def test_a_call_that_survived_its_time_limit_ends_when_the_loop_cancels_it(
    opened,
):
    async def main():
        async with opened(
            {1: Hang()}, timeouts={1: [-1]}, survives_timeout=survivors(1), timeout=1.0
        ) as run:
            await run.put(1)
            await run.operator.end_input()
            (worker,) = asyncio.all_tasks() - {asyncio.current_task()}
            worker.cancel()
            await asyncio.wait([worker])
            return worker.cancelled(), run.values

    assert run_virtual(main) == (True, [-1])


def test_time_spent_waiting_for_a_slot_does_not_count(opened):
    async def main():
        script = {value: Reply([value], after=0.9) for value in range(5)}
        async with opened(script, timeout=1.0, capacity=5, concurrency=1) as run:
            await run.put(*range(5))
            await run.operator.end_input()
            return run.values, now()

    assert run_virtual(main) == (list(range(5)), pytest.approx(4.5))


def test_one_limit_covers_all_attempts_and_the_waits_between_them(opened):
    async def main():
        script = {1: Fail(OSError(), after=0.5)}
        async with opened(
            script, timeouts={1: [-1]}, timeout=4.0, retry_strategy=retry(max_retries=99)
        ) as run:
            await run.put(1)
            await run.operator.end_input()
            return run.times, starts(run.function, 1)

    assert run_virtual(main) == ([4.0], [0.0, 1.5, 3.0])


def test_the_results_of_the_timeout_method_are_final(opened):
    async def main():
        strategy = retry(on_result=lambda results: not results, on_exception=lambda error: True)
        async with opened(
            {1: Hang(), 2: Hang()}, timeouts={1: []}, timeout=1.0, retry_strategy=strategy
        ) as run:
            await run.put(1)
            await asyncio.sleep(1.5)
            await run.put(2)
            with pytest.raises(AsyncInvokeError, match="timed out"):
                await run.operator.end_input()
            return len(run.function.calls), now()

    assert run_virtual(main) == (2, 2.5)


def test_a_timeout_handler_that_raises_fails_the_operator_with_its_error(opened):
    async def main():
        async with opened({1: Hang()}, timeouts={1: ValueError("boom")}, timeout=1.0) as run:
            await run.put(1)
            with pytest.raises(AsyncInvokeError, match="boom"):
                await run.operator.end_input()

    run_virtual(main)


def test_an_exception_of_any_class_from_a_timeout_handler_fails_the_operator(opened):
    class Verdict(BaseException):
        """As pytest.fail() raises it."""

    async def main():
        async with opened({1: Hang()}, timeouts={1: Verdict("slow")}, timeout=1.0) as run:
            await run.put(1)
            with pytest.raises(AsyncInvokeError, match="Verdict: slow"):
                await run.operator.end_input()

    run_virtual(main)


def test_a_call_that_swallows_the_cancellation_keeps_its_slot(opened):
    async def main():
        options = {"timeouts": {1: [-1]}, "timeout": 1.0, "capacity": 3, "concurrency": 1}
        async with opened({1: Hang(clings=5.0)}, **options) as run:
            await run.put(1, 2)
            await asyncio.sleep(2.0)
            assert run.values == [-1]
            assert run.operator.statistics().running == 1
            await run.operator.end_input()
            return starts(run.function, 2), run.values, run.function.peak

    assert run_virtual(main) == ([6.0], [-1, 2], 1)


def test_without_a_limit_a_record_waits_as_long_as_it_takes(opened):
    async def main():
        async with opened({1: Reply([1], after=1e6)}, timeout=None) as run:
            await run.put(1)
            await run.operator.end_input()
            return run.times

    assert run_virtual(main) == [1e6]


def test_many_records_expire_in_the_order_in_which_they_started(opened):
    async def main():
        script = {value: Hang() for value in range(50)}
        timeouts = {value: [value] for value in range(50)}
        options = {"mode": OutputMode.UNORDERED, "timeout": 10.0, "timeouts": timeouts}
        async with opened(script, **options) as run:
            for value in range(50):
                await run.put(value)
                await asyncio.sleep(0.1)
            await run.operator.end_input()
            return run.values, run.times

    values, times = run_virtual(main)
    assert values == list(range(50))
    assert times == pytest.approx([10 + value / 10 for value in range(50)])


def test_a_retry_waits_from_the_end_of_the_attempt(opened):
    async def main():
        script = {1: [Fail(OSError(), after=0.25), Fail(OSError()), Reply([1])]}
        async with opened(script, retry_strategy=retry(delay=1.0)) as run:
            await run.put(1)
            await run.operator.end_input()
            return starts(run.function, 1)

    assert run_virtual(main) == [0.0, 1.25, 2.25]


def test_a_waiting_retry_frees_its_slot_and_comes_before_new_records(opened):
    async def main():
        script = {1: [Fail(OSError()), Reply([1], 1.0)]} | {
            value: Reply([value], 1.0) for value in (2, 3, 4)
        }
        async with opened(
            script, capacity=9, concurrency=1, retry_strategy=retry(delay=1.5)
        ) as run:
            await run.put(1, 2, 3, 4)
            await asyncio.sleep(0.5)
            assert run.operator.statistics().waiting_for_retry == 1
            await run.operator.end_input()
            return [(call.value, call.started) for call in run.function.calls]

    assert run_virtual(main) == [(1, 0.0), (2, 0.0), (3, 1.0), (1, 2.0), (4, 3.0)]


def test_a_retry_may_expire_while_it_waits_for_a_slot(opened):
    async def main():
        script = {1: [Fail(OSError()), Reply([1])], 2: Reply([2], 5.0)}
        options = {"timeouts": {1: [-1], 2: [-2]}, "timeout": 3.0, "capacity": 9, "concurrency": 1}
        async with opened(script, **options, retry_strategy=retry()) as run:
            await run.put(1, 2)
            await asyncio.sleep(2.5)
            assert run.operator.statistics().waiting_for_retry == 1
            await run.operator.end_input()
            return (
                run.values,
                len(starts(run.function, 1)),
                run.operator.statistics().waiting_for_retry,
            )

    assert run_virtual(main) == ([-1, -2], 1, 0)


def test_after_the_last_retry_a_result_is_emitted_and_an_error_fails_the_operator(opened):
    async def main():
        strategy = retry(
            2, on_result=lambda results: results == [0], on_exception=lambda error: True
        )
        async with opened(
            {1: Reply([0]), 2: Fail(OSError("refused"))}, retry_strategy=strategy
        ) as run:
            await run.put(1)
            await asyncio.sleep(5)
            assert run.values == [0]
            await run.put(2)
            with pytest.raises(AsyncInvokeError, match=r"attempt 3.*refused"):
                await run.operator.end_input()
            return len(run.function.calls)

    assert run_virtual(main) == 6


def test_an_outcome_that_no_predicate_matches_is_final_at_once(opened):
    async def main():
        strategy = retry(on_exception=lambda error: isinstance(error, OSError))
        async with opened({1: Fail(ValueError("boom"))}, retry_strategy=strategy) as run:
            await run.put(1)
            with pytest.raises(AsyncInvokeError, match="boom"):
                await run.operator.end_input()
            return now(), len(run.function.calls)

    assert run_virtual(main) == (0.0, 1)


@pytest.mark.parametrize("outcome", [Reply([1]), Fail(OSError("refused"))])
def test_a_predicate_that_raises_fails_the_operator(opened, outcome):
    def broken(_):
        raise KeyError("predicate")

    async def main():
        async with opened(
            {1: outcome}, retry_strategy=retry(on_result=broken, on_exception=broken)
        ) as run:
            await run.put(1)
            with pytest.raises(AsyncInvokeError, match="predicate"):
                await run.operator.end_input()

    run_virtual(main)


@pytest.mark.parametrize("delay", [-1.0, float("nan")])
def test_a_strategy_with_an_impossible_delay_fails_the_operator(opened, delay):
    class Impossible:
        on_result = None

        def on_exception(self, error):
            return True

        def can_retry(self, attempts):
            return True

        def delay(self, attempts):
            return delay

    async def main():
        async with opened({1: Fail(OSError("refused"))}, retry_strategy=Impossible()) as run:
            await run.put(1)
            with pytest.raises(AsyncInvokeError, match="0 or more seconds"):
                await run.operator.end_input()

    run_virtual(main)


def test_concurrent_records_do_not_share_their_backoff(opened):
    async def main():
        strategy = exponential_backoff(
            max_retries=3,
            initial_delay=1.0,
            max_delay=9.0,
            multiplier=2.0,
            on_exception=lambda error: True,
        )
        script = {value: [Fail(OSError())] * 3 + [Reply([value])] for value in (1, 2)}
        async with opened(script, retry_strategy=strategy) as run:
            await run.put(1, 2)
            await run.operator.end_input()
            return starts(run.function, 1), starts(run.function, 2)

    assert run_virtual(main) == ([0.0, 1.0, 3.0, 7.0], [0.0, 1.0, 3.0, 7.0])


def test_end_of_input_changes_no_retry_rule(opened):
    async def main():
        async with opened(
            {1: [Fail(OSError()), Fail(OSError()), Reply([1])]}, retry_strategy=retry()
        ) as run:
            await run.put(1)
            await run.operator.end_input()
            return starts(run.function, 1)

    assert run_virtual(main) == [0.0, 1.0, 2.0]


# -- the gate


def test_a_closed_gate_starts_no_attempt_and_lets_calls_under_way_finish(opened):
    async def main():
        gate = Gate()
        script = {1: Reply([1], 1.0), 2: [Fail(OSError(), 1.0), Reply([2])]}
        async with opened(script, gate=gate, retry_strategy=retry(delay=0.5)) as run:
            await run.put(1, 2)
            await asyncio.sleep(0.5)
            gate.close(5.0)
            await run.put(3)
            await asyncio.sleep(4.0)
            assert run.values == [1]
            await run.operator.end_input()
            return starts(run.function, 2), starts(run.function, 3)

    assert run_virtual(main) == ([0.0, 5.5], [5.5])


def test_a_closed_gate_stops_the_clocks_of_all_records(opened):
    async def main():
        gate = Gate()
        async with opened({1: Hang()}, timeouts={1: [-1]}, timeout=2.0, gate=gate) as run:
            await run.put(1)
            await asyncio.sleep(0.5)
            gate.close(10.0)
            await asyncio.sleep(20.0)
            return run.times, gate.closed_seconds

    assert run_virtual(main) == ([12.0], 10.0)


def test_elapsed_leaves_out_the_time_that_the_gate_was_closed(opened):
    async def main():
        gate = Gate()
        async with opened({1: Fail(ValueError("boom"), 5.0)}, gate=gate) as run:
            await run.put(1)
            await asyncio.sleep(1.0)
            gate.close(None)
            with pytest.raises(AsyncInvokeError) as failure:
                await run.operator.end_input()
            return failure.value.elapsed

    assert run_virtual(main) == 1.0


def test_a_gate_closed_before_open_holds_from_the_start(opened):
    async def main():
        gate = Gate()
        gate.close(3.0)
        async with opened({1: Hang()}, timeouts={1: [-1]}, timeout=2.0, gate=gate) as run:
            await run.put(1)
            await run.operator.end_input()
            return starts(run.function, 1), run.times

    assert run_virtual(main) == ([3.0], [5.0])


def test_a_second_closure_does_not_shorten_a_longer_first_one():
    async def main():
        gate = Gate()
        gate.close(10.0)
        gate.close(1.0)
        await asyncio.sleep(2.0)
        assert not gate.is_open
        gate.close(9.0)
        await asyncio.sleep(8.5)
        assert not gate.is_open
        assert gate.closed_seconds == pytest.approx(10.5)
        await asyncio.sleep(1.0)
        assert gate.is_open
        gate.close(None)
        gate.close(1.0)
        await asyncio.sleep(100.0)
        assert not gate.is_open
        gate.open()
        return gate.is_open, gate.closed_seconds

    is_open, closed = run_virtual(main)
    assert is_open
    assert closed == pytest.approx(111.0)


def test_open_ends_a_closure_and_cancels_its_timer():
    async def main():
        gate = Gate()
        gate.close(5.0)
        await asyncio.sleep(1.0)
        gate.open()
        gate.open()
        gate.close(None)
        await asyncio.sleep(10.0)
        return gate.is_open, gate.closed_seconds

    assert run_virtual(main) == (False, 11.0)


def test_closing_for_no_time_does_nothing_and_for_less_is_refused():
    async def main():
        gate = Gate()
        gate.close(0)
        assert gate.is_open
        for wrong in (-1, float("nan")):
            with pytest.raises(ValueError, match="at least 0"):
                gate.close(wrong)

    run_virtual(main)


def test_operators_of_one_loop_share_a_gate_and_leave_it_when_closed(opened):
    async def main():
        gate = Gate()
        async with opened({}, gate=gate) as first, opened({}, gate=gate) as second:
            gate.close(2.0)
            await first.put(1)
            await second.put(2)
            await first.operator.end_input()
            await second.operator.end_input()
            assert (first.times, second.times) == ([2.0], [2.0])
        return len(gate._listeners)

    assert run_virtual(main) == 0


def test_a_gate_in_use_on_another_loop_is_refused():
    gate = Gate()

    async def close_for_ever():
        gate.close(None)

    run_virtual(close_for_ever)
    with pytest.raises(RuntimeError, match="one event loop"):
        run_virtual(close_for_ever)


def test_the_timeout_handler_may_close_the_gate_for_other_records(opened):
    class Closing:
        def __init__(self, gate):
            self.gate = gate

        async def async_invoke(self, value):
            await asyncio.get_running_loop().create_future()

        def timeout(self, value):
            self.gate.close(10.0)
            return [value]

    async def main():
        gate = Gate()
        async with opened(Closing(gate), timeout=1.0, gate=gate) as run:
            await run.put(1, 2)
            await run.operator.end_input()
            return run.times

    assert run_virtual(main) == [1.0, 11.0]


class Hears:
    """Notes what the gate says; `does` is done once, at the word that it waits for."""

    def __init__(self, waits_for="", does=None):
        self.heard, self.waits_for, self.does = [], waits_for, does

    def _hear(self, word):
        self.heard.append(word)
        if word == self.waits_for:
            self.waits_for = ""
            self.does()

    def gate_closed(self):
        self._hear("closed")

    def gate_opened(self, _seconds):
        self._hear("opened")


@pytest.mark.parametrize("word", ["opened", "closed"])
def test_the_last_event_of_a_gate_is_its_state_though_a_listener_closes_or_opens_it(word):
    async def main():
        gate = Gate()
        turns = {"opened": lambda: gate.close(5.0), "closed": gate.open}
        listeners = [Hears(), Hears(word, turns[word]), Hears()]
        for listener in listeners:
            gate.subscribe(listener)
        gate.close(5.0)
        gate.open()
        is_open = "opened" if gate.is_open else "closed"
        return {["opened", *listener.heard][-1] for listener in listeners} == {is_open}

    assert run_virtual(main)


def test_listeners_get_closings_and_openings_in_turn_and_none_after_they_unsubscribe():
    async def main():
        gate = Gate()
        last = Hears()
        for listener in (
            Hears("opened", lambda: gate.close(5.0)),
            Hears("closed", lambda: gate.unsubscribe(gone)),
            gone := Hears(),
            last,
        ):
            gate.subscribe(listener)
        gate.close(1.0)
        await asyncio.sleep(9.0)
        assert (gone.heard, last.heard) == ([], ["closed", "opened"])

    run_virtual(main)
