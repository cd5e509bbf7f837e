"""CSV and JSON files of a day, converted once to Parquet files beside the output, which Spark and the checks read: row
for row, in the same order, with the declared types.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv
from pyarrow import json as json_lines

from jobs import durable
from jobs.errors import DeclarationError
from jobs.wording import one_line

if TYPE_CHECKING:
    from jobs.declare.enrichment import Input

FOLDER = "_inputs"  # in the folder of the output, whose readers ignore names that begin with _
ENDINGS = {"parquet": (".parquet",), "csv": (".csv", ".csv.gz"), "json": (".json", ".jsonl", ".json.gz", ".jsonl.gz")}
BLOCK = 4 << 20  # bytes read at once; no row is longer
OFFSET = r"(Z|:\d\d(\.\d+)?[+-]\d\d(:?\d\d)?)$"  # of a time that names its zone
LONGEST = 200  # characters of a message


def as_parquet(files: Sequence[Path], declared: Input, folder: Path, *, hidden: bool) -> list[Path]:
    """The same files as Parquet, in their order. A file that did not change since it was converted is not read again.

    Args:
        files: Of one day.
        declared: Their format and columns.
        folder: For the converted files; driver and executors share it.
        hidden: Whether values of the files are personal, and stay out of messages.

    Raises:
        DeclarationError: A file does not hold the declared columns, or the folder cannot be written.
    """
    return [_converted(file, declared, folder, hidden=hidden) for file in files]


def _converted(file: Path, declared: Input, folder: Path, *, hidden: bool) -> Path:
    try:
        before = _version(file)
        facts = json.dumps([declared.format, declared.schema, *before])
        target = folder / f"{file.name}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}.parquet"
        if target.exists():
            os.utime(target)  # vacuum goes by its last use
            return target
        durable.make_folder(folder)
        draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
        try:
            _write(file, declared, draft)
            durable.sync(draft)
            if _version(file) != before:
                raise DeclarationError(f"input: {file} changed while it was read; start again when it is complete.")
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        durable.sync(folder)
    except (pa.ArrowInvalid, KeyError) as error:  # KeyError: a CSV file without a declared column
        raise DeclarationError(
            f"input: {file} does not hold the declared columns, {declared.schema}: {_shown(error, hidden=hidden)}."
        ) from error
    except OSError as error:
        raise DeclarationError(f"input: {file} cannot be converted to Parquet in {folder}: {error}.") from error
    return target


def _version(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def _write(file: Path, declared: Input, target: Path) -> None:
    types = pa.schema([(column.name, column.arrow_type) for column in declared.columns])
    as_text = pa.schema([(field.name, _in_text(field.type)) for field in types])
    times = {field.name for field in types if pa.types.is_timestamp(field.type)}
    with pa.input_stream(str(file), compression="detect") as source, pq.ParquetWriter(target, types) as writer:
        for batch in (_csv if declared.format == "csv" else _json)(source, as_text):
            columns = [_zoned(batch[name]) if name in times else batch[name] for name in types.names]
            writer.write_table(pa.table(columns, types.names).cast(types))


def _csv(source: pa.NativeFile, types: pa.Schema) -> Iterable[pa.RecordBatch]:
    """A value is null where nothing stands between the commas; `""` is an empty text."""
    batches: Iterable[pa.RecordBatch] = csv.open_csv(
        source,
        read_options=csv.ReadOptions(block_size=BLOCK),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=types, include_columns=types.names, null_values=[""],
            strings_can_be_null=True, quoted_strings_can_be_null=False, true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
        ),
    )  # fmt: skip
    return batches


def _json(source: pa.NativeFile, types: pa.Schema) -> Iterable[pa.RecordBatch]:
    try:
        batches: Iterable[pa.RecordBatch] = json_lines.open_json(
            source,
            read_options=json_lines.ReadOptions(block_size=BLOCK),
            parse_options=json_lines.ParseOptions(explicit_schema=types, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        if "Empty JSON stream" in str(error):  # a file without rows
            return []
        raise
    return batches


def _in_text(kind: pa.DataType) -> pa.DataType:
    """The type as Arrow reads it from text. It would take dates for numbers in JSON, and times for local ones."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _in_text(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_in_text(kind.value_type))
    return pa.string() if pa.types.is_temporal(kind) else kind


def _zoned(times: pa.Array) -> pa.Array:
    """A time without an offset is one in UTC."""
    return pc.if_else(pc.match_substring_regex(times, OFFSET), times, pc.binary_join_element_wise(times, "Z", ""))


def _shown(error: Exception, *, hidden: bool) -> str:
    """One line of the error, without the row, and without values where they are personal."""
    text = re.sub(r"(got \d+): .*", r"\1", one_line(str(error)))
    if hidden:
        text = re.sub(r"('|parse:).*", "...", text)
    return text[:LONGEST].rstrip(".")
