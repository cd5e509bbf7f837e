"""The ids of an input's rows, and files of some of its rows."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.input.day import InputDay, group_facts
from jobs.input.row_comparison import Flags, ParquetRows, repeated
from jobs.storage import durable


def rows_of(input_day: InputDay) -> ParquetRows:
    return ParquetRows(input_day.files)


def read_row_ids(enrichment: Enrichment, input_day: InputDay) -> pa.Table:
    """The columns of `row_id`. Raises DeclarationError unless each row has an id, and no two the same."""
    kinds = {column.name.lower(): column for column in input_day.columns}
    columns = [kinds[name.lower()] for name in enrichment.input.row_id]
    begin = f"{enrichment.name}: input: row_id: {', '.join(column.name for column in columns)}"
    for column in columns:
        if pa.types.is_nested(column.kind):
            raise DeclarationError(f"{begin}: {column.name!r} is {column.kind}; rows are identified by plain values.")
    ids = rows_of(input_day).columns(pa.schema([(column.name, column.kind) for column in columns]))
    for name in ids.column_names:
        if count := ids[name].null_count:
            raise DeclarationError(
                f'{begin}: {name!r} is null in {count:,} of {ids.num_rows:,} rows; with rows="changed" each row needs '
                "an id."
            )
    if (found := repeated(ids)) is not None:
        shown = "one id" if enrichment.pii else ", ".join(map(repr, found.values()))
        raise DeclarationError(
            f'{begin}: several rows have {shown}; with rows="changed" an id is of one row: name the columns that tell '
            "rows apart, or leave repeated rows out."
        )
    return ids


def chosen(input_day: InputDay, wanted: Flags, folder: Path) -> InputDay:
    """The wanted rows of the input, as a file in `folder` unless they are all of it. Equal rows are written once.

    Raises DeclarationError for a folder that cannot be written.
    """
    if wanted.all():
        return input_day
    digest = hashlib.sha256(json.dumps(input_day.facts).encode() + np.packbits(wanted).tobytes()).hexdigest()[:12]
    target = folder / f"changed-{digest}.parquet"
    if target.exists():
        os.utime(target)  # vacuum goes by its last use
    else:
        try:
            _write(input_day, wanted, target)
        except OSError as error:
            raise DeclarationError(
                f"input: its changed rows cannot be copied to {folder}: {error.strerror}."
            ) from error
    groups = group_facts([pq.read_metadata(target)])
    return replace(input_day, files=(str(target),), rows=int(wanted.sum()), alike=False, copied=True, **groups)


def _write(input_day: InputDay, wanted: Flags, target: Path) -> None:
    draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
    durable.make_folder(target.parent)
    try:
        with pq.ParquetWriter(draft, input_day.schema) as writer:
            for rows in rows_of(input_day).chosen(input_day.schema, wanted):
                writer.write_table(rows)
        durable.sync(draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
