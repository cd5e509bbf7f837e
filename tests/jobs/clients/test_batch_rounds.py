"""How many rounds of requests a table takes: no request is left unused while keys wait. Virtual
time.
"""

import asyncio
from dataclasses import dataclass

import pytest

from asyncio_core import StreamRecord
from asyncio_core.testing import run_virtual
from jobs.clients.batcher import Batching, BatchingClient
from jobs.task.link.progress import AttemptCounts
from jobs.task.lookup.lookup_state import LookupState, Row
from jobs.task.operators import Surroundings, chain
from jobs.task.plan import PartitionPlan
from tidegate import Batch, HttpLookup, Service

KEYS, ITEMS, SECONDS = 10_000, 50, 0.1


class Together(BatchingClient):
    """A caller whose service answers a request of many keys after SECONDS."""

    def __init__(self, share):
        self.requests = []  # keys in each
        self.batching = Batching(self._send, max_items=ITEMS, max_wait=0.2, max_requests=share)
        self.call, self.close = self.batching.call, self.batching.close

    async def open(self):
        return

    async def _send(self, keys):
        self.requests.append(len(keys))
        await asyncio.sleep(SECONDS)
        return [4.5] * len(keys)

    def columns(self, answer):
        return (answer,)

    def fallback(self, key):
        return None


@dataclass(frozen=True, kw_only=True)
class Location(HttpLookup):
    def client(self, share):
        object.__setattr__(self, "asked_by", Together(share))
        return self.asked_by


def seconds_for(share, *, mode, each=0.0, **fields):
    """How long KEYS rows take through the bridge with so many requests in flight, one coming every
    `each` s.
    """
    declared = Location(
        name="place",
        service=Service(name="geo", url="http://geo", max_concurrency=share),
        request="POST /batch",
        keys={"k": "k"},
        batch=Batch(max_items=ITEMS, max_wait=0.2, item="{k}"),
        returns="lat DOUBLE",
        timeout=60.0,
        **fields,
    )
    plan = PartitionPlan(
        lookups=(declared,), shares=((share,),), mode=mode, layout=None, progress=None
    )

    async def main():
        loop = asyncio.get_running_loop()
        left = []
        task = Surroundings(
            plan=plan, share=[share], ledgers=[None], allowance=None,
            now_us=lambda: int(loop.time() * 1e6), attempts=AttemptCounts(),
            client_for=lambda lookup, share: lookup.client(share),
        )  # fmt: skip
        (operator,) = chain(task, left.append).operators
        await operator.open()
        for key in range(KEYS):
            await operator.process_element(StreamRecord(Row(None, key, (LookupState((key,)),))))
            if each:
                await asyncio.sleep(each)
        await operator.end_input()
        await operator.close()
        assert len(left) == KEYS
        return loop.time()

    return run_virtual(main), declared.asked_by.requests


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ordered", "unordered"])
@pytest.mark.parametrize("share", [1, 4])
def test_every_request_is_full_and_the_next_request_leaves_when_one_ends(share, mode):
    seconds, requests = seconds_for(share, mode=mode)
    assert requests == [ITEMS] * (KEYS // ITEMS)
    assert seconds == pytest.approx(KEYS / ITEMS / share * SECONDS)


@pytest.mark.parametrize("share", [1, 4])
def test_keys_that_come_while_a_request_runs_fill_the_next_request(share):
    seconds, requests = seconds_for(share, mode="ordered", each=0.0002)
    assert requests == [ITEMS] * (KEYS // ITEMS)
    assert seconds == pytest.approx(KEYS / ITEMS / share * SECONDS, rel=0.02)


class Clinging(Together):
    """Its requests take SECONDS to end once nobody waits for them: a query is to be cancelled at
    its database first.
    """

    def __init__(self, share):
        super().__init__(share)
        self.at_service = 0

    async def _send(self, keys):
        self.at_service += 1
        try:
            await asyncio.sleep(3600.0)
        finally:
            await asyncio.sleep(SECONDS)
            self.at_service -= 1


@dataclass(frozen=True, kw_only=True)
class Database(HttpLookup):
    def client(self, share):
        object.__setattr__(self, "asked_by", Clinging(share))
        return self.asked_by


def test_a_request_being_cancelled_still_counts_as_in_flight():
    declared = Database(
        name="place",
        service=Service(name="geo", url="http://geo", max_concurrency=4),
        request="POST /batch",
        keys={"k": "k"},
        batch=Batch(max_items=ITEMS, max_wait=0.2, item="{k}"),
        returns="lat DOUBLE",
        timeout=1.0,
    )
    plan = PartitionPlan(
        lookups=(declared,), shares=((4,),), mode="unordered", layout=None, progress=None
    )

    async def main():
        loop = asyncio.get_running_loop()
        task = Surroundings(
            plan=plan, share=[4], ledgers=[None], allowance=None,
            now_us=lambda: int(loop.time() * 1e6), attempts=AttemptCounts(),
            client_for=lambda lookup, share: lookup.client(share),
        )  # fmt: skip
        made = chain(task, lambda _: None)
        (operator,) = made.operators
        await operator.open()
        for key in range(3 * ITEMS):
            await operator.process_element(StreamRecord(Row(None, key, (LookupState((key,)),))))
        await operator.end_input()  # all timed out
        await asyncio.sleep(SECONDS / 2)
        cancelled = declared.asked_by.at_service, made.outstanding()
        await asyncio.sleep(SECONDS)
        ended = declared.asked_by.at_service, made.outstanding()
        await operator.close()
        return cancelled, ended

    assert run_virtual(main) == ((3, [3]), (0, [0]))


def test_batches_are_full_also_without_a_cache():
    seconds, requests = seconds_for(4, mode="unordered", cache=None)
    assert requests == [ITEMS] * (KEYS // ITEMS)
    assert seconds == pytest.approx(KEYS / ITEMS / 4 * SECONDS)
