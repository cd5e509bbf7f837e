"""Keys asked together: each has the outcome it would have had alone, within the bounds of a
request. Virtual time.
"""

import asyncio
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncio_core.testing import run_virtual
from jobs.clients.batcher import Batching, BatchRefused
from jobs.clients.client import CallFailed, NotSent, Throttled
from jobs.errors import RunStopped, TidegateError
from tests.support.examples import examples


class Service:
    """Answers many keys at once: `bad` ones have the whole batch refused, the others get what
    `outcomes` says.
    """

    def __init__(self, outcomes=None, *, bad=(), largest=None, seconds=1.0):
        self.outcomes = outcomes or {}
        self.bad = set(bad)
        self.largest = largest
        self.seconds = seconds
        self.requests = []  # (start, keys)
        self.ended = []  # "answered" or "cancelled"
        self.in_flight = self.highest_in_flight = 0

    async def send(self, keys):
        self.requests.append((asyncio.get_running_loop().time(), [key for (key,) in keys]))
        self.in_flight += 1
        self.highest_in_flight = max(self.highest_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        finally:
            self.in_flight -= 1
        self.ended.append("answered")
        if self.largest is not None and len(keys) > self.largest:
            raise BatchRefused("413 Too Large")
        if self.bad & {key for (key,) in keys}:
            raise BatchRefused("400 Bad Request")
        return [self.outcomes.get(key, f"answer to {key}") for (key,) in keys]


async def message(batching, key):
    try:
        return await batching.call((key,))
    except (CallFailed, Throttled, TidegateError) as error:
        return error


def ask(service, keys, *, every=0.0, max_items=5, max_wait=0.5, max_requests=2):
    """What each key got, one arriving `every` so many seconds."""

    async def main():
        earlier = len(service.requests)
        batching = Batching(
            service.send, max_items=max_items, max_wait=max_wait, max_requests=max_requests
        )
        asked = []
        for key in keys:
            asked.append(asyncio.create_task(message(batching, key)))
            await asyncio.sleep(every)
        found = await asyncio.gather(*asked)
        await asyncio.sleep(0)  # what a request leaves behind, it leaves after its outcomes
        assert batching.sent == len(service.requests) - earlier
        assert batching.leaving() == 0
        await batching.close()
        return found

    return run_virtual(main)


def test_a_request_leaves_when_it_is_full():
    service = Service()
    assert ask(service, range(10), max_wait=9.0) == [f"answer to {key}" for key in range(10)]
    assert service.requests == [(0.0, [0, 1, 2, 3, 4]), (0.0, [5, 6, 7, 8, 9])]


def test_a_request_that_does_not_fill_leaves_when_its_first_key_has_waited_long_enough():
    service = Service()
    ask(service, range(4), every=0.3, max_wait=0.5)
    assert service.requests == [(pytest.approx(0.5), [0, 1]), (pytest.approx(1.1), [2, 3])]


def test_requests_in_flight_stay_within_the_limit_and_waiting_keys_go_together():
    service = Service()
    ask(service, range(23), max_items=5, max_requests=2)
    assert service.highest_in_flight == 2
    assert [len(keys) for _, keys in service.requests] == [5, 5, 5, 5, 3]


def test_a_bad_item_gets_its_error_and_every_other_item_its_answer():
    service = Service(bad={3})
    found = ask(service, range(8), max_items=8)
    assert [str(outcome) for outcome in found] == [
        "400 Bad Request" if key == 3 else f"answer to {key}" for key in range(8)
    ]
    assert isinstance(found[3], CallFailed)
    assert not found[3].passing
    assert len(service.requests) == 7  # 8; 4, 4; 2, 2; 1, 1
    assert service.highest_in_flight <= 2


def test_a_key_of_a_refused_batch_counts_as_unsent_until_its_half_is_sent():
    seen = {}

    class Looking(Service):
        async def send(self, keys):
            seen[len(self.requests)] = [batching.has_sent((key,)) for key in range(4)]
            return await super().send(keys)

    async def main():
        nonlocal batching
        service = Looking(largest=2)
        batching = Batching(service.send, max_items=4, max_wait=0.5, max_requests=1)
        await asyncio.gather(*(message(batching, key) for key in range(4)))
        await batching.close()

    batching = None
    run_virtual(main)
    assert seen == {0: [True] * 4, 1: [True, True, False, False], 2: [True] * 4}


def test_a_batch_that_is_too_large_is_halved_until_it_is_accepted():
    service = Service(largest=2)
    assert ask(service, range(8), max_items=8) == [f"answer to {key}" for key in range(8)]
    assert Counter(len(keys) for _, keys in service.requests) == {8: 1, 4: 2, 2: 4}


@pytest.mark.parametrize(
    "error", [CallFailed("500", passing=True), RunStopped("refused"), Throttled("429", 0.0)]
)
def test_a_failure_of_the_whole_request_fails_each_of_its_items(error):
    class Failing(Service):
        async def send(self, keys):
            await super().send(keys)
            raise error

    assert ask(Failing(), range(3)) == [error] * 3


def test_no_request_leaves_during_the_pause_of_a_throttled_service():
    outcomes = {0: Throttled("429", 30.0)}
    service = Service(outcomes)
    found = ask(service, range(3), max_items=1, max_requests=1)
    assert found == [outcomes[0], "answer to 1", "answer to 2"]
    assert [start for start, _ in service.requests] == [
        0.0,
        pytest.approx(31.0),
        pytest.approx(32.0),
    ]


def test_a_wrong_number_of_outcomes_is_an_error_of_each_key():
    class Short(Service):
        async def send(self, keys):
            return (await super().send(keys))[:-1]

    assert {str(outcome) for outcome in ask(Short(), range(3))} == {
        "a batch of 3 keys came back with 2 outcomes."
    }


def leaving(service, *leavers, keys=range(3), at=0.25, max_requests=1):
    """Let some keys' callers be cancelled at a time; what the others got."""

    async def main():
        batching = Batching(service.send, max_items=5, max_wait=0.5, max_requests=max_requests)
        asked = [asyncio.create_task(message(batching, key)) for key in keys]
        await asyncio.sleep(at)
        for key in leavers:
            asked[key].cancel()
        found = await asyncio.gather(*asked, return_exceptions=True)
        await asyncio.sleep(5.0)
        await batching.close()
        return [
            None if isinstance(outcome, asyncio.CancelledError) else outcome for outcome in found
        ]

    return run_virtual(main)


def test_a_key_whose_row_left_before_the_request_is_not_sent():
    service = Service()
    assert leaving(service, 0) == [None, "answer to 1", "answer to 2"]
    assert service.requests == [(pytest.approx(0.5), [1, 2])]


def test_a_key_whose_row_left_during_the_request_stays_in_the_request():
    service = Service()
    assert leaving(service, 0, at=1.0) == [None, "answer to 1", "answer to 2"]
    assert service.ended == ["answered"]


def test_a_request_without_a_waiting_row_is_cancelled_and_frees_its_place():
    service = Service(seconds=3.0)
    assert leaving(service, *range(5), keys=range(7), at=1.0) == [None] * 5 + [
        "answer to 5",
        "answer to 6",
    ]
    assert service.ended == ["cancelled", "answered"]
    assert service.requests[1] == (pytest.approx(1.0), [5, 6])


def test_a_key_of_an_unsent_request_does_not_count_as_repeated():
    async def main():
        found = [NotSent(), [CallFailed("busy", passing=True)], ["an answer"]]

        async def send(_keys):
            outcome = found.pop(0)
            if isinstance(outcome, NotSent):
                raise outcome
            return outcome

        batching = Batching(send, max_items=1, max_wait=0.0, max_requests=1)
        counts = []
        for _ in range(3):
            await message(batching, 1)
            counts.append(batching.repeated)
        await batching.close()
        return counts

    assert run_virtual(main()) == [0, 0, 1]


def test_a_key_of_a_cancelled_request_that_is_sent_again_counts_as_repeated():
    service = Service(seconds=3.0)

    async def main():
        batching = Batching(service.send, max_items=1, max_wait=0.0, max_requests=1)
        first = asyncio.create_task(message(batching, 1))
        await asyncio.sleep(1.0)
        first.cancel()
        assert await message(batching, 1) == "answer to 1"
        await batching.close()
        return batching.repeated

    assert run_virtual(main) == 1


@pytest.mark.parametrize("answer", [None, [StopIteration(), StopIteration()]])
def test_outcomes_of_the_wrong_shape_are_an_error_of_each_waiting_row(answer):
    async def main():
        async def send(_):
            return answer

        batching = Batching(send, max_items=2, max_wait=1.0, max_requests=1)
        found = await asyncio.gather(
            batching.call((1,)), batching.call((2,)), return_exceptions=True
        )
        await batching.close()
        return found

    found = run_virtual(main)
    assert len(found) == 2
    # a future refuses StopIteration with TypeError, and from Python 3.12 with RuntimeError
    assert {type(outcome) for outcome in found} <= {TypeError, RuntimeError}


def test_a_call_after_the_close_is_an_error():
    async def main():
        batching = Batching(Service().send, max_items=2, max_wait=0.0, max_requests=1)
        await batching.close()
        with pytest.raises(RuntimeError, match="after close"):
            await batching.call((1,))

    run_virtual(main)


def test_no_request_is_sent_when_all_rows_left_before():
    service = Service()
    assert leaving(service, 0, 1, 2) == [None] * 3
    assert service.requests == []


def test_closing_cancels_requests_in_flight_and_waiting_rows():
    service = Service(seconds=9.0)

    async def main():
        batching = Batching(service.send, max_items=2, max_wait=0.0, max_requests=1)
        asked = [asyncio.create_task(message(batching, key)) for key in range(5)]
        await asyncio.sleep(1.0)
        await batching.close()
        assert all(task.done() for task in await settled(asked))
        assert batching.leaving() == 0

    async def settled(asked):
        await asyncio.wait(asked)
        return asked

    run_virtual(main)
    assert service.ended == ["cancelled"]


OUTCOMES = st.sampled_from(["answer", None, CallFailed("422 of this item", passing=False)])


@examples(200)
@given(
    kinds=st.dictionaries(st.integers(0, 12), OUTCOMES, max_size=13),
    bad=st.sets(st.integers(0, 12)),
    keys=st.lists(st.integers(0, 12), max_size=40),
    max_items=st.integers(1, 50),
    max_requests=st.integers(1, 4),
    largest=st.none() | st.integers(1, 20),
    every=st.sampled_from([0.0, 0.1, 0.7]),
)
def test_every_key_gets_the_outcome_it_would_get_alone(
    *, kinds, bad, keys, max_items, max_requests, largest, every
):
    together, alone = (Service(kinds, bad=bad, largest=largest) for _ in range(2))
    found = ask(together, keys, every=every, max_items=max_items, max_requests=max_requests)
    expected = [ask(alone, [key], max_items=1)[0] for key in keys]
    assert list(map(repr, found)) == list(map(repr, expected))
    assert together.highest_in_flight <= max_requests
    assert all(len(batch) <= max_items for _, batch in together.requests)
    if not bad and largest is None:
        assert sum(len(batch) for _, batch in together.requests) == len(keys)


@examples(100)
@given(seed=st.integers(0, 10_000), bad=st.sets(st.integers(0, 19)), max_items=st.integers(1, 8))
def test_rows_that_stay_get_their_outcomes_when_other_rows_leave(seed, bad, max_items):
    draw = random.Random(seed)
    service = Service(bad=bad, seconds=0.3)
    leaves_at = {key: draw.uniform(0.0, 3.0) for key in range(20) if draw.random() < 0.5}

    async def main():
        batching = Batching(service.send, max_items=max_items, max_wait=0.2, max_requests=2)
        asked = {}
        for key in range(20):
            asked[key] = asyncio.create_task(message(batching, key))
            if key in leaves_at:
                asyncio.get_running_loop().call_later(leaves_at[key], asked[key].cancel)
            await asyncio.sleep(draw.uniform(0.0, 0.1))
        await asyncio.wait(asked.values())
        await asyncio.sleep(10.0)
        assert batching.leaving() == 0
        await batching.close()
        return {
            key: None if task.cancelled() else str(task.result()) for key, task in asked.items()
        }

    found = run_virtual(main, seed=seed)
    for key, outcome in found.items():
        expected = "400 Bad Request" if key in bad else f"answer to {key}"
        assert outcome == expected or (outcome is None and key in leaves_at)
    assert service.highest_in_flight <= 2


def test_the_next_request_is_sent_before_the_rows_of_the_last_request_go_on():
    events = []

    async def main():
        async def write():
            events.append("request")

        async def send(keys):
            await asyncio.create_task(write())  # as aiohttp does
            await asyncio.sleep(1.0)
            return keys

        async def row(key):
            await batching.call((key,))
            events.append("row")

        batching = Batching(send, max_items=3, max_wait=9.0, max_requests=1)
        await asyncio.gather(*map(row, range(6)))
        await batching.close()

    run_virtual(main)
    assert events == ["request", "request", "row", "row", "row", "row", "row", "row"]


def test_an_outcome_that_ends_the_run_is_reported_before_another_request_leaves():
    class Refusing(Service):
        async def send(self, keys):
            await super().send(keys)
            raise RunStopped("refused")

    service = Refusing()

    async def main():
        batching = Batching(service.send, max_items=3, max_wait=9.0, max_requests=1)
        first = asyncio.create_task(message(batching, 0))
        others = [asyncio.create_task(message(batching, key)) for key in range(1, 6)]
        await first
        assert len(service.requests) == 1
        await batching.close()
        await asyncio.wait(others)

    run_virtual(main)
