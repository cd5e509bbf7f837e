"""Rows whose keys are asked for together, through the operator: outcomes, clocks, gate and outages.
Virtual time.
"""

import asyncio
from collections import Counter

import pytest

from asyncio_core import AsyncWaitOperator, Gate, OutputMode, StreamRecord, exponential_backoff
from asyncio_core.testing import run_virtual
from jobs.clients.batcher import Batching, BatchingClient
from jobs.clients.client import CallFailed, Throttled
from jobs.task.link.progress import AttemptCounts
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from jobs.task.lookup.lookup_function import LookupFunction, needs_retry
from jobs.task.lookup.lookup_state import LookupState, Row
from tidegate import Batch, HttpLookup, Outage, Retry, Service

ITEMS = 5


class Together(BatchingClient):
    """The caller of a service that answers many keys at once, by a script: per request seconds and
    what comes back.
    """

    def __init__(self, steps, share):
        self._steps = steps
        self.requests = []  # (start, keys)
        self.ended = []
        self.batching = Batching(self._send, max_items=ITEMS, max_wait=0.2, max_requests=share)
        self.call = self.batching.call

    async def open(self):
        return

    async def close(self):
        await self.batching.close()

    async def _send(self, keys):
        seconds, outcome = self._steps[min(len(self.requests), len(self._steps) - 1)]
        self.requests.append((asyncio.get_running_loop().time(), [key for (key,) in keys]))
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("answered")
        if isinstance(outcome, Exception):
            raise outcome
        return [outcome] * len(keys)

    def columns(self, answer):
        return (answer,)

    def fallback(self, key):
        return None


def ask(steps, keys, *, share=1, every=0.0, **fields):
    """Rows with these keys through the operator; their LookupState as they left, in input order,
    and the caller.
    """
    standard = {
        "name": "place",
        "service": Service(name="geo", url="http://geo", max_concurrency=share),
        "request": "POST /batch",
        "keys": {"k": "k"},
        "batch": Batch(max_items=ITEMS, max_wait=0.2, item="{k}"),
        "returns": "lat DOUBLE",
        "timeout": 2.0,
        "attempt_timeout": 10.0,
        "retry": Retry(retries=2, initial_delay=0.1, jitter=0.0),
    }
    declared = HttpLookup(**standard | fields)

    async def main():
        loop = asyncio.get_running_loop()
        gate, caller = Gate(), Together(steps, share)

        def now_us():
            return int(loop.time() * 1e6)

        asking = LookupFunction(
            declared, caller, caller.call, place=0, gate=gate,
            watch=CircuitBreaker(declared.outage_rule, "geo", gate, now_us, batch_size=declared.batch_size),
            now_us=now_us, attempts=AttemptCounts(),
        )  # fmt: skip
        left = []
        operator = AsyncWaitOperator(
            asking, left.append, mode=OutputMode.ORDERED, timeout=declared.timeout,
            capacity=16 * share * ITEMS, concurrency=share * ITEMS, gate=gate,
            retry_strategy=exponential_backoff(
                max_retries=10**9, initial_delay=0.1, max_delay=5.0, multiplier=2.0,
                on_exception=needs_retry
            ),
            runtime_context=lambda: operator,
        )  # fmt: skip
        await operator.open()
        try:
            for index, key in enumerate(keys):
                await operator.process_element(
                    StreamRecord(Row(None, index, (LookupState((key,)),)))
                )
                if every:
                    await asyncio.sleep(every)
            await operator.end_input()
        finally:
            await operator.close()
        return [record.value.asked[0] for record in left], caller

    return run_virtual(main)


def statuses(rows):
    return Counter(row.status for row in rows)


def test_rows_enter_until_all_requests_are_full():
    rows, caller = ask([(1.0, 4.5)], range(25), share=2)
    assert statuses(rows) == {"ok": 25}
    assert [(start, len(keys)) for start, keys in caller.requests] == [
        (0.0, 5), (0.0, 5), (1.0, 5), (1.0, 5), (2.0, 5),
    ]  # fmt: skip


def test_rows_of_a_failed_request_fail_and_are_retried_together():
    rows, caller = ask([(0.5, CallFailed("500", passing=True)), (0.5, 4.5)], range(5))
    assert [(row.status, len(row.attempts)) for row in rows] == [("ok", 2)] * 5
    assert [sorted(keys) for _, keys in caller.requests] == [[0, 1, 2, 3, 4]] * 2


def test_a_failed_batch_is_not_an_outage_and_three_in_a_row_are():
    bad, good = (0.1, CallFailed("500", passing=True)), (0.1, 4.5)
    rule = Outage(after=3)
    rows, caller = ask([bad, good], range(10), service=geo(1, rule))
    assert statuses(rows) == {"ok": 10}
    assert caller.requests[-1][0] < 1.0
    rows, caller = ask([bad, bad, bad, good], range(15), share=3, service=geo(3, rule))
    assert statuses(rows) == {"ok": 15}
    assert caller.requests[3][0] >= 30.0  # the gate was closed until it was time to probe
    assert {row.failures for row in rows if len(row.attempts) > 1} <= {0, 1}


def geo(share, rule):
    return Service(name="geo", url="http://geo", max_concurrency=share, outage=rule)


def test_throttling_of_a_batch_closes_the_gate_and_stops_the_clocks_of_its_rows():
    rows, caller = ask([(0.1, Throttled("429", 60.0)), (0.1, 4.5)], range(12))
    assert statuses(rows) == {"ok": 12}
    assert caller.requests[0][0] == 0.0
    assert min(start for start, _ in caller.requests[1:]) >= 60.0
    assert [row.attempts[0][2] for row in rows[:5]] == [True] * 5
    assert all(row.failures == 0 for row in rows)


@pytest.mark.parametrize("finishes", [True, False])
def test_a_request_whose_rows_timed_out_is_cancelled_unless_it_may_finish_for_later_rows(
    finishes,
):
    rows, caller = ask(
        [(3.0, 4.5), (0.1, 4.5)], [*range(10), *range(5)], finish_after_timeout=finishes
    )
    assert [row.status for row in rows] == ["timeout"] * 5 + ["ok"] * 10
    assert caller.ended[0] == ("answered" if finishes else "cancelled")
    assert {row.source for row in rows[10:]} == {"shared" if finishes else "call"}
    assert [start for start, _ in caller.requests] == pytest.approx(
        [0.0, 3.0] if finishes else [0.0, 2.0, 2.1]
    )


@pytest.mark.parametrize("finishes", [True, False])
def test_a_row_that_left_before_its_request_is_not_sent(finishes):
    """The one request allowed hangs with one key; those that wait for it leave at their
    time limit.
    """
    rows, caller = ask(
        [(3.0, 4.5), (0.1, 4.5)], ["slow", "a", "b"], every=0.25, finish_after_timeout=finishes
    )
    assert statuses(rows) == ({"timeout": 3} if finishes else {"timeout": 1, "ok": 2})
    expected = [["slow"]] if finishes else [["slow"], ["a", "b"]]
    assert [keys for _, keys in caller.requests] == expected
