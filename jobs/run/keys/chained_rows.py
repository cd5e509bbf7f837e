"""Evaluates in the driver the keys that read earlier answers, as the tasks do after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from jobs.clients.registry import client_for
from jobs.declare.chains import lookups_below
from jobs.errors import RowFailed
from jobs.input.file_rows import FileRows
from jobs.input.keys.arrow_keys import read_key_tuples
from jobs.input.keys.key_values import read_by
from jobs.ledger.index import AnswerIndex
from jobs.run.keys.driver_keys import KeyRows
from jobs.run.keys.key_texts import TASK
from jobs.schema.columns import SOURCE_IDENTITY
from jobs.task.lookup.lookup_function import null_key_text
from jobs.task.row_flow import known_outcomes
from jobs.task.rows.chained_keys import has_null_key, with_chained_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.run.rows.local_rows import LocalRows
    from jobs.task.plan import PartitionPlan
    from jobs.task.rows.known_outcomes import KnownOutcomes


def read_chained_rows(prepared: DataFrame | LocalRows, plan: PartitionPlan, place: int) -> KeyRows:
    """Returns the rows that have a key at a lookup that reads earlier answers.

    Args:
        prepared: The rows.
        plan: Their plan; the lookups that are read have been asked.
        place: The lookup's place.

    Raises:
        LedgerError: An answer that the key reads is not at hand.
        RowFailed: A key is null, and `on_null_key` is "fail".
    """
    names, tables = plan.layout.keys[place], []
    for task, keyed, _ in chained_batches(plan, place, prepared):
        if has_null_key(keyed, plan.layout, place, read_key_tuples(keyed, names)):
            raise RowFailed(null_key_text(plan.lookups[place].name))
        found = pa.Table.from_batches([keyed.select([*names, *SOURCE_IDENTITY])]).drop_null()
        tables.append(found.append_column(TASK, pa.array([task] * len(found), pa.int32())))
    kinds = plan.layout.chained[place]
    fields = [(name, kinds[name].kind) for name in names]
    fields += [(SOURCE_IDENTITY[0], pa.string()), (SOURCE_IDENTITY[1], pa.int64())]
    nothing = pa.schema([*fields, (TASK, pa.int32())]).empty_table()
    return KeyRows(prepared, names, pa.concat_tables([nothing, *tables]))


def chained_batches(
    plan: PartitionPlan, place: int, prepared: DataFrame | LocalRows | None = None
) -> Iterator[tuple[int, pa.RecordBatch, pa.BooleanArray]]:
    """Yields the number of a task, a batch of its rows with the key of a lookup that reads earlier
    answers, and which of these rows lack an answer that may be called for.
    """
    places = [*sorted(lookups_below(plan.lookups, place)), place]
    outcomes = {other: _known(plan, other) for other in places[:-1]}
    for task, batch in batches_of_tasks(plan, places, prepared):
        yield task, *_keyed(batch, plan, places, outcomes)


def batches_of_tasks(
    plan: PartitionPlan,
    places: Sequence[int],
    prepared: DataFrame | LocalRows | None,  # noqa: ARG001  # for rows that are in no file
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the rows of each task, with the columns that these lookups' keys need."""
    assert plan.reads is not None
    reads = _with_needed_columns(plan.reads, plan, places)
    for task in range(len(reads.parts)):
        for batch in reads.of(task):
            yield task, batch


def _with_needed_columns(reads: FileRows, plan: PartitionPlan, places: Sequence[int]) -> FileRows:
    """Returns the same rows with the columns that these lookups' keys need."""
    names = {name for place in places for name in plan.layout.keys[place]}
    keys = {name: values for name, values in reads.keys.items() if name in names}
    chained = [values for place in places for values in plan.layout.chained[place].values()]
    read = read_by([*keys.values(), *chained])
    fields = [field for field in reads.types if field.name in read] or [*reads.types][:1]
    return replace(reads, types=pa.schema(fields), keys=keys)


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
        if plan.layout.chained[place]:
            batch = with_chained_keys(batch, plan.layout, place, known)
        if place in outcomes:
            keys = read_key_tuples(batch, plan.layout.keys[place])
            known[place] = found = outcomes[place].find(batch, keys)
            if found is not None:
                are_open = pc.or_(are_open, pc.equal(found["status"], "not_asked"))
    return batch, are_open
