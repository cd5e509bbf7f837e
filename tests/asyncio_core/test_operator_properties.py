"""Any script of arrivals, latencies, failures, limits, retries, watermarks, crashes and cancels
keeps the promises.

The plainest model: a record's outcome follows from its own script alone, as long as a free slot
never has to be waited for; the order follows from the mode, the watermarks and the keys.
"""

import asyncio
import gc
import itertools
import weakref
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from asyncio_core import (
    NO_RETRY,
    AsyncWaitOperator,
    Gate,
    OutputMode,
    StreamRecord,
    Watermark,
    fixed_delay,
)
from asyncio_core.testing import Fail, Hang, Reply, ScriptedFunction, run_virtual
from tests.support.examples import examples

TIMEOUT = 2.03  # no sum of the latencies and delays below
DELAY = 0.5
MAX_RETRIES = 2


@dataclass(eq=False)
class Value:
    """The value of a record: its number, its key, and what its calls do. Weak references can point
    to it.
    """

    number: int
    key: int
    steps: list = field(repr=False)
    pause: float = 0.0


def outcome(value, retries, limited):
    """What the record gives and after how long, if its retries never stand in line."""
    spent = 0.0
    for attempt in itertools.count(1):
        step = value.steps[min(attempt, len(value.steps)) - 1]
        spent += float("inf") if isinstance(step, Hang) else step.after
        if limited and spent > TIMEOUT:
            return ["timeout", value.number]
        if isinstance(step, Reply) and (step.results or not retries or attempt > MAX_RETRIES):
            return [(value.number, result) for result in step.results]
        spent += DELAY
        if limited and spent > TIMEOUT:
            return ["timeout", value.number]
    raise AssertionError


class Function(ScriptedFunction):
    """Plays the steps that a value carries with it. Answers to an expired limit; fails where the
    script says so.
    """

    def _step(self, value, attempt):
        step = value.steps[min(attempt, len(value.steps)) - 1]
        if isinstance(step, Reply):
            return Reply([(value.number, result) for result in step.results], step.after)
        return step

    def timeout(self, value):
        self.timed_out.append(value.number)
        return ["timeout", value.number]


AFTER = st.sampled_from([0.0, 0.0, 0.1, 0.3, 1.0, 1.7, 3.0])
STEP = st.one_of(
    st.builds(Reply, st.lists(st.integers(0, 9), max_size=2), AFTER),
    st.builds(Reply, st.lists(st.integers(0, 9), min_size=1, max_size=2), AFTER),
    st.builds(Fail, st.just(OSError("scripted")), AFTER),
    st.builds(Hang, st.sampled_from([0.0, 0.0, 0.4])),
)
PAUSE = st.sampled_from([0.0, 0.0, 0.0, 0.2, 1.1])


@st.composite
def jobs(draw, *, may_fail=False):
    """A source, the operator's options, and whether its limits and retries are on."""
    limited = draw(st.booleans())
    retries = draw(st.booleans())
    step = STEP
    if not limited:
        step = step.filter(lambda step: not isinstance(step, Hang))
    if not retries and not may_fail:
        step = step.filter(lambda step: not isinstance(step, Fail))
    elements = []
    for number in range(draw(st.integers(1, 12))):
        if draw(st.integers(0, 4)) == 0:
            elements.append(Watermark(number))
            continue
        steps = draw(st.lists(step, min_size=1, max_size=3))
        if retries and not may_fail:  # the last attempt succeeds, unless the limit comes first
            steps = [*(steps * MAX_RETRIES)[:MAX_RETRIES], Reply([9], draw(AFTER))]
        value = Value(number, draw(st.integers(0, 2)), steps, draw(PAUSE))
        elements.append(StreamRecord(value, draw(st.one_of(st.none(), st.just(number)))))
    capacity = draw(st.integers(1, 8))
    mode = draw(st.sampled_from(list(OutputMode)))
    strategy = fixed_delay(
        max_retries=MAX_RETRIES,
        delay=DELAY,
        on_result=lambda results: not results,
        on_exception=lambda error: isinstance(error, OSError),
    )
    options = {
        "mode": mode,
        "capacity": capacity,
        "concurrency": draw(st.one_of(st.none(), st.integers(1, capacity))),
        "timeout": TIMEOUT if limited else None,
        "retry_strategy": strategy if retries else NO_RETRY,
        "key": (lambda value: value.key) if mode is OutputMode.KEY_ORDERED else None,
    }
    return elements, options, limited, retries


class Run:
    """One operator with one producer, watched at every step for what must never be exceeded."""

    def __init__(self, options, **more):
        self.function = Function()
        self.emitted = []
        self.position = 0
        self.outstanding = None  # since the input ended
        self.operator = AsyncWaitOperator(self.function, self.take, **options, **more)

    def take(self, element):
        self.emitted.append(element)
        self.watch()

    def watch(self):
        figures = self.operator.statistics()
        assert figures.queued <= figures.capacity
        assert self.function.running <= figures.running <= figures.concurrency
        assert figures.records + figures.watermarks == figures.queued + figures.emitted
        assert figures.retries <= figures.attempts
        assert self.function.running <= figures.outstanding
        if self.outstanding is not None:
            assert figures.outstanding <= self.outstanding
            self.outstanding = figures.outstanding

    async def produce(self, elements):
        for element in elements[self.position :]:
            if isinstance(element, StreamRecord) and element.value.pause:
                await asyncio.sleep(element.value.pause)
            await self.operator.process_element(element)
            self.position += 1
            self.watch()
        self.outstanding = self.operator.statistics().outstanding
        await self.operator.end_input()


def check_outcomes(elements, emitted, limited, retries, *, exact):
    """Every record has exactly one outcome, with its timestamp."""
    found = {}
    for position, element in enumerate(emitted):
        if isinstance(element, StreamRecord):
            number = element.value[0] if isinstance(element.value, tuple) else None
            if number is not None:
                found.setdefault(number, []).append((position, element))
    for place, element in enumerate(emitted):
        if isinstance(element, StreamRecord) and element.value == "timeout":
            number = emitted[place + 1].value
            assert number not in found, "a record has one outcome"
            found[number] = [(place, element), (place + 1, emitted[place + 1])]
    for element in elements:
        if isinstance(element, Watermark):
            continue
        value = element.value
        own = found.pop(value.number, [])
        positions = [position for position, _ in own]
        assert positions == list(range(positions[0], positions[0] + len(own))) if own else True, (
            "contiguous"
        )
        results = [record.value for _, record in own]
        possible = [outcome(value, retries, limited)]
        if limited and not exact:
            possible.append(["timeout", value.number])
        assert results in possible
        assert {record.timestamp for _, record in own} <= {element.timestamp}
    assert not found, "nothing comes from nowhere"


def number_of(emitted, place):
    value = emitted[place].value
    if isinstance(value, tuple):
        return value[0]
    return emitted[place + 1].value if value == "timeout" else value


def check_order(elements, emitted, mode):
    """The order of first results, with records that gave none left out, against the order of the
    mode.
    """
    order = []
    for place, element in enumerate(emitted):
        mark = element if isinstance(element, Watermark) else number_of(emitted, place)
        if isinstance(element, Watermark) or mark not in order:
            order.append(mark)
    inputs = [
        element if isinstance(element, Watermark) else element.value.number for element in elements
    ]
    keys = {
        element.value.number: element.value.key
        for element in elements
        if isinstance(element, StreamRecord)
    }
    seen = [mark for mark in inputs if isinstance(mark, Watermark) or mark in order]
    if mode is OutputMode.ORDERED:
        assert order == seen
        return
    for ours, theirs in zip(segments(order), segments(seen), strict=True):
        assert sorted(ours) == sorted(theirs), "no record crosses a watermark"
        if mode is OutputMode.KEY_ORDERED:
            for key in range(3):
                assert [n for n in ours if keys[n] == key] == [n for n in theirs if keys[n] == key]


def segments(marks):
    found = [[]]
    for mark in marks:
        if isinstance(mark, Watermark):
            found.append([])
        else:
            found[-1].append(mark)
    return found


def check_nothing_left(run):
    loop = asyncio.get_running_loop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [timer for timer in loop._scheduled if not timer.cancelled()] == []
    assert run.function.running == 0
    assert (run.function.opened, run.function.closed) == (1, 1)
    figures = run.operator.statistics()
    assert (figures.queued, figures.running, figures.waiting_for_retry) == (0, 0, 0)
    assert run.function.peak <= figures.concurrency


def records_of(elements):
    return [element for element in elements if isinstance(element, StreamRecord)]


PROFILE = examples(120, suppress_health_check=[HealthCheck.too_slow])


@PROFILE
@given(job=jobs(), seed=st.integers(0, 9))
def test_every_record_has_one_outcome_in_the_promised_order(job, seed):
    elements, options, limited, retries = job

    async def main():
        run = Run(options)
        await run.operator.open()
        try:
            await run.produce(elements)
            figures = run.operator.statistics()
            assert figures.attempts == len(run.function.calls)
            assert (
                figures.timeouts == len(run.function.timed_out) == len(set(run.function.timed_out))
            )
            assert figures.emitted == len(elements)
        finally:
            await run.operator.close()
        check_nothing_left(run)
        return run.emitted

    emitted = run_virtual(main, seed=seed)
    exact = options["concurrency"] in {None, options["capacity"]} and not clings(elements)
    check_outcomes(elements, emitted, limited, retries, exact=exact)
    check_order(elements, emitted, options["mode"])


def clings(elements):
    """Whether a call may keep its slot after its limit, so that a retry may stand in line."""
    steps = itertools.chain.from_iterable(record.value.steps for record in records_of(elements))
    return any(isinstance(step, Hang) and step.clings for step in steps)


@PROFILE
@given(
    job=jobs(),
    seed=st.integers(0, 9),
    crashes=st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 0.3, 1.0, 1.15, 2.03, 4.0]), st.integers(0, 6)),
        max_size=3,
    ),
)
def test_a_crash_after_a_snapshot_at_any_step_loses_and_doubles_nothing(job, seed, crashes):
    elements, options, limited, retries = job

    async def until_crash(state, position, crash):
        """Run from a state; at the crash, return what had left by the snapshot, the state and the
        position.
        """
        run = Run(options)
        run.position = position
        await run.operator.open()
        producer = asyncio.create_task(restore_and_produce(run, state))
        try:
            if crash is None:
                await producer
                return run.emitted, None, None
            await asyncio.wait([producer], timeout=crash[0])
            for _ in range(crash[1]):
                await asyncio.sleep(0)
            taken = run.operator.snapshot_state()
            waiting = run.operator._waiting is not None
            left = list(run.emitted)
            return left, taken, run.position + waiting
        finally:
            producer.cancel()
            await asyncio.wait([producer])
            await run.operator.close()
            check_nothing_left(run)

    async def restore_and_produce(run, state):
        await run.operator.restore_state(state)
        await run.produce(elements)

    async def main():
        emitted, state, position = [], [], 0
        for crash in [*crashes, None]:
            left, state, position = await until_crash(state, position, crash)
            emitted += left
        return emitted

    emitted = run_virtual(main, seed=seed)
    check_outcomes(elements, emitted, limited, retries, exact=False)
    check_order(elements, emitted, options["mode"])


@PROFILE
@given(
    job=jobs(may_fail=True),
    seed=st.integers(0, 9),
    instant=st.sampled_from([0.0, 0.1, 0.3, 1.0, 1.15, 2.03, 4.0]),
    turns=st.integers(0, 12),
    twice=st.booleans(),
)
def test_a_cancel_at_any_await_or_an_error_leaves_nothing_behind(job, seed, instant, turns, twice):
    elements, options, _, _ = job

    async def program(run):
        await run.operator.open()
        try:
            await run.produce(elements)
        finally:
            await run.operator.close()

    async def main():
        run = Run(options)
        task = asyncio.create_task(program(run))
        await asyncio.wait([task], timeout=instant)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        if twice:
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        if run.function.opened:
            check_nothing_left(run)
        return run.emitted

    emitted = run_virtual(main, seed=seed)
    numbers = [
        number_of(emitted, place)
        for place in range(len(emitted))
        if isinstance(emitted[place], StreamRecord)
    ]
    assert set(numbers) <= {record.value.number for record in records_of(elements)}


@PROFILE
@given(
    job=jobs(),
    seed=st.integers(0, 9),
    cancels=st.lists(
        st.tuples(st.sampled_from([0.05, 0.1, 0.3, 1.0]), st.integers(0, 6)), max_size=4
    ),
)
def test_a_producer_cancelled_at_any_await_resumes_with_the_same_element(job, seed, cancels):
    elements, options, limited, retries = job

    async def main():
        run = Run(options)
        await run.operator.open()
        try:
            for instant, turns in cancels:
                producer = asyncio.create_task(run.produce(elements))
                await asyncio.wait([producer], timeout=instant)
                for _ in range(turns):
                    await asyncio.sleep(0)
                producer.cancel()
                await asyncio.wait([producer])
            await run.produce(elements)
        finally:
            await run.operator.close()
        check_nothing_left(run)
        return run.emitted

    emitted = run_virtual(main, seed=seed)
    check_outcomes(elements, emitted, limited, retries, exact=False)
    check_order(elements, emitted, options["mode"])


@PROFILE
@given(
    job=jobs(),
    seed=st.integers(0, 9),
    closures=st.lists(
        st.tuples(st.sampled_from([0.0, 0.2, 0.7, 1.9]), st.sampled_from([0.1, 1.0, 5.0])),
        max_size=4,
    ),
)
def test_a_gate_changes_no_outcome_and_no_order(job, seed, closures):
    elements, options, limited, retries = job

    async def close_the_gate(gate, run):
        for pause, seconds in closures:
            await asyncio.sleep(pause)
            gate.close(seconds)
            before = len(run.function.calls)
            await asyncio.sleep(seconds / 2)
            assert len(run.function.calls) == before, "a closed gate starts no attempt"

    async def main():
        gate = Gate()
        run = Run(options, gate=gate)
        await run.operator.open()
        closing = asyncio.create_task(close_the_gate(gate, run))
        try:
            await run.produce(elements)
        finally:
            await run.operator.close()
            await closing
        gate.open()
        check_nothing_left(run)
        return run.emitted

    emitted = run_virtual(main, seed=seed)
    values = [element.value for element in emitted if isinstance(element, StreamRecord)]
    if not limited:
        check_outcomes(elements, emitted, limited, retries, exact=True)
    assert values.count("timeout") <= len(records_of(elements))
    check_order(elements, emitted, options["mode"])


class WatchedStarts(Function):
    """Notices a call that starts beside as many as may run."""

    def __init__(self, *, no_more_than):
        super().__init__()
        self._no_more_than = no_more_than

    async def async_invoke(self, value):
        assert self.running < self._no_more_than(), "a call starts only where fewer run"
        return await super().async_invoke(value)


@PROFILE
@given(
    job=jobs(),
    seed=st.integers(0, 9),
    sizes=st.lists(
        st.tuples(st.sampled_from([0.0, 0.2, 0.7, 1.9]), st.integers(1, 8), st.integers(1, 8)),
        min_size=1,
        max_size=4,
    ),
)
def test_a_resize_changes_no_outcome_and_no_order(job, seed, sizes):
    elements, options, limited, retries = job

    async def resize(run):
        for pause, one, other in sizes:
            await asyncio.sleep(pause)
            cancelled = run.operator.statistics().cancelled
            run.operator.resize(capacity=max(one, other), concurrency=min(one, other))
            assert run.operator.statistics().cancelled == cancelled

    async def main():
        run = Run(options)
        run.watch = lambda: None  # its bounds hold where the size stays
        run.function = WatchedStarts(no_more_than=lambda: run.operator.statistics().concurrency)
        run.operator = AsyncWaitOperator(run.function, run.take, **options)
        await run.operator.open()
        resizing = asyncio.create_task(resize(run))
        try:
            await run.produce(elements)
            figures = run.operator.statistics()
            assert figures.running == run.function.running
            assert figures.emitted == len(elements)
        finally:
            resizing.cancel()
            await asyncio.wait([resizing])
            await run.operator.close()
        if not resizing.cancelled():
            resizing.result()
        run.function.peak = 0  # of the most that there ever might be
        check_nothing_left(run)
        return run.emitted

    emitted = run_virtual(main, seed=seed)
    check_outcomes(elements, emitted, limited, retries, exact=False)
    check_order(elements, emitted, options["mode"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(OutputMode))
@pytest.mark.parametrize("instant", [0.0, 0.1, 0.6, 1.0, 2.5, 50.0])
def test_after_a_close_at_any_moment_no_reference_to_a_record_remains(mode, instant):
    references = []

    class Forgetful:
        """Replies, fails once, hangs or clings to life, by the number of the value, and keeps no
        account of it.
        """

        async def async_invoke(self, value):
            if value.number % 4 == 1 and not value.steps:
                value.steps.append("failed")
                raise OSError(
                    "a new one each time: an exception keeps the frames that it went through"
                )
            if value.number % 4 > 1:
                return await ScriptedFunction()._play(
                    Hang(clings=0.4 if value.number % 4 == 3 else 0.0)
                )
            await asyncio.sleep(0.3)
            return [1]

        def timeout(self, value):
            return []

    def elements():
        for number in range(15):
            value = Value(number, number % 2, [])
            references.append(weakref.ref(value))
            yield StreamRecord(value)

    async def produce(operator):
        for element in elements():
            await operator.process_element(element)
        await operator.end_input()

    async def main():
        operator = AsyncWaitOperator(
            Forgetful(),
            lambda element: None,
            mode=mode,
            timeout=2.0,
            capacity=8,
            concurrency=4,
            key=(lambda value: value.key) if mode is OutputMode.KEY_ORDERED else None,
            retry_strategy=fixed_delay(max_retries=1, delay=DELAY, on_exception=lambda error: True),
        )
        await operator.open()
        producer = asyncio.create_task(produce(operator))
        await asyncio.wait([producer], timeout=instant)
        producer.cancel()
        await asyncio.wait([producer])
        if not producer.cancelled():
            producer.exception()
        del producer
        operator._error = None  # an error names its record, and belongs to whoever caught it
        await operator.close()
        gc.collect()
        return [reference() for reference in references if reference() is not None], operator

    left, _ = run_virtual(main)
    assert references
    assert left == []
