"""Copies of a day's input files beside the output, where Spark and the checks read them: of CSV and JSON files, as
Parquet with the declared types, row for row; of files on an object store; and of the rows that are live in the files
of an Iceberg table.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv
from pyarrow import json as json_lines

from jobs.declare.inputs import TABLES
from jobs.errors import DeclarationError
from jobs.storage import durable
from jobs.storage.objects import download, is_found_here
from jobs.storage.stored_files import StoredFile, error_text
from jobs.wording import one_line

if TYPE_CHECKING:
    from jobs.declare.inputs import Input

FOLDER = "_inputs"  # in the folder of the output, whose readers ignore names that begin with _
ENDINGS = {"parquet": (".parquet",), "csv": (".csv", ".csv.gz"), "json": (".json", ".jsonl", ".json.gz", ".jsonl.gz")}
COPIED = ("parquet", "delta")  # as they are
AT_ONCE = 64  # copies
BLOCK = 4 << 20  # bytes read at once; no row is longer
OFFSET = r"(Z|:\d\d(\.\d+)?[+-]\d\d(:?\d\d)?)$"  # of a time that names its zone
LONGEST = 200  # characters of a message


@dataclass(frozen=True)
class ScannedFile(StoredFile):
    """A file whose rows and columns are decided by its table.

    Attributes:
        facts: What they depend on.
        types: Of the columns.
        rows: Reads those of the day, anew at each call.
    """

    facts: Sequence[str]
    types: pa.Schema
    rows: Callable[[], Iterable[pa.RecordBatch]]


def staged(files: Sequence[StoredFile], declared: Input, folder: Path, *, hidden: bool) -> list[Path]:
    """The same files as local Parquet, in their order. A file that did not change since it was staged is not read
    again.

    Args:
        files: Of one day.
        declared: Their format and columns.
        folder: For the copies; driver and executors share it.
        hidden: Whether values of the files are personal, and stay out of messages.

    Raises:
        DeclarationError: A file is not there any more or changes, does not hold the declared columns, or the folder
            cannot be written.
    """
    try:
        durable.make_folder(folder)
        are_copies = all(_is_copied(file, declared) for file in files)
        with ThreadPoolExecutor(AT_ONCE if are_copies else 1) as pool:  # a copy only waits, for the store and the disk
            found = list(pool.map(partial(_staged, declared=declared, folder=folder, hidden=hidden), files))
        durable.sync(folder)
    except OSError as error:
        raise DeclarationError(f"input: files cannot be copied to {folder}: {error_text(error)}.") from error
    return found


def _is_copied(file: StoredFile, declared: Input) -> bool:
    return declared.format in COPIED and not isinstance(file, ScannedFile)


def _staged(file: StoredFile, declared: Input, folder: Path, *, hidden: bool) -> Path:
    try:
        of_table = [file.facts] if isinstance(file, ScannedFile) else []
        facts = json.dumps([declared.format, declared.schema, file.size, file.changed_ns, *of_table])
        target = folder / f"{file.name}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}.parquet"
        if target.exists():
            os.utime(target)  # vacuum goes by its last use
            return target
        draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
        try:
            is_as_listed = _written(file, declared, draft)
            durable.sync(draft)
            if not is_as_listed:
                raise DeclarationError(
                    f"input: {file.place} changed while it was read; start again when it is complete."
                )
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except (pa.ArrowInvalid, KeyError) as error:  # KeyError: a CSV file without a declared column
        raise DeclarationError(
            f"input: {file.place} does not hold the declared columns, {declared.schema}: "
            f"{_shown(error, hidden=hidden)}."
        ) from error
    except OSError as error:
        raise DeclarationError(f"input: {file.place} cannot be copied to {folder}: {error_text(error)}.") from error
    return target


def _written(file: StoredFile, declared: Input, target: Path) -> bool:
    """Write the copy. Returns whether the file was read as it was listed."""
    if _is_copied(file, declared) and is_found_here(file.place):
        there = download(file.place, target)
        return (there.size, there.changed_ns // 10**9) == (file.size, file.changed_ns // 10**9)
    _write(file, declared, target)
    return declared.format in TABLES or StoredFile.at(file.place) == file  # no table changes a file


def _write(file: StoredFile, declared: Input, target: Path) -> None:
    if isinstance(file, ScannedFile):
        with pq.ParquetWriter(target, file.types) as writer:
            for batch in file.rows():
                writer.write_batch(batch)
        return
    if _is_copied(file, declared):
        with file.open(compression=None) as source, target.open("xb") as copy:
            shutil.copyfileobj(source, copy, BLOCK)
        return
    types = pa.schema([(column.name, column.arrow_type) for column in declared.columns])
    as_text = pa.schema([(field.name, _in_text(field.type)) for field in types])
    times = {field.name for field in types if pa.types.is_timestamp(field.type)}
    with file.open() as source, pq.ParquetWriter(target, types) as writer:
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
