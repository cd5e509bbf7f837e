"""Single-flight and cache: equal requests make one call, and every row still leaves with its
outcome. Virtual time.
"""

import asyncio
import random
from collections import Counter
from datetime import timedelta

import pytest

from asyncio_core import (
    AsyncInvokeError,
    AsyncWaitOperator,
    Gate,
    OutputMode,
    StreamRecord,
    exponential_backoff,
)
from asyncio_core.testing import run_virtual
from jobs.clients.client import CallFailed, Throttled
from jobs.clients.registry import client_for
from jobs.errors import DeclarationError, RunStopped
from jobs.task.link.progress import AttemptCounts
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from jobs.task.lookup.lookup_function import LookupFunction, needs_retry
from jobs.task.lookup.lookup_state import LookupState, Row
from tidegate import AsyncFunctionLookup, Cache, Outage, Retry

LIMIT_US = 1_000_000


class Service:
    """Answers each key by its script, call by call, the last step for ever: (seconds, answer or
    exception).
    """

    def __init__(self, script=None, default=(0.1, {"score": 1.0})):
        self.script = script or {}
        self.default = default
        self.calls = []  # key, start, end
        self.highest_in_flight = self.in_flight = 0

    async def async_invoke(self, value):
        key = value["k"]
        loop = asyncio.get_running_loop()
        start = loop.time()
        made = sum(1 for called, _, _ in self.calls if called == key)
        self.calls.append((key, start, None))
        own = len(self.calls) - 1
        self.in_flight += 1
        self.highest_in_flight = max(self.highest_in_flight, self.in_flight)
        steps = self.script.get(str(key), [self.default])
        seconds, outcome = steps[min(made, len(steps) - 1)]
        try:
            await asyncio.sleep(seconds)
        finally:
            self.in_flight -= 1
            self.calls[own] = (key, start, loop.time())
        if isinstance(outcome, Exception):
            raise outcome
        return [] if outcome is None else [outcome]


class Throttling:
    """The caller of a function, letting our own errors through as an HTTP caller raises them."""

    def __init__(self, caller):
        self._caller = caller

    def __getattr__(self, name):
        return getattr(self._caller, name)

    async def call(self, key):
        try:
            return await self._caller.call(key)
        except CallFailed as failure:
            raise (
                failure.__cause__ if isinstance(failure.__cause__, Throttled) else failure
            ) from None


def settled():
    """A row whose key is null, as it comes to the operators."""
    return LookupState(None, "skipped", is_settled=True)


def ask(
    service,
    keys,
    *,
    share=4,
    mode=OutputMode.ORDERED,
    capacity=None,
    every=0.0,
    distinct=False,
    **fields,
):
    """Rows with these keys, one `every` so many seconds, through the sharing operator; their states
    as they left.
    """
    standard = {
        "name": "mood",
        "keys": {"k": "k"},
        "returns": "score DOUBLE",
        "timeout": LIMIT_US / 1e6,
        "max_concurrency": share,
        "retry": Retry(retries=2, initial_delay=0.1, jitter=0.0),
        "function": lambda: service,
    }
    declared = AsyncFunctionLookup(**standard | fields)

    async def main():
        loop = asyncio.get_running_loop()
        gate = Gate()

        def now_us():
            return int(loop.time() * 1e6)

        client = Throttling(client_for(declared, share))
        asking = LookupFunction(
            declared, client, client.call, place=0, gate=gate,
            watch=CircuitBreaker(declared.outage_rule, "mood", gate, now_us), now_us=now_us,
            attempts=AttemptCounts(), distinct=distinct,
        )  # fmt: skip
        left = []
        operator = AsyncWaitOperator(
            asking, left.append, mode=mode, timeout=declared.timeout,
            capacity=capacity or 16 * share, concurrency=min(share, capacity or share), gate=gate,
            retry_strategy=exponential_backoff(
                max_retries=10**9, initial_delay=0.1, max_delay=5.0, multiplier=2.0,
                on_exception=needs_retry
            ),
            runtime_context=lambda: operator,
        )  # fmt: skip
        await operator.open()
        try:
            for index, key in enumerate(keys):
                asked = settled() if key is None else LookupState((key,))
                await operator.process_element(StreamRecord(Row(None, index, (asked,))))
                if every:
                    await asyncio.sleep(every)
            await operator.end_input()
        finally:
            await operator.close()
        assert operator.statistics().running == 0
        return [(record.value.number, record.value.asked[0]) for record in left]

    rows = run_virtual(main)
    assert service.in_flight == 0
    return rows if mode is not OutputMode.ORDERED else [row for _, row in rows]


def called(service):
    return Counter(key for key, _, _ in service.calls)


def test_distinct_keys_skip_the_search_for_equal_rows_unless_calls_must_not_repeat():
    twice = Service()
    ask(twice, ["a", "a"], distinct=True)
    assert len(twice.calls) == 2
    once = Service()
    ask(once, ["a", "a"], distinct=True, idempotent=False, retry=Retry(retries=0))
    assert len(once.calls) == 1


def test_equal_requests_in_flight_are_a_single_call_that_is_counted_once():
    service = Service()
    rows = ask(service, ["a"] * 5)
    assert called(service) == {"a": 1}
    assert [row.source for row in rows] == ["call", *["shared"] * 4]
    assert [len(row.attempts) for row in rows] == [1, 0, 0, 0, 0]
    assert {(row.status, row.answer, row.answered_at) for row in rows} == {("ok", (1.0,), 100_000)}


@pytest.mark.parametrize(("answer", "status"), [({"score": 1.0}, "ok"), (None, "miss")])
def test_an_answer_and_a_miss_are_reused_with_their_time(answer, status):
    service = Service(default=(0.1, answer))
    rows = ask(service, ["a", "a"], every=1.0)
    assert called(service) == {"a": 1}
    assert [(row.status, row.source, row.answered_at) for row in rows] == [
        (status, "call", 100_000),
        (status, "shared", 100_000),
    ]


def test_an_error_is_shared_by_joined_rows_and_not_kept():
    service = Service({"a": [(0.1, OSError("broken"))]})
    rows = ask(service, ["a", "a", "b", "a"], every=0.05, retry=Retry(retries=0))
    assert [row.status for row in rows] == ["error", "error", "ok", "error"]
    errors = {row.error for row in rows if row.status == "error"}
    assert len(errors) == 1
    assert errors.pop().startswith("OSError: broken (tests/jobs/task/test_single_flight.py:")
    assert called(service) == {"a": 2, "b": 1}


def test_an_answer_that_does_not_fit_is_not_kept():
    service = Service({"a": [(0.1, {"score": "good"}), (0.1, {"score": 2.0})]})
    rows = ask(service, ["a", "a"], every=1.0)
    assert [row.status for row in rows] == ["error", "ok"]


def test_joined_rows_of_a_failing_call_do_not_multiply_its_retries():
    service = Service({"a": [(0.1, OSError("broken"))]})
    rows = ask(service, ["a"] * 10)
    assert called(service) == {"a": 3}
    assert {row.status for row in rows} == {"error"}


def test_joined_rows_hold_no_slot():
    service = Service()
    ask(service, [*["a"] * 20, "b"], share=2)
    assert service.calls == [("a", 0.0, 0.1), ("b", 0.0, 0.1)]


def test_a_null_key_is_skipped_and_shares_no_call():
    assert [(row.status, row.source, row.attempts) for row in ask(Service(), [None, None])] == [
        ("skipped", None, ())
    ] * 2


def test_a_call_continues_when_its_row_timed_out_and_another_row_waits():
    service = Service(default=(1.2, {"score": 1.0}))
    first, second = ask(service, ["a", "a"], every=0.5)
    assert (first.status, first.attempts) == ("timeout", ((0, LIMIT_US, False),))
    assert (second.status, second.source, second.attempts) == ("ok", "shared", ())
    assert service.calls == [("a", 0.0, 1.2)]


def test_a_call_that_continues_without_its_row_keeps_its_slot():
    service = Service({"b": [(60.0, None)]}, default=(1.2, {"score": 1.0}))
    ask(service, ["a", "a", "b", "c"], every=0.3, share=2)
    assert [(key, start) for key, start, _ in service.calls] == [
        ("a", 0.0),
        ("b", 0.6),
        ("c", pytest.approx(1.2)),
    ]
    assert service.highest_in_flight == 2


def test_a_call_without_a_waiting_row_is_cancelled():
    service = Service(default=(60.0, {"score": 1.0}))
    first, second = ask(service, ["a", "a"], every=0.5)
    assert service.calls == [("a", 0.0, 1.5)]
    assert (first.status, second.status) == ("timeout", "timeout")
    assert (second.source, second.attempts, second.finished) == ("shared", (), 1_500_000)
    assert second.error == "no answer within 1.0 s, waiting for an equal request"
    assert second.answered_at is None


def test_the_least_recently_used_answer_leaves_first():
    service = Service()
    ask(service, ["a", "b", "a", "c", "a", "b"], every=1.0, cache=Cache(max_entries=2))
    assert called(service) == {"a": 1, "b": 2, "c": 1}


def test_a_kept_answer_is_used_for_its_time_to_live():
    service = Service()
    ask(service, ["a"] * 4, every=1.0, cache=Cache(ttl=timedelta(seconds=2.5)))
    assert [start for _, start, _ in service.calls] == [0.0, 3.0]


def test_keys_may_hold_arrays_and_structs():
    service = Service()
    rows = ask(service, [[1, {"x": [2]}], [1, {"x": [2]}], [1, {"x": [3]}]])
    assert len(service.calls) == 2
    assert {row.status for row in rows} == {"ok"}


def test_a_stop_reaches_every_waiting_row_and_ends_the_run():
    service = Service(default=(0.1, RunStopped("refused: 401")))
    with pytest.raises(AsyncInvokeError) as caught:
        ask(service, ["a", "a", "b", *map(str, range(200))], share=2)
    assert len(service.calls) <= 3
    assert isinstance(caught.value.__cause__, RunStopped)


def test_a_throttled_call_is_repeated_once_for_all_joined_rows():
    service = Service({"a": [(0.1, Throttled("429", 5.0)), (0.1, {"score": 1.0})]})
    rows = ask(service, ["a"] * 5)
    assert [start for _, start, _ in service.calls] == pytest.approx([0.0, 5.1], abs=0.2)
    assert {row.status for row in rows} == {"ok"}


def test_a_retry_in_front_of_a_full_queue_gets_its_slot():
    service = Service({"a": [(0.1, OSError("broken")), (0.1, {"score": 1.0})]})
    rows = ask(service, ["a", *map(str, range(20))], share=1, capacity=2, retry=Retry(retries=1))
    assert {row.status for row in rows} == {"ok"}
    assert service.highest_in_flight == 1


def chance_of(seed):
    """A service that is slow, fails, hangs and throttles by chance."""
    draw = random.Random(seed)

    def step():
        seconds = draw.choice([0.01, 0.1, 0.3, 0.7, 1.1])
        outcomes = [{"score": 1.0}] * 4 + [
            None,
            OSError("x"),
            OSError("x"),
            Throttled("429", 0.2),
            {"score": "bad"},
        ]
        return seconds, draw.choice(outcomes)

    return Service({str(key): [step() for _ in range(6)] for key in range(12)}), draw


@pytest.mark.parametrize("seed", range(30))
def test_every_row_leaves_once_whatever_the_service_does(seed):
    service, draw = chance_of(seed)
    share = draw.choice([1, 2, 4])
    keys = [str(draw.randrange(12)) for _ in range(120)]
    mode = draw.choice([OutputMode.ORDERED, OutputMode.UNORDERED])
    rows = ask(
        service, keys, share=share, mode=mode, capacity=draw.choice([4, 16]),
        every=draw.choice([0.0, 0.05]), outage=Outage(after=1_000_000),
    )  # fmt: skip
    rows = list(enumerate(rows)) if mode is OutputMode.ORDERED else rows
    assert sorted(index for index, _ in rows) == list(range(120))
    assert service.highest_in_flight <= share
    assert sum(len(row.attempts) for _, row in rows) == len(service.calls)
    edges = sorted(
        (at, change)
        for _, row in rows
        for start, end, _ in row.attempts
        for at, change in ((start, 1), (end, -1))
    )
    in_flight = 0
    for _, change in edges:
        in_flight += change
        assert in_flight <= share
    for _, row in rows:
        assert row.status in {"ok", "miss", "error", "timeout"}
        assert (row.answered_at is None) == (row.status in {"error", "timeout"})
        assert row.source != "call" or row.attempts
        if row.status == "timeout" and row.source != "shared":
            assert row.finished - row.attempts[0][0] - row.paused * 1e6 >= LIMIT_US - 1000


@pytest.mark.parametrize("wrong", [{"max_entries": 0}, {"ttl": timedelta(0)}])
def test_a_wrong_cache_is_refused_in_one_sentence(wrong):
    with pytest.raises(
        DeclarationError, match="max_entries must be a whole number, at least 1, and ttl over 0"
    ):
        Cache(**wrong)


class Turns(Service):
    """Notes, between its calls, the turns of the loop that follow the end of each."""

    def __init__(self):
        super().__init__()
        self.seen = []

    async def async_invoke(self, value):
        self.seen.append(value["k"])
        answer = await super().async_invoke(value)
        asyncio.get_running_loop().call_soon(self.seen.append, "turn")
        return answer


@pytest.mark.parametrize("mode", [OutputMode.ORDERED, OutputMode.UNORDERED])
def test_the_next_call_starts_in_the_same_loop_turn_in_which_a_call_ends(mode):
    service = Turns()
    ask(service, list(range(6)), share=2, mode=mode)
    assert service.seen == [0, 1, 2, 3, "turn", "turn", 4, 5, "turn", "turn", "turn", "turn"]


def test_rows_without_a_call_do_not_overtake_rows_that_wait_for_a_slot():
    service = Service()
    rows = ask(service, ["a", "b", "c", None, "a"], share=1)
    assert [(row.status, row.source) for row in rows] == [
        ("ok", "call"), ("ok", "call"), ("ok", "call"), ("skipped", None), ("ok", "shared"),
    ]  # fmt: skip
    assert [start for _, start, _ in service.calls] == [0.0, 0.1, 0.2]


@pytest.mark.parametrize("share", [1, 2, 7])
@pytest.mark.parametrize("capacity", [1, 2, 50])
@pytest.mark.parametrize("mode", [OutputMode.ORDERED, OutputMode.UNORDERED])
def test_every_row_leaves_once_with_any_number_of_slots_and_places(share, capacity, mode):
    draw = random.Random(share * 100 + capacity)
    keys = [draw.choice([None, *range(20)]) for _ in range(200)]
    service = Service(default=(0.1, {"score": 1.0}))
    rows = ask(service, keys, share=share, capacity=capacity, mode=mode)
    assert len(rows) == len(keys)
    if mode is not OutputMode.ORDERED:
        assert sorted(number for number, _ in rows) == list(range(len(keys)))
        rows = [row for _, row in sorted(rows, key=lambda row: row[0])]
    assert [row.status for row in rows] == ["skipped" if key is None else "ok" for key in keys]
    assert called(service) == dict.fromkeys(set(keys) - {None}, 1)
    assert service.highest_in_flight <= share
