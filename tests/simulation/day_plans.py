"""The rows of a night's days, and the plan and the bill of a run."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812  # Spark's own name for it

from jobs.clients.billing_meter import Meters
from jobs.declare.ledger_settings import FOR_EVER
from jobs.declare.lookup import Lookup, service_identity
from jobs.input.keys.arrow_expressions import arrow_expression
from jobs.ledger.plan import CallCap, LedgerPlan
from jobs.run.plan.caps import cap_on_cost
from jobs.schema import columns as schema
from jobs.schema.records import RunBill
from jobs.task.plan import PartitionPlan
from jobs.task.rows.arrow_batches import BatchLayout
from tests.simulation import clock
from tests.simulation.declared import FINGERPRINTS, KEYS, LEDGER, LETTERS, lookups_of
from tests.simulation.frames import ROWS_PER_BATCH, Frame
from tests.simulation.nights import Act, Night
from tests.simulation.spark import Spark


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
            T.StructField(field.name, T.LongType() if field.type == pa.int64() else T.StringType())
            for field in table.schema
        ]
    )
    parts = [
        table.drop_columns(made).slice(part * size, size).to_batches(ROWS_PER_BATCH)
        for part in range(night.tasks)
    ]
    return Frame(spark, types, parts)


def bill_of(night: Night, run_id: str, act: Act, folder: str) -> RunBill:
    """The bill of a run that begins now. folder: where its tasks count."""
    priced = [lookup for lookup in lookups_of(night, act).values() if lookup.prices]
    facts, services = (
        tuple(lookup.facts() for lookup in priced),
        tuple(map(service_identity, priced)),
    )
    return RunBill(
        "nights", f"day{act.day}", run_id, clock.utc_now().isoformat(), facts, folder, services
    )


def plan_of(night: Night, run_id: str, act: Act, bill: RunBill) -> PartitionPlan:
    """The plan of a run."""
    lookups = tuple(lookups_of(night, act).values())
    keeps_all = act.does in ("remap", "replay")  # answers of any age count
    return PartitionPlan(
        lookups=lookups,
        shares=tuple(_shares(lookup.concurrency, night.tasks) for lookup in lookups),
        mode=night.mode,
        layout=_layout(lookups, night),
        progress=None,
        ledgers=tuple(
            LedgerPlan(
                LEDGER, lookup.name, FINGERPRINTS[lookup.name], run_id,
                FOR_EVER if keeps_all else lookup.ttl, night.flush_rows, night.flush_seconds,
                idempotent=lookup.repeatable,
            )
            for lookup in lookups
        ),
        may_call=act.does != "remap",
        cap=_cap(night, act, lookups),
        meters=Meters(
            bill.folder, {lookup.name: [lookup.prices[0].unit] for lookup in bill.lookups}, run_id,
            bill.started_at,
        ),
    )  # fmt: skip


def _cap(night: Night, act: Act, lookups: Sequence[Lookup]) -> CallCap | None:
    if not act.cap or not any(lookup.prices for lookup in lookups):
        return None
    return cap_on_cost(lookups, f"{act.cap / 100:.2f} USD", night.tasks, clock.utc_now)


def _shares(total: int, tasks: int) -> tuple[int, ...]:
    return tuple(total // tasks + (number < total % tasks) for number in range(tasks))


def _layout(lookups: Sequence[Lookup], night: Night) -> BatchLayout:
    letters = (LETTERS[lookup.name] for lookup in lookups)
    chained = tuple(
        {KEYS[lookup.name]: _chained_key(lookup, night.chain[lookup.name])}
        if lookup.name in night.chain
        else {}
        for lookup in lookups
    )
    return BatchLayout(
        carried=("id", *letters, schema.SOURCE_FILE, schema.SOURCE_ROW),
        keys=tuple((KEYS[lookup.name],) for lookup in lookups),
        order_key=(),
        event_time=None,
        max_out_of_orderness_ms=0,
        lookups=tuple(lookup.name for lookup in lookups),
        answers=tuple(lookup.written for lookup in lookups),
        key_names=tuple(tuple(lookup.keys) for lookup in lookups),
        chained=chained if night.chain else (),
    )


def _chained_key(one: Lookup, first: str) -> Any:
    names = (*LETTERS.values(), f"{first}_status")
    (text,) = one.key_sql.values()
    return arrow_expression(text, pa.schema([(name, pa.string()) for name in names]))
