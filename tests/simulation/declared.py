"""What the nights enrich: a day of rows, by up to three lookups.

Calls of `price` may be repeated; those of `order` must not be; those of `stock` carry a key by which the vendor
recognizes a repeated one.
"""

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812  # Spark's own name for it

from jobs import schema
from jobs.declare.ledger_settings import Ttl
from jobs.declare.services import Outage, Retry, Service
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.store import LedgerFolder
from jobs.run.key_columns import TASK
from jobs.task.arrow_batches import BatchLayout
from jobs.task.plan import PartitionPlan
from tests.simulation.file_access import ROOT
from tests.simulation.nights import Night
from tests.simulation.spark import Frame, Spark, numbered_batches
from tidegate import HttpLookup

LEDGER = f"{ROOT}ledger"
PRICE = HttpLookup(
    name="price", keys={"a": "a"}, returns="price_value STRING", paths={"price_value": "$.v"}, timeout=20.0,
    request="GET /price/{a}", retry=Retry(retries=2, initial_delay=0.2), ttl=Ttl(miss=None),
    service=Service(name="pricer", url="http://192.0.2.1", max_concurrency=6, outage=Outage()),
)  # fmt: skip
ORDER = HttpLookup(
    name="order", keys={"b": "b"}, returns="order_value STRING", paths={"order_value": "$.v"}, timeout=20.0,
    request="GET /order/{b}", idempotent=False, retry=Retry(retries=0), ttl=Ttl(miss=None),
    service=Service(name="orderer", url="http://192.0.2.2", max_concurrency=4, outage=Outage()),
)  # fmt: skip
STOCK = HttpLookup(
    name="stock", keys={"c": "c"}, returns="stock_value STRING", paths={"stock_value": "$.v"}, timeout=20.0,
    request="GET /stock/{c}", idempotent=False, idempotency_header="Idempotency-Key", echo={"c": "$.c"},
    retry=Retry(retries=2, initial_delay=0.2), ttl=Ttl(miss=None),
    service=Service(name="stocker", url="http://192.0.2.3", max_concurrency=5, outage=Outage()),
)  # fmt: skip
LOOKUPS = {lookup.name: lookup for lookup in (PRICE, ORDER, STOCK)}
MARKED = {name for name, lookup in LOOKUPS.items() if not lookup.repeatable}
FINGERPRINTS = {name: name[0] * 16 for name in LOOKUPS}
LETTERS = {name: next(iter(lookup.keys)) for name, lookup in LOOKUPS.items()}
KEYS = {name: f"__key_{letter}" for name, letter in LETTERS.items()}  # the columns in which a run has them


class Row(NamedTuple):
    """A row of the day. keys: by lookup; None where a row has none."""

    number: int
    keys: Mapping[str, str | None]


def draw_rows(night: Night) -> list[Row]:
    draws = random.Random(f"rows:{night.seed}")
    distinct = max(1, int(night.rows * night.spread))

    def key(letter: str) -> str | None:
        return None if draws.random() < 0.03 else f"{letter}{draws.randrange(distinct)}"

    return [Row(number, {name: key(letter) for name, letter in LETTERS.items()}) for number in range(night.rows)]


def frame_of(rows: Sequence[Row], night: Night, spark: Spark) -> Frame:
    """The rows as a run has prepared them, divided among the night's tasks."""
    size = -(-len(rows) // night.tasks)
    numbers = pa.array([row.number for row in rows], pa.int64())
    columns = {"id": numbers, schema.SOURCE_ROW: numbers}
    columns[schema.SOURCE_FILE] = pa.array(["file:///day"] * len(rows), pa.string())
    for name in night.lookups:
        columns[LETTERS[name]] = columns[KEYS[name]] = pa.array([row.keys[name] for row in rows], pa.string())
    table = pa.table(columns)
    types = T.StructType(
        [T.StructField(one.name, T.LongType() if one.type == pa.int64() else T.StringType()) for one in table.schema]
    )
    parts = [numbered_batches(table.slice(part * size, size), part) for part in range(night.tasks)]
    tasks_of_rows = pa.array([number // size for number in range(len(rows))], pa.int32())
    return Frame(spark, table.append_column(TASK, tasks_of_rows), types, parts)


def plan_of(night: Night, run_id: str) -> PartitionPlan:
    lookups = tuple(LOOKUPS[name] for name in night.lookups)
    return PartitionPlan(
        lookups=lookups,
        shares=tuple(_shares(lookup.concurrency, night.tasks) for lookup in lookups),
        mode=night.mode,
        layout=_layout(lookups),
        progress=None,
        ledgers=tuple(
            LedgerPlan(
                LEDGER, lookup.name, FINGERPRINTS[lookup.name], run_id, lookup.ttl, night.flush_rows,
                night.flush_seconds, idempotent=lookup.repeatable,
            )
            for lookup in lookups
        ),
    )  # fmt: skip


def _shares(total: int, tasks: int) -> tuple[int, ...]:
    return tuple(total // tasks + (number < total % tasks) for number in range(tasks))


def _layout(lookups: Sequence[HttpLookup]) -> BatchLayout:
    letters = (LETTERS[lookup.name] for lookup in lookups)
    return BatchLayout(
        carried=("id", *letters, schema.SOURCE_FILE, schema.SOURCE_ROW),
        keys=tuple((KEYS[lookup.name],) for lookup in lookups),
        order_key=(),
        event_time=None,
        max_out_of_orderness_ms=0,
        lookups=tuple(lookup.name for lookup in lookups),
        answers=tuple(lookup.columns for lookup in lookups),
        key_names=tuple(tuple(lookup.keys) for lookup in lookups),
    )


def ledger_folder(lookup: str) -> LedgerFolder:
    return LedgerFolder(LEDGER, lookup, FINGERPRINTS[lookup])
