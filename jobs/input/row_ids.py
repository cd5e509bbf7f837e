"""The ids of an input's rows, and files of some of its rows."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.input.day import InputDay, group_facts
from jobs.input.row_comparison import Flags, ParquetRows, repeated
from jobs.input.same_values import refuse_old_dates
from jobs.input.staged_files import copy_at, is_kept
from jobs.input.types import InputColumn
from jobs.storage import durable
from jobs.storage.parquet_files import RunTask, read_footer
from jobs.storage.stored_files import error_text
from jobs.storage.urls import below, is_url

Chosen = tuple[str, pa.BooleanArray]  # a file, and which of its rows

ROWS_OF_FILE = 1_000_000  # about; of changed rows


def read_row_ids(enrichment: Enrichment, input_day: InputDay) -> pa.Table:
    """Return the columns of `row_id`.

    Raises:
        DeclarationError: A row has no id, or two rows have the same; or Arrow, which compares the
            rows, would read other dates than Spark.
    """
    refuse_old_dates(input_day.files)
    columns = id_columns(enrichment, input_day)
    begin = _begin(enrichment, columns)
    types = pa.schema([(column.name, column.kind) for column in columns])
    ids = ParquetRows(input_day.files).columns(types)
    for name in ids.column_names:
        if count := ids[name].null_count:
            raise DeclarationError(
                f"{begin}: {name!r} is null in {count:,} of {ids.num_rows:,} rows; with "
                'rows="changed" each row needs '
                "an id."
            )
    if (found := repeated(ids)) is not None:
        shown = "one id" if enrichment.pii else ", ".join(map(repr, found.values()))
        raise DeclarationError(
            f'{begin}: several rows have {shown}; with rows="changed" an id is of one row: name '
            "the columns that tell rows apart, or leave repeated rows out."
        )
    return ids


def id_columns(enrichment: Enrichment, input_day: InputDay) -> list[InputColumn]:
    """Return the columns of `row_id` that the input has. Raises DeclarationError if nested."""
    kinds = {column.name.lower(): column for column in input_day.columns}
    names = map(str.lower, enrichment.input.row_id)
    columns = [kinds[name] for name in names if name in kinds]
    for column in columns:
        if pa.types.is_nested(column.kind):
            raise DeclarationError(
                f"{_begin(enrichment, columns)}: {column.name!r} is {column.kind}; rows are "
                "identified by plain values."
            )
    return columns


def _begin(enrichment: Enrichment, columns: Sequence[InputColumn]) -> str:
    names = ", ".join(column.name for column in columns)
    return f"{enrichment.name}: input: row_id: {names}"


def chosen(input_day: InputDay, wanted: Flags, folder: str, run: RunTask) -> InputDay:
    """Have tasks write the wanted rows of the input to files, unless all rows are wanted.

    Equal rows are written once.

    Args:
        input_day: The rows.
        wanted: A flag for each row.
        folder: The folder of the files, which driver and tasks share, or its URL.
        run: Runs a task on each of several parts.

    Raises:
        DeclarationError: The folder cannot be written.
    """
    if wanted.all():
        return input_day
    digest = hashlib.sha256(
        json.dumps(input_day.facts).encode() + np.packbits(wanted).tobytes()
    ).hexdigest()[:12]
    parts = _deal(ParquetRows(input_day.files).by_file(wanted))
    targets = [below(folder, f"changed-{digest}-{number}.parquet") for number in range(len(parts))]
    types = input_day.schema
    try:
        if not is_url(folder):
            durable.make_folder(Path(folder))
        missing = [part for part in zip(targets, parts, strict=True) if not is_kept(part[0])]
        run(lambda part, _facts: _write(part[0], part[1], types), missing)
    except OSError as error:
        raise DeclarationError(
            f"input: its changed rows cannot be copied to {folder}: "
            f"{error.strerror or error_text(error)}."
        ) from error
    facts = group_facts([*map(read_footer, targets)])
    return replace(input_day, files=tuple(targets), alike=False, copied=True, **facts)


def _deal(wanted: Iterable[tuple[str, Flags]]) -> list[list[Chosen]]:
    """Divide the wanted rows into at least one file, with about as many rows in each."""
    parts: list[list[Chosen]] = [[]]
    rows = 0
    for file, flags in wanted:
        if flags.any():
            if rows >= ROWS_OF_FILE:
                parts.append([])
                rows = 0
            parts[-1].append((file, pa.array(flags)))
            rows += int(flags.sum())
    return parts


def _write(target: str, sources: Sequence[Chosen], types: pa.Schema) -> None:
    with copy_at(target) as copy, pq.ParquetWriter(copy, types) as writer:
        for file, wanted in sources:
            for rows in ParquetRows((file,)).chosen(types, wanted.to_numpy(zero_copy_only=False)):
                writer.write_table(rows)
