"""Draws rows of a day, the same in every process, and reads the right answers to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.arrow_values import readable_values
from jobs.commands.previewing.preview import row_batches
from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup
from jobs.errors import DeclarationError
from jobs.input.day import InputDay
from jobs.wording import listed

SEED = 1
DRAWN = "tidegate_drawn"


@dataclass(frozen=True)
class Labels:
    """The right answers to some rows.

    Attributes:
        by: The columns that identify a row.
        answers: Identity of a row -> its right answer by column.
        columns: The columns that have right answers.
    """

    by: tuple[str, ...]
    answers: dict[tuple[Any, ...], dict[str, Any]]
    columns: tuple[str, ...]


def read_labels(path: str, enrichment: Enrichment, lookup: Lookup) -> Labels:
    """Return the labels of a Parquet file, which has the columns of `row_id`, and columns of
    `returns`.

    Raises:
        DeclarationError: The file cannot be read, or lacks such columns.
    """
    by = tuple(enrichment.input.row_id)
    if not by:
        raise DeclarationError(
            f"{enrichment.name}: --against finds a row by input.row_id; declare it."
        )
    try:
        table = pq.read_table(path, coerce_int96_timestamp_unit="us")
    except FileNotFoundError as error:
        raise DeclarationError(f"--against: there is no file {path}.") from error
    except (OSError, pa.ArrowException) as error:
        raise DeclarationError(f"--against {path} cannot be read as Parquet: {error}.") from error
    wanted = {column.name: column.arrow_type for column in lookup.columns}
    columns = tuple(name for name in wanted if name in table.column_names and name not in by)
    present = {name.lower() for name in table.column_names}
    missing = [name for name in by if name.lower() not in present]
    if missing or not columns:
        lacks = missing or [f"a column of returns ({', '.join(wanted)})"]
        raise DeclarationError(f"--against {Path(path).name} lacks {listed(lacks)}.")
    try:
        right = [table[name].cast(wanted[name]).to_pylist() for name in columns]
    except pa.ArrowException as error:
        raise DeclarationError(
            f"--against {Path(path).name} has values of other types than returns: {error}."
        ) from error
    rows = identities(table, by)
    answers = {
        row: dict(zip(columns, values, strict=True))
        for row, values in zip(rows, zip(*right, strict=True), strict=True)
    }
    if len(answers) < len(rows):
        raise DeclarationError(f"--against {Path(path).name} has two rows of one {', '.join(by)}.")
    return Labels(by, answers, columns)


def sample_rows(day: InputDay, count: int, labels: Labels | None) -> pa.Table:
    """Return up to `count` rows of a day by chance, of those with a label if there are labels."""
    draw = np.random.default_rng(SEED)
    kept: pa.Table | None = None
    for batch in row_batches(day):
        drawn = pa.array(draw.random(batch.num_rows))
        rows = pa.Table.from_batches([batch.append_column(DRAWN, drawn)])
        if labels is not None:
            names = identities(rows, labels.by)
            rows = rows.filter(pa.array([name in labels.answers for name in names], pa.bool_()))
        kept = rows if kept is None else pa.concat_tables([kept, rows])
        if kept.num_rows > count:
            kept = kept.take(np.argsort(kept[DRAWN].to_numpy())[:count])
    if kept is None or not kept.num_rows:
        raise DeclarationError(
            "the day has no rows." if labels is None else "the day has no row with a label."
        )
    return kept.drop_columns([DRAWN])


def identities(rows: pa.Table, by: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return what identifies each row; declarations ignore case."""
    spelled = {name.lower(): name for name in rows.column_names}
    return list(zip(*[readable_values(rows[spelled[name.lower()]]) for name in by], strict=True))
