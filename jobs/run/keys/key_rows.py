"""Evaluates the keys of a day's rows in the driver, by Arrow, as the tasks do."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from jobs.clients.registry import client_for
from jobs.declare.chains import lookups_below
from jobs.errors import RowFailed
from jobs.input.keys.arrow_keys import read_key_tuples
from jobs.ledger.index import AnswerIndex
from jobs.run.keys.driver_keys import KeyRows
from jobs.run.keys.key_texts import TASK
from jobs.run.rows.local_rows import LocalRows
from jobs.schema.columns import SOURCE_FILE, SOURCE_ROW, arrow_schema
from jobs.task.lookup.lookup_function import null_key_text
from jobs.task.plan import PartitionPlan
from jobs.task.row_flow import known_outcomes
from jobs.task.rows.chained_keys import has_null_key, with_chained_keys
from jobs.task.rows.known_outcomes import KnownOutcomes


def read_key_rows(prepared: DataFrame | LocalRows, plan: PartitionPlan, place: int) -> KeyRows:
    """Return the rows that have a key at the lookup of this place; the lookups that the key reads
    have been asked.

    Raises:
        LedgerError: An answer that the key reads is not at hand.
        RowFailed: A key that reads answers is null, and `on_null_key` is "fail".
        TidegateError: A file cannot be read.
    """
    names, tasks, batches = plan.layout.keys[place], list[int](), list[pa.RecordBatch]()
    for task, batch, _ in key_batches(plan, place):
        if plan.layout.made(place) and has_null_key(
            batch, plan.layout, place, read_key_tuples(batch, names)
        ):
            raise RowFailed(null_key_text(plan.lookups[place].name))
        tasks.append(task)
        batches.append(batch.select([*names, SOURCE_ROW, SOURCE_FILE]))
    empty = arrow_schema(StructType([prepared.schema[name] for name in names]))
    empty = empty.append(pa.field(SOURCE_ROW, pa.int64())).append(
        pa.field(SOURCE_FILE, pa.string())
    )
    rows = pa.Table.from_batches(batches, batches[0].schema if batches else empty)
    of_task = np.repeat(np.array(tasks, np.int32), [batch.num_rows for batch in batches])
    rows = rows.append_column(TASK, pa.array(of_task))
    # as a dictionary, the names of files take no memory for each row
    rows = rows.set_column(len(names) + 1, SOURCE_FILE, rows[SOURCE_FILE].dictionary_encode())
    return KeyRows(prepared, names, rows.drop_null())


def key_batches(
    plan: PartitionPlan, place: int
) -> Iterator[tuple[int, pa.RecordBatch, pa.BooleanArray]]:
    """Yield the number of a task, a batch of its rows with the key of a lookup, and which of these
    rows lack an answer that the key reads and that may be called for.
    """
    places = [*sorted(lookups_below(plan.lookups, place)), place]
    outcomes = {other: _known(plan, other) for other in places[:-1]}
    for task, batch in _rows_of_tasks(plan, places):
        yield task, *_keyed(batch, plan, places, outcomes)


def _rows_of_tasks(
    plan: PartitionPlan, places: Sequence[int]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each task, with the columns that these lookups' keys need."""
    assert plan.reads is not None
    names = {name for place in places for name in plan.layout.keys[place]}
    keys = {name: values for name, values in plan.reads.keys.items() if name in names}
    made = [values for place in places for values in plan.layout.made(place).values()]
    reads = plan.reads.only(keys, made)
    for task in range(len(reads.parts)):
        for batch in reads.of(task):
            yield task, batch


def _known(plan: PartitionPlan, place: int) -> KnownOutcomes:
    ledger = plan.ledgers[place] if plan.ledgers else None
    indexes = (
        [AnswerIndex.open(ledger.index)] if ledger is not None and ledger.index is not None else []
    )
    return known_outcomes(plan, place, client_for(plan.lookups[place], 1), indexes)


def _keyed(
    batch: pa.RecordBatch,
    plan: PartitionPlan,
    places: Sequence[int],
    outcomes: dict[int, KnownOutcomes],
) -> tuple[pa.RecordBatch, pa.BooleanArray]:
    known: list[pa.RecordBatch | None] = [None] * len(plan.lookups)
    are_open = pa.repeat(False, batch.num_rows)
    for place in places:
        if plan.layout.made(place):
            batch = with_chained_keys(batch, plan.layout, place, known)
        if place in outcomes:
            keys = read_key_tuples(batch, plan.layout.keys[place])
            known[place] = found = outcomes[place].find(batch, keys)
            if found is not None:
                are_open = pc.or_(are_open, pc.equal(found["status"], "not_asked"))
    return batch, are_open
