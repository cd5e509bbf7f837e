"""Adds the key columns of a lookup that reads earlier answers, all of which are known."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import LedgerError
from jobs.input.keys.key_values import read_by
from jobs.schema.columns import published_status
from jobs.task.rows.arrow_batches import BatchLayout
from jobs.task.rows.outcome_columns import ANSWER


def with_chained_keys(
    batch: pa.RecordBatch, layout: BatchLayout, place: int, known: Sequence[pa.RecordBatch | None]
) -> pa.RecordBatch:
    """Return the batch with the key columns of the lookup at `place`.

    Args:
        batch: Rows of the input, with the key columns of lookups that read no answer.
        layout: The values of the key columns.
        place: The lookup's place.
        known: The outcomes of the rows at each earlier lookup.

    Raises:
        LedgerError: A row has no outcome at a lookup that the key reads.
    """
    chained = layout.made(place)
    read, columns = read_by(chained.values()), dict(zip(batch.schema.names, batch.columns))  # noqa: B905
    for name, answers, outcomes in zip(layout.lookups, layout.answers, known, strict=False):
        names = {f"{ANSWER}{number}": answer.name for number, answer in enumerate(answers)}
        names["status"] = published_status(name)
        names = {source: column for source, column in names.items() if column in read}
        if not names:
            continue
        if outcomes is None or outcomes["status"].null_count:
            raise LedgerError(
                f"lookup {name}: the answer of a key is not at hand any more, and lookup "
                f"{layout.lookups[place]} reads it. Run again; answers so far are stored."
            )
        columns |= {column: outcomes[source] for source, column in names.items()}
    rows = batch.num_rows
    made = {name: values.evaluate(columns, rows) for name, values in chained.items()}
    return pa.RecordBatch.from_arrays(
        [*batch.columns, *made.values()], names=[*batch.schema.names, *made]
    )


def has_null_key(
    batch: pa.RecordBatch, layout: BatchLayout, place: int, keys: Sequence[object | None]
) -> bool:
    """Return whether a row has no key where the lookup's `when` holds, which fails the run."""
    wanted = layout.wanted[place] if layout.wanted else None
    if wanted is None:
        return False
    is_null = pa.array([key is None for key in keys], pa.bool_())
    return bool(pc.any(pc.and_(is_null, batch.column(wanted))).as_py())
