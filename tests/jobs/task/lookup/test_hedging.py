"""Second calls for slow ones: quicker ends, few of them, and never a call more than may run.
Virtual time.
"""

import asyncio
import random
from collections import Counter
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from aiohttp import web

from asyncio_core import Gate, StreamRecord
from asyncio_core.testing import run_virtual
from jobs.clients import request_counter
from jobs.clients.client import CallFailed, Throttled
from jobs.clients.http import watched_connection
from jobs.declare.values.fingerprint import fingerprint
from jobs.errors import DeclarationError
from jobs.limits.lease_book import Answer, Limit, Share
from jobs.limits.limits_plan import CALLS, ServiceLimits
from jobs.task.link.progress import AttemptCounts
from jobs.task.lookup.hedging import Hedging, noted
from jobs.task.lookup.lookup_state import LookupState, Row
from jobs.task.lookup.replies import report_throttling
from jobs.task.operators import Surroundings, chain
from jobs.task.plan import PartitionPlan
from tests.jobs.task.test_runner import batches, collected
from tests.jobs.task.test_runner import plan as task_plan
from tidegate import Batch, Cache, HttpLookup, Price, Retry, Service


def declared(concurrency=4, prices=(), **fields):
    service = Service(name="s", url="http://a", max_concurrency=concurrency, prices=prices)
    standard = {
        "request": "GET /{k}",
        "hedge_after": 0.1,
        "timeout": 60.0,
        "retry": Retry(retries=1, initial_delay=0.1, jitter=0.0),
    }
    return HttpLookup(
        name="mood", service=service, keys={"k": "k"}, returns="x DOUBLE", **standard | fields
    )


class Calls:
    """The client: each call of a key takes the next of its times, or raises the next of its
    errors.
    """

    def __init__(self, script):
        self.script, self.began, self.running, self.highest, self.cancelled = script, [], 0, 0, 0

    async def open(self): ...

    async def close(self):
        assert self.running == 0

    async def call(self, key):
        (key,) = key
        steps = self.script(key)
        step = steps[min(self.began.count(key), len(steps) - 1)]
        self.began.append(key)
        self.running += 1
        self.highest = max(self.highest, self.running)
        try:
            await asyncio.sleep(step if isinstance(step, float) else 0.2)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        if not isinstance(step, float):
            raise step
        return {"x": 1.0}

    def columns(self, answer):
        return (answer["x"],)

    def fallback(self, key):
        return None


def task_of(lookup, client, limits=()):
    """The surroundings of a task with this lookup."""
    loop = asyncio.get_running_loop()
    plan = PartitionPlan(
        lookups=(lookup,), shares=((lookup.concurrency,),), mode="unordered", layout=None,
        progress=None, limits=limits,
    )  # fmt: skip
    return Surroundings(
        plan=plan, share=[lookup.concurrency], ledgers=[None], allowance=None,
        now_us=lambda: int(loop.time() * 1e6), attempts=AttemptCounts(),
        client_for=lambda _lookup, _share: client,
    )  # fmt: skip


def ask(lookup, script, keys, limits=(), leased=None):
    """The rows' outcomes, the calls, and the seconds from the first call to the last answer.
    limits: of the service, of which `leased` takes the lease.
    """
    request_counter.begin()
    calls, rows = Calls(script), []

    async def main():
        made = chain(task_of(lookup, calls, limits), rows.append)
        (operator,) = made.operators
        if leased is not None:
            leased(made.leases[0])
        await operator.open()
        began = asyncio.get_running_loop().time()
        try:
            for key in keys:
                await operator.process_element(StreamRecord(Row(None, key, (LookupState((key,)),))))
            await operator.end_input()
            return asyncio.get_running_loop().time() - began
        finally:
            await operator.close()

    seconds = run_virtual(main)
    return {row.value.asked[0].key[0]: row.value.asked[0] for row in rows}, calls, seconds


def test_a_row_that_comes_during_a_second_call_waits_for_a_slot():
    calls, rows = Calls(lambda key: [{0: 3.0, 1: 1.0}[key]]), []

    async def main():
        (operator,) = chain(task_of(declared(2), calls), rows.append).operators
        await operator.open()
        try:
            for key in (0, 1):
                await operator.process_element(StreamRecord(Row(None, key, (LookupState((key,)),))))
                await asyncio.sleep(0.2)  # row 0 has a second call
            await operator.end_input()
        finally:
            await operator.close()

    run_virtual(main)
    assert (len(rows), calls.began[:3], calls.highest) == (2, [0, 0, 1], 2)


def test_the_p95_of_the_first_20_answers_is_below_the_slowest():
    async def main():
        loop, second = asyncio.get_running_loop(), []
        hedging = Hedging(
            partial(noted, asyncio.sleep), "p95", gate=Gate(), lease=None, on_throttled=None,
            on_second=lambda: second.append(loop.time()),
        )  # fmt: skip
        hedging.open(
            SimpleNamespace(
                statistics=lambda: SimpleNamespace(running=1, concurrency=2),
                take_slot=lambda: lambda: None,
            )
        )
        for seconds in range(1, 21):
            await hedging.call(seconds)
        began = loop.time()
        await hedging.call(60)
        return [at - began for at in second]

    assert run_virtual(main) == [19.0]


@pytest.mark.parametrize("after", [0.1, "p95"])
def test_slow_calls_at_the_end_of_a_task_no_longer_decide_when_it_ends(after):
    draw, rows, concurrency = random.Random(3), 4000, 50
    firsts = [1.0 if draw.random() < 0.02 else draw.uniform(0.01, 0.03) for _ in range(rows)]
    firsts[-7:] = [1.0] * 7  # the worst place
    found, calls, seconds = ask(
        declared(concurrency, hedge_after=after), lambda key: [firsts[key], 0.02], range(rows)
    )
    assert [row.status for row in found.values()] == ["ok"] * rows
    extra = len(calls.began) - rows
    assert 7 <= extra <= 0.03 * rows
    assert request_counter.counts_of("mood").repeated == extra, "they are counted"
    assert seconds <= 1.06 * sum(firsts) / concurrency
    assert calls.highest == concurrency


def test_no_second_call_starts_while_every_slot_serves_a_row():
    found, calls, seconds = ask(declared(2), lambda key: [1.0], range(8))
    assert [calls.began.count(key) for key in range(6)] == [1] * 6
    assert seconds == pytest.approx(4.0)
    assert calls.highest == 2
    assert len(found) == 8


def test_the_first_answer_counts_and_the_other_call_is_cancelled():
    found, calls, seconds = ask(declared(), lambda key: [1.0, 0.2], ["a"])
    assert (found["a"].status, seconds, calls.cancelled) == ("ok", pytest.approx(0.3), 1)
    assert [(start, end) for start, end, _ in found["a"].attempts] == [(0, 300_000)], (
        "the row has one attempt"
    )
    _, calls, seconds = ask(declared(), lambda key: [0.5, 2.0], ["a"])
    assert (len(calls.began), seconds, calls.cancelled) == (2, pytest.approx(0.5), 1)


@pytest.mark.parametrize(
    ("steps", "seconds", "calls"),
    [
        ([0.5, CallFailed("no", passing=True)], 0.5, 2),  # the second fails: the first goes on
        ([CallFailed("no", passing=True), 0.25], 0.35, 2),  # the first fails: the second goes on
        # both: one more attempt
        ([CallFailed("no", passing=True), CallFailed("no", passing=True), 0.05], 0.45, 3),
        ([0.5, Throttled("429", 5.0)], 0.5, 2),
        ([Throttled("429", 5.0), 0.25], 0.35, 2),
    ],
)
def test_a_failure_of_one_of_two_calls_does_not_fail_the_row(steps, seconds, calls):
    found, client, taken = ask(declared(), lambda key: steps, ["a"])
    assert (found["a"].status, taken, len(client.began)) == ("ok", pytest.approx(seconds), calls)


def test_a_second_call_that_is_throttled_closes_the_gate():
    found, calls, seconds = ask(
        declared(1), lambda key: [0.5, Throttled("429", 5.0)] if key == 0 else [0.05], [0]
    )
    assert calls.began == [0], "no slot"
    found, calls, seconds = ask(declared(2), lambda key: [0.5, Throttled("429", 5.0)], [0])
    assert seconds == pytest.approx(0.5)
    assert found[0].paused > 0


def test_no_second_call_begins_in_a_pause():
    steps = {"slow": [1.0], "refused": [Throttled("429", 5.0), 0.05]}
    found, calls, _ = ask(declared(hedge_after=0.3), steps.get, steps)
    assert [outcome.status for outcome in found.values()] == ["ok", "ok"]
    assert calls.began.count("slow") == 1


def test_the_breaker_gets_no_personal_key_of_a_throttled_call():
    seen = []
    watch = SimpleNamespace(throttled=lambda *facts, **more: seen.append((facts, more)))
    refused = Throttled("503 Service Unavailable: no maria@x.org now", 5.0, 503)
    report_throttling(watch, refused, hidden=True)
    assert seen == [(("503", 5.0), {"is_down": True})]


def test_the_time_limit_of_a_row_ends_both_calls():
    found, calls, _ = ask(declared(timeout=0.3), lambda key: [5.0], ["a"])
    assert (found["a"].status, calls.cancelled, calls.running) == ("timeout", 2, 0)


@pytest.mark.parametrize(
    ("steps", "seen"), [([5.0, 0.2], (1, 0)), ([0.5, 2.0], (1, 0)), ([5.0, 5.0], (0, 1))]
)  # the second is quicker, the first is, neither is in time
def test_the_slower_of_two_calls_does_not_change_the_adaptive_limit(steps, seen):
    told = []

    def leased(lease):
        lease.take(Answer({CALLS: Share(4, 4)}, 600.0), asked_at=0.0)
        told.append(lease)

    limits = ServiceLimits("s", {CALLS: Limit(4)}, 60.0, at_least=4)
    ask(declared(timeout=1.0), lambda key: steps, ["a"], (limits,), leased)
    (one,) = told
    assert (one.observed.seen.answered, one.observed.seen.failed) == seen
    assert one.running == 0


LATE = 10.05  # s; until then the lease grants no call


def grant_late(lease):
    share = Answer({CALLS: Share(4, 4)}, 600.0)
    lease.loop.call_at(LATE, lambda: lease.take(share, asked_at=LATE))


def test_the_time_until_a_second_call_begins_once_the_first_leaves():
    limits = ServiceLimits("s", {CALLS: Limit(4)}, 60.0)
    _, calls, _ = ask(declared(), lambda key: [0.09], ["a"], (limits,), grant_late)
    assert calls.began == ["a"]
    _, calls, seconds = ask(declared(), lambda key: [1.0, 0.2], ["a"], (limits,), grant_late)
    assert (calls.began, seconds) == (["a", "a"], pytest.approx(LATE + 0.3))


def test_the_p95_is_of_answers_without_their_waits_for_the_limits_of_a_service():
    limits = ServiceLimits("s", {CALLS: Limit(4)}, 60.0)
    _, calls, seconds = ask(
        declared(hedge_after="p95"), lambda key: [5.0 if key == 60 else 0.1, 0.1], range(61),
        (limits,), grant_late,
    )  # fmt: skip
    assert (len(calls.began), seconds) == (62, pytest.approx(LATE + 1.5 + 0.2, abs=0.1))


def test_a_lookup_without_hedging_keeps_its_fingerprint():
    assert fingerprint(declared(hedge_after=None)) != fingerprint(declared())
    assert "hedge_after" not in str(declared(hedge_after=None).request_facts())


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"hedge_after": 0}, 'hedge_after is 0; it must be seconds, over 0, or "p95"'),
        ({"hedge_after": "p99"}, "hedge_after is 'p99'; it must be seconds"),
        ({"prices": Price("0.01 USD", per="request")}, "and the lookup has prices"),
        (
            {"idempotent": False, "retry": Retry(retries=0), "cache": Cache()},
            "and the lookup has idempotent=False",
        ),
        (
            {"request": "POST /", "batch": Batch(max_items=9, max_wait=0.1, item="{k}")},
            "hedge_after sends a request a second time, and the lookup has a batch",
        ),
    ],
)
def test_a_lookup_whose_calls_may_not_be_repeated_is_not_hedged(fields, sentence):
    with pytest.raises(DeclarationError, match=sentence):
        declared(**fields)


class Hanging(Calls):
    """A client that never answers."""

    def __init__(self):
        super().__init__(lambda _key: [3600.0])


def test_a_task_reserves_calls_for_second_calls_of_its_rows():
    async def main():
        made = chain(task_of(declared(4), Hanging()), lambda _: None)
        (operator,) = made.operators
        await operator.open()
        for key in range(2):
            await operator.process_element(StreamRecord(Row(None, key, (LookupState((key,)),))))
        await asyncio.sleep(0.01)
        kept = made.outstanding()
        await operator.close()
        return kept

    request_counter.begin()
    assert run_virtual(main) == [4]


class EndingSlowly(Calls):
    """A client whose calls take a while to end once they are cancelled."""

    async def call(self, key):
        try:
            return await super().call(key)
        except asyncio.CancelledError:
            self.running += 1
            await asyncio.sleep(0.5)
            self.running -= 1
            raise


def test_a_client_is_closed_after_its_second_calls_have_ended():
    client = EndingSlowly(lambda _key: [0.3, 60.0])

    async def main():
        made = chain(task_of(declared(), client), lambda _: None)
        (operator,) = made.operators
        await operator.open()
        await operator.process_element(StreamRecord(Row(None, "a", (LookupState(("a",)),))))
        await operator.end_input()
        assert client.running == 1
        await operator.close()

    request_counter.begin()
    run_virtual(main)
    assert (client.cancelled, client.running) == (1, 0)


@pytest.mark.process
def test_a_task_does_not_wait_for_a_call_that_a_second_call_has_overtaken(service, monkeypatch):
    # as long as a connection may be watched
    monkeypatch.setattr(watched_connection, "QUIET_AT_MOST", 600.0)
    asked = Counter()

    async def answer(request):
        key = request.path.rpartition("/")[2]
        asked[key] += 1
        await asyncio.sleep(600.0 if key == "99" and asked[key] == 1 else 0.01)
        return web.json_response({"x": 1.0})

    service.answer = answer
    lookup = replace(
        declared(), service=Service(name="s", url=service.url, max_concurrency=4), name="first"
    )
    request_counter.begin()
    rows = collected(task_plan(lookup), batches(100)).to_pylist()
    assert [row["_first_status"] for row in rows] == ["ok"] * 100
    # on a slow machine other calls get a second one too
    assert asked["99"] == 2
