"""Runs under `max_cost` over chains whose answers tell what they cost, drawn from seeds and judged by
what the vendor bills.
"""

import asyncio
import random
import threading
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pytest
from aiohttp import web

from jobs.errors import BudgetExhausted
from tests.support.variants import first_of
from tidegate import (
    Enrichment,
    HttpLookup,
    Input,
    Outage,
    Output,
    Price,
    Retry,
    Service,
    Waterfall,
    enrich,
    lookup,
)

CENT = "0.01 USD"


@dataclass(frozen=True)
class Drawn:
    """A lookup. Money is in cents, which a token costs too."""

    level: int
    letter: str
    requests: int  # of a call; 0: no coroutine
    per_request: int
    per_token: int
    declared: int  # at_most tokens of a call
    tokens: int  # at most, of a request
    at_once: int

    @property
    def name(self) -> str:
        return f"l{self.level}{self.letter}"

    @property
    def column(self) -> str:
        return f"v{self.level}"

    @property
    def most(self) -> int:
        """What is reserved for a call."""
        return self.per_request + self.per_token * self.declared

    @property
    def worst(self) -> int:
        """What a call may really cost."""
        return max(1, self.requests) * (self.per_request + self.per_token * self.tokens)

    @property
    def excess(self) -> int:
        """What a call may cost above what is reserved for it."""
        return max(0, self.worst - self.most)

    def declare(self, url: str):
        prices = [Price(f"{self.per_request / 100:.2f} USD", per="request")] * bool(
            self.per_request
        )
        prices += [Price(CENT, per="token", at_most=self.declared)] * bool(self.per_token)
        service = Service(
            name=self.name, url=url, max_concurrency=self.at_once, prices=prices,
            outage=Outage(after=10**6),
        )  # fmt: skip
        facts = {
            "name": self.name, "service": service, "keys": {"k": f"v{self.level - 1}" if self.level else "k"}, "timeout": 20.0,
            "retry": Retry(retries=1, initial_delay=0.001),
        }  # fmt: skip
        if not self.requests:
            return HttpLookup(
                **facts, request=f"GET /{self.name}/{{k}}/1", returns=f"{self.column} STRING",
                paths={self.column: "$.v"}, bill={"tokens": "$.tokens"} if self.per_token else {},
            )  # fmt: skip

        async def ask(row, http):
            for number in range(self.requests):
                found = await http.get(f"/{self.name}/{row.k}/{number}")
                if found is None:
                    return None
                if self.per_token:
                    http.bill(tokens=found["tokens"])
            return {self.column: found["v"]}

        return lookup(**facts, returns=f"{self.column} STRING")(ask)


class Vendor:
    """Answers, fails, throttles and loses answers, and bills all that it answered, lost or not."""

    def __init__(self, seed: int, drawn: list[Drawn], fails: float) -> None:
        self._seed, self._fails = seed, fails
        self._drawn = {lookup.name: lookup for lookup in drawn}
        self.heard = Counter[str]()
        self.answered = Counter[str]()
        self.billed = 0
        self.most_told = 0  # what the product has to take for billed
        self.lost = Counter[str]()

    @property
    def dearest(self) -> int:
        """What is reserved for the dearest call."""
        return max(lookup.most for lookup in self._drawn.values())

    @property
    def in_flight(self) -> int:
        """What calls in flight may cost above what is reserved for them."""
        return sum(lookup.at_once * lookup.excess for lookup in self._drawn.values())

    def slack(self) -> int:
        """What lost answers may have cost above what is reserved for them."""
        return sum(self._drawn[name].excess * many for name, many in self.lost.items())

    def snapshot(self) -> tuple[int, int]:
        return self.billed, self.most_told

    def paid_once(self) -> bool:
        """Whether no answer that arrived was paid again."""
        return all(many <= 1 for many in self.answered.values())

    async def answer(self, request):
        _, name, key, _ = request.path.split("/")
        one = self._drawn[name]
        self.heard[request.path] += 1
        draws = random.Random(f"{self._seed}{request.path}{self.heard[request.path]}")
        self.billed += one.per_request
        self.most_told += one.per_request
        await asyncio.sleep(draws.choice((0.0, 0.002, 0.01)))
        fate = draws.choice(("lost", "failed", "throttled"))
        if draws.random() >= self._fails:
            fate = "fine"
        if fate == "throttled":
            return web.json_response({}, status=429, headers={"Retry-After": "0.01"})
        if fate == "failed":
            self.most_told += one.most * bool(one.requests and one.per_token)
            return web.json_response({}, status=500)
        if random.Random(f"{name}{key}").random() < 0.2:  # a miss costs no token
            return web.json_response({}, status=404)
        tokens = draws.randint(0, one.tokens)
        self.billed += one.per_token * tokens
        if fate == "lost":
            self.lost[name] += 1
            self.most_told += one.most * bool(one.per_token)
            request.transport.close()
        else:
            self.answered[request.path] += not one.requests
            self.most_told += one.per_token * tokens
        return web.json_response({"v": f"{key}x", "tokens": tokens})


def draw_lookup(draws: random.Random, level: int, letter: str) -> Drawn:
    tokens = draws.choice((1, 9, 30))
    per_token, per_request = draws.choice(((1, 0), (1, 0), (1, 2), (0, 3)))
    declared = max(1, int(tokens * draws.choice((0.5, 1.0, 2.0, 5.0))))
    requests = draws.choice((0, 0, 0, 1, 2))
    return Drawn(
        level, letter, requests, per_request, per_token, declared, tokens, draws.choice((1, 2, 5))
    )


def draw_lookups(draws: random.Random) -> list[list[Drawn]]:
    """Draw a chain: by level one lookup, or the vendors of a waterfall."""
    return [
        [draw_lookup(draws, level, letter) for letter in draws.choice(("a", "a", "ab"))]
        for level in range(draws.randint(1, 3))
    ]


def declared(chain: list[list[Drawn]], url: str) -> Enrichment:
    """Declare the chain."""
    lookups = [
        Waterfall(name=f"w{level}", of=[vendor.declare(url) for vendor in vendors])
        if vendors[1:]
        else vendors[0].declare(url)
        for level, vendors in enumerate(chain)
    ]
    return Enrichment(
        name="capped", input=Input(path="raw", row_id=["k"]), lookups=lookups,
        output=Output(path="published"),
    )  # fmt: skip


def stops(rows: pa.Table, enrichment: Enrichment, cap: int) -> bool:
    """Whether a run with a cap of so many cents is stopped by it."""
    try:
        enrich(rows, enrichment, max_cost=f"{cap / 100:.2f} USD")
    except BudgetExhausted:
        return True
    return False


@pytest.fixture
def play(service, tmp_path, monkeypatch):
    """Draws a vendor, a chain and rows from a seed."""
    monkeypatch.chdir(tmp_path)

    def plays(seed):
        draws = random.Random(seed)
        chain = draw_lookups(draws)
        vendor = Vendor(
            seed, [lookup for level in chain for lookup in level], draws.choice((0.0, 0.1, 0.4))
        )
        service.answer = vendor.answer
        count = draws.randint(5, 40)
        keys = [f"k{draws.randrange(count)}" for _ in range(count)]
        return draws, vendor, pa.table({"k": keys}), declared(chain, service.url)

    return plays


@pytest.mark.parametrize("seed", first_of([84, 159, *range(60)]))
def test_runs_of_a_chain_spend_at_most_their_cap(play, seed):
    draws, vendor, rows, enrichment = play(seed)
    for _ in range(6):
        cap, before, slack = draws.randint(1, 400), vendor.snapshot(), vendor.slack()
        is_stopped = stops(rows, enrichment, cap)
        billed, most_told = (
            now - then for now, then in zip(vendor.snapshot(), before, strict=True)
        )
        assert billed <= cap + vendor.slack() - slack + vendor.in_flight
        assert not is_stopped or most_told + vendor.dearest > cap
    enrich(rows, enrichment)
    assert vendor.paid_once()


@pytest.mark.parametrize("seed", first_of([1061, *range(1000, 1060)]))
def test_two_runs_at_once_spend_at_most_both_caps(play, seed):
    draws, vendor, rows, enrichment = play(seed)
    caps, errors = [draws.randint(1, 200) for _ in range(2)], []

    def run(cap):
        try:
            stops(rows, enrichment, cap)
        except BaseException as error:  # noqa: BLE001  # shown below
            errors.append(error)

    both = [threading.Thread(target=run, args=(cap,)) for cap in caps]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert not errors
    assert vendor.billed <= sum(caps) + vendor.slack() + 2 * vendor.in_flight
    enrich(rows, enrichment)
    assert vendor.paid_once()
