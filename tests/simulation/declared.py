"""What the nights enrich: days of rows, by up to four lookups.

Calls of `price` may be repeated; those of `order` must not be; those of `stock` carry a key by
which the vendor recognizes a repeated one; `score` is a coroutine that makes up to two requests and
reports the tokens that it is billed.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from jobs.declare.ledger_settings import Ttl
from jobs.declare.lookup import Lookup
from jobs.declare.services import Outage, Retry, Service
from jobs.ledger.store import LedgerFolder
from jobs.schema.records import ChoiceFacts
from tests.simulation.file_access import ROOT
from tests.simulation.nights import Act, Night
from tidegate import Adaptive, Batch, Budget, HttpLookup, Price, Rate, lookup

LEDGER = f"{ROOT}ledger"
CENT = "0.01 USD"
CONCURRENCY = {"price": 6, "order": 4, "stock": 5, "score": 3}
# that are billed
UNITS = {"price": "request", "order": "request", "stock": "request", "score": "token"}
FINGERPRINTS = {name: name[0] * 16 for name in CONCURRENCY}
LETTERS = {"price": "a", "order": "b", "stock": "c", "score": "d"}
# the columns in which a run has them
KEYS = {name: f"__key_{letter}" for name, letter in LETTERS.items()}
SHORT_LIFE = 20.0  # s, of an answer under a changed declaration
MOST_TOKENS_OF_A_CALL = 18
SOON_GIVEN_UP = Outage(after=3, probe_every=timedelta(seconds=1), wait_at_most=timedelta(seconds=5))


async def score(row: Any, http: Any) -> dict[str, Any] | None:
    """The coroutine of `score`."""
    found: dict[str, Any] | None = await http.get(f"/score/{row.d}")
    if found is None:
        return None
    http.bill(tokens=found["tokens"])
    if "odd" in found:  # a longer answer, in two requests
        more = await http.get(f"/score/{row.d}/more")
        if more is not None:
            http.bill(tokens=more["tokens"])
    return {"score_value": found["v"]}


@lru_cache(maxsize=256)
def _base(name: str, batched: str) -> Lookup:
    """The lookup without limits, prices and changes."""
    letter = LETTERS[name]
    service = Service(
        name=f"{name}r", url=f"http://192.0.2.{1 + list(LETTERS).index(name)}",
        max_concurrency=CONCURRENCY[name], outage=Outage(),
    )  # fmt: skip
    if name == "score":
        return lookup(
            service=service, keys={letter: letter}, returns="score_value STRING", timeout=20.0,
            retry=Retry(retries=2, initial_delay=0.2), ttl=Ttl(miss=None),
        )(score)  # fmt: skip
    facts: dict[str, Any] = {"request": f"GET /{name}/{{{letter}}}"}
    if batched and name != "stock":
        match = (
            {"match": "$.k"}
            if batched == "match"
            else {"position": "$.n"}
            if batched == "position"
            else {}
        )
        item = {"k": f"{{{letter}}}"}
        facts = {
            "request": f"POST /{name}",
            "batch": Batch(max_items=4, max_wait=0.05, item=item, **match),
        }
        facts["miss_when"] = ["$.none == 'yes'"]
    if name == "order":
        facts |= {"idempotent": False, "retry": Retry(retries=0)}
    else:
        facts |= {"retry": Retry(retries=2, initial_delay=0.2)}
    if name == "stock":
        facts |= {
            "idempotent": False,
            "idempotency_header": "Idempotency-Key",
            "echo": {"c": "$.c"},
        }
    return HttpLookup(
        name=name, keys={letter: letter}, returns=f"{name}_value STRING",
        paths={f"{name}_value": "$.v"}, timeout=20.0, ttl=Ttl(miss=None), service=service, **facts,
    )  # fmt: skip


class _Declared(NamedTuple):
    """What a lookup's declaration depends on."""

    name: str
    batched: str
    hedge: float
    limits: str
    rate: int
    budget: int
    changed: tuple[str, ...]
    condition: str  # by what became of another lookup; empty: none
    choice: ChoiceFacts | None  # the vendors in turn of which it is one
    is_capped: bool  # the run has a cap on its cost


def lookup_of(
    night: Night, name: str, changed: Sequence[str] = (), *, is_capped: bool = False
) -> Any:
    """A lookup as a run of the night declares it."""
    limits = night.limits if night.limits in ("rates", "alone", "budget", "adaptive") else ""
    rate = night.rate if limits in ("rates", "alone") else 0
    budget = night.budget if limits == "budget" else 0
    return _lookup(
        _Declared(
            name, night.batched, night.hedge, limits, rate, budget, tuple(changed),
            _condition(night, name), _choice(night, name), is_capped,
        )
    )  # fmt: skip


def _condition(night: Night, name: str) -> str:
    statuses = ", ".join(f"'{outcome}'" for outcome in night.asked_after)
    return f"{night.chain[name]}_status IN ({statuses})" if name in night.chain else ""


def _choice(night: Night, name: str) -> ChoiceFacts | None:
    """The vendors that are asked in turn, of which this lookup may be one."""
    if not night.spills or name not in (*night.chain, *night.chain.values()):
        return None
    vendors = (*night.chain.values(), *night.chain)
    return ChoiceFacts("vendors", vendors, (), ("true", "true"), spills_outage=True)


def lookups_of(night: Night, act: Act) -> dict[str, Any]:
    """The lookups as a run declares them."""
    return {
        name: lookup_of(night, name, act.changed, is_capped=bool(act.cap)) for name in night.lookups
    }


@lru_cache(maxsize=1024)
def _lookup(one: _Declared) -> Lookup:
    base: Any = _base(one.name, one.batched)
    is_hedged = bool(one.hedge) and one.name == "price" and not one.batched
    facts: dict[str, Any] = {
        "service": replace(base.service, **_limits(one, base, is_priced=not is_hedged))
    }
    if one.condition:
        facts["when"] = one.condition
    if one.choice is not None:
        facts["choice"] = one.choice
    if is_hedged:
        facts["hedge_after"] = "p95" if one.hedge < 0 else one.hedge
    if "ttl" in one.changed:
        facts["ttl"] = Ttl(ok=timedelta(seconds=SHORT_LIFE), miss=timedelta(seconds=SHORT_LIFE))
    if "no retries" in one.changed:
        facts["retry"] = Retry(retries=0)
    if "idempotent" in one.changed and one.name == "price":  # from now on no call may be repeated
        facts |= {"idempotent": False, "retry": Retry(retries=0)} | (
            {"hedge_after": None} if is_hedged else {}
        )
    if "error_when" in one.changed and one.name != "score":
        facts["error_when"] = ["$.odd == 'yes'"]
    found: Lookup = replace(base, **facts)
    return found


def _limits(one: _Declared, base: Any, *, is_priced: bool) -> dict[str, Any]:
    """Prices and limits of the service. A lookup whose slow calls are made a second time has no
    prices.
    """
    found: dict[str, Any] = {}
    if one.choice is not None:
        found["outage"] = SOON_GIVEN_UP
    bills_tokens = one.name == "score"
    if is_priced:
        most = MOST_TOKENS_OF_A_CALL if bills_tokens and one.is_capped else None
        found["prices"] = [
            Price(
                CENT, per="item" if getattr(base, "batch", None) else UNITS[one.name], at_most=most
            )
        ]
    if one.limits in ("rates", "alone"):
        requests = 2 if bills_tokens else None  # of one call
        found["rate"] = [
            Rate(one.rate, per="second", at_most=requests),
            Rate(12 * one.rate, per="30 seconds", at_most=requests)
        ]  # fmt: skip
        if bills_tokens:
            found["rate"].append(
                Rate(20 * one.rate, per="10 seconds", of="tokens", at_most=MOST_TOKENS_OF_A_CALL)
            )
    elif one.limits == "budget" and is_priced:
        dearest = f"{MOST_TOKENS_OF_A_CALL / 100} USD" if bills_tokens else None
        found["budget"] = [Budget(f"{one.budget / 100:.2f} USD", per="day", at_most=dearest)]
    elif one.limits == "adaptive":
        found["adaptive"] = Adaptive(at_least=1)
    return found


def is_marked(one: Lookup) -> bool:
    """Whether its calls must not be repeated, so that each is marked before."""
    return not one.repeatable


def ledger_folder(name: str) -> LedgerFolder:
    return LedgerFolder(LEDGER, name, FINGERPRINTS[name])
