"""What the nights enrich: days of rows, by up to four lookups.

Calls of `price` may be repeated; those of `order` must not be; those of `stock` carry a key by
which the vendor recognizes a repeated one; `score` is a coroutine that makes up to two requests and
reports the tokens that it is billed.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812  # Spark's own name for it

from jobs.clients.billing_meter import Meters
from jobs.declare.ledger_settings import FOR_EVER, Ttl
from jobs.declare.lookup import Lookup, service_identity
from jobs.declare.services import Outage, Retry, Service
from jobs.input.keys.arrow_expressions import arrow_expression
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.store import LedgerFolder
from jobs.run.keys.key_texts import TASK
from jobs.schema import columns as schema
from jobs.schema.records import RunBill
from jobs.task.plan import PartitionPlan
from jobs.task.rows.arrow_batches import BatchLayout
from tests.simulation import clock
from tests.simulation.file_access import ROOT
from tests.simulation.nights import Act, Night
from tests.simulation.spark import ROWS_PER_BATCH, Frame, Spark
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
    after: str  # the lookup whose answer it needs; empty: none


def lookup_of(night: Night, name: str, changed: Sequence[str] = ()) -> Any:
    """A lookup as a run of the night declares it."""
    limits = night.limits if night.limits in ("rates", "alone", "budget", "adaptive") else ""
    rate = night.rate if limits in ("rates", "alone") else 0
    after = night.chain.get(name, "")
    budget = night.budget if limits == "budget" else 0
    return _lookup(
        _Declared(name, night.batched, night.hedge, limits, rate, budget, tuple(changed), after)
    )


@lru_cache(maxsize=1024)
def _lookup(one: _Declared) -> Lookup:
    base: Any = _base(one.name, one.batched)
    is_hedged = bool(one.hedge) and one.name == "price" and not one.batched
    facts: dict[str, Any] = {
        "service": replace(base.service, **_limits(one, base, is_priced=not is_hedged))
    }
    if one.after:
        facts["when"] = f"{one.after}_status = 'ok'"
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
    bills_tokens = one.name == "score"
    if is_priced:
        found["prices"] = [
            Price(CENT, per="item" if getattr(base, "batch", None) else UNITS[one.name])
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


class Row(NamedTuple):
    """A row of a day. keys: by lookup; None where a row has none."""

    number: int
    keys: Mapping[str, str | None]


def draw_rows(night: Night, day: int = 0) -> list[Row]:
    """The rows of a day; the keys of all days are the same ones."""
    draws = random.Random(f"rows:{night.seed}:{day}" if day else f"rows:{night.seed}")
    distinct = max(1, int(night.rows * night.spread))

    def key(letter: str) -> str | None:
        return None if draws.random() < 0.03 else f"{letter}{draws.randrange(distinct)}"

    return [
        Row(number, {name: key(letter) for name, letter in LETTERS.items()})
        for number in range(night.rows)
    ]


def frame_of(rows: Sequence[Row], night: Night, spark: Spark) -> Frame:
    """The rows as a run has prepared them, divided among the night's tasks."""
    size = -(-len(rows) // night.tasks)
    numbers = pa.array([row.number for row in rows], pa.int64())
    columns = {"id": numbers, schema.SOURCE_ROW: numbers}
    columns[schema.SOURCE_FILE] = pa.array(["file:///day"] * len(rows), pa.string())
    for name in night.lookups:
        columns[LETTERS[name]] = columns[KEYS[name]] = pa.array(
            [row.keys[name] for row in rows], pa.string()
        )
    table = pa.table(columns)
    made = [KEYS[name] for name in night.chain]  # by the tasks
    types = T.StructType(
        [
            T.StructField(one.name, T.LongType() if one.type == pa.int64() else T.StringType())
            for one in table.schema
        ]
    )
    parts = [
        table.drop_columns(made).slice(part * size, size).to_batches(ROWS_PER_BATCH)
        for part in range(night.tasks)
    ]
    tasks_of_rows = pa.array([number // size for number in range(len(rows))], pa.int32())
    return Frame(spark, table.append_column(TASK, tasks_of_rows), types, parts)


def bill_of(night: Night, run_id: str, act: Act, folder: str) -> RunBill:
    """The bill of a run that begins now. folder: where its tasks count."""
    priced = [one for name in night.lookups if (one := lookup_of(night, name, act.changed)).prices]
    facts, services = tuple(one.facts() for one in priced), tuple(map(service_identity, priced))
    return RunBill(
        "nights", f"day{act.day}", run_id, clock.utc_now().isoformat(), facts, folder, services
    )


def plan_of(night: Night, run_id: str, act: Act, bill: RunBill) -> PartitionPlan:
    """The plan of a run."""
    lookups = tuple(lookup_of(night, name, act.changed) for name in night.lookups)
    keeps_all = act.does in ("remap", "replay")  # answers of any age count
    return PartitionPlan(
        lookups=lookups,
        shares=tuple(_shares(one.concurrency, night.tasks) for one in lookups),
        mode=night.mode,
        layout=_layout(lookups, night),
        progress=None,
        ledgers=tuple(
            LedgerPlan(
                LEDGER, one.name, FINGERPRINTS[one.name], run_id,
                FOR_EVER if keeps_all else one.ttl, night.flush_rows, night.flush_seconds,
                idempotent=one.repeatable,
            )
            for one in lookups
        ),
        may_call=act.does != "remap",
        meters=Meters(bill.folder, {one.name: [one.prices[0].unit] for one in bill.lookups}, run_id, bill.started_at),
    )  # fmt: skip


def _shares(total: int, tasks: int) -> tuple[int, ...]:
    return tuple(total // tasks + (number < total % tasks) for number in range(tasks))


def _layout(lookups: Sequence[Lookup], night: Night) -> BatchLayout:
    letters = (LETTERS[one.name] for one in lookups)
    chained = tuple(
        {KEYS[one.name]: _chained_key(one, night.chain[one.name])}
        if one.name in night.chain
        else {}
        for one in lookups
    )
    return BatchLayout(
        carried=("id", *letters, schema.SOURCE_FILE, schema.SOURCE_ROW),
        keys=tuple((KEYS[one.name],) for one in lookups),
        order_key=(),
        event_time=None,
        max_out_of_orderness_ms=0,
        lookups=tuple(one.name for one in lookups),
        answers=tuple(one.columns for one in lookups),
        key_names=tuple(tuple(one.keys) for one in lookups),
        chained=chained if night.chain else (),
    )


def _chained_key(one: Lookup, first: str) -> Any:
    names = (*LETTERS.values(), f"{first}_status")
    (text,) = one.key_sql.values()
    return arrow_expression(text, pa.schema([(name, pa.string()) for name in names]))


def ledger_folder(name: str) -> LedgerFolder:
    return LedgerFolder(LEDGER, name, FINGERPRINTS[name])
