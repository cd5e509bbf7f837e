"""What the nights enrich: two lookups of two services, and a day of rows."""

import random
from collections.abc import Sequence
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
    name="price", keys={"a": "a"}, returns="price_value STRING", timeout=20.0, request="GET /p/{a}",
    retry=Retry(retries=2, initial_delay=0.2), ttl=Ttl(miss=None),
    service=Service(name="pricer", url="http://pricer", max_concurrency=6, outage=Outage()),
)  # fmt: skip
ORDER = HttpLookup(
    name="order", keys={"b": "b"}, returns="order_value STRING", timeout=20.0, request="GET /o/{b}",
    idempotent=False, retry=Retry(retries=0), ttl=Ttl(miss=None),
    service=Service(name="orderer", url="http://orderer", max_concurrency=4, outage=Outage()),
)  # fmt: skip
LOOKUPS = (PRICE, ORDER)
IN_FLIGHT = {lookup.name: lookup.concurrency for lookup in LOOKUPS}  # of each run
FINGERPRINTS = {"price": "a" * 16, "order": "b" * 16}
KEY_COLUMNS = (("__key_0_0",), ("__key_1_0",))

_TEXT = ("a", "b", schema.SOURCE_FILE, *(name for names in KEY_COLUMNS for name in names))
TYPES = T.StructType(
    [T.StructField(name, T.LongType()) for name in ("id", schema.SOURCE_ROW)]
    + [T.StructField(name, T.StringType()) for name in _TEXT]
)
LAYOUT = BatchLayout(
    carried=("id", "a", "b", schema.SOURCE_FILE, schema.SOURCE_ROW),
    keys=KEY_COLUMNS,
    order_key=(),
    event_time=None,
    max_out_of_orderness_ms=0,
    lookups=tuple(lookup.name for lookup in LOOKUPS),
    answers=tuple(lookup.columns for lookup in LOOKUPS),
    key_names=tuple(tuple(lookup.keys) for lookup in LOOKUPS),
)


class Row(NamedTuple):
    number: int
    a: str | None
    b: str | None

    def key(self, lookup: str) -> str | None:
        return self.a if lookup == "price" else self.b


def draw_rows(night: Night) -> list[Row]:
    draws = random.Random(f"rows:{night.seed}")
    distinct = max(1, int(night.rows * night.spread))

    def key(letter: str) -> str | None:
        return None if draws.random() < 0.03 else f"{letter}{draws.randrange(distinct)}"

    return [Row(number, key("a"), key("b")) for number in range(night.rows)]


def frame_of(rows: Sequence[Row], tasks: int, spark: Spark) -> Frame:
    """The rows as a run has prepared them, divided among so many tasks."""
    size = -(-len(rows) // tasks)
    a, b = pa.array([row.a for row in rows], pa.string()), pa.array([row.b for row in rows], pa.string())
    numbers = pa.array([row.number for row in rows], pa.int64())
    table = pa.table(
        {
            "id": numbers, schema.SOURCE_ROW: numbers, "a": a, "b": b,
            schema.SOURCE_FILE: pa.array(["file:///day"] * len(rows), pa.string()), "__key_0_0": a, "__key_1_0": b,
        }
    )  # fmt: skip
    parts = [numbered_batches(table.slice(part * size, size), part) for part in range(tasks)]
    tasks_of_rows = pa.array([number // size for number in range(len(rows))], pa.int32())
    return Frame(spark, table.append_column(TASK, tasks_of_rows), TYPES, parts)


def plan_of(night: Night, run_id: str) -> PartitionPlan:
    ledgers = tuple(
        LedgerPlan(
            LEDGER, lookup.name, FINGERPRINTS[lookup.name], run_id, lookup.ttl, night.flush_rows, night.flush_seconds,
            idempotent=lookup.repeatable,
        )
        for lookup in LOOKUPS
    )  # fmt: skip
    shares = tuple(
        tuple(total // night.tasks + (number < total % night.tasks) for number in range(night.tasks))
        for total in IN_FLIGHT.values()
    )
    return PartitionPlan(lookups=LOOKUPS, shares=shares, mode=night.mode, layout=LAYOUT, progress=None, ledgers=ledgers)


def ledger_folder(lookup: str) -> LedgerFolder:
    return LedgerFolder(LEDGER, lookup, FINGERPRINTS[lookup])
