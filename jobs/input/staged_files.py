"""Copies of a day's input files next to the output, where Spark and the checks read them.

CSV and JSON files are copied to Parquet with the declared types, row for row; files on an object
store are copied, unless tasks run on other machines, which read them there; of an Iceberg table the
live rows are copied.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.arrow_values import conform_rows
from jobs.declare.inputs import TABLES, Input
from jobs.errors import DeclarationError
from jobs.input.text.csv_rows import read_csv
from jobs.input.text.json_rows import read_json
from jobs.input.text.text_faults import TextFault
from jobs.schema.columns import SOURCE_FILE
from jobs.storage import durable
from jobs.storage.new_files import Writable, new_file
from jobs.storage.objects import download, is_configured
from jobs.storage.parquet_files import batches_in, open_parquet
from jobs.storage.stored_files import StoredFile, error_text, is_there
from jobs.storage.urls import below, is_url

FOLDER = "_inputs"  # in the folder of the output, whose readers ignore names that begin with _
BEFORE_COPIES = f"^.*/{FOLDER}/"
COPIED = ("parquet", "delta")  # as they are
AT_ONCE = 64  # copies
TEXT_RULES = [4]  # a number that changes with what is read from CSV and JSON
BLOCK = 4 << 20  # bytes read at once
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class ScannedFile(StoredFile):
    """A file whose rows and columns are decided by its table.

    Attributes:
        facts: The facts that they depend on.
        read: Its address and those of its files of deletes, which are never changed.
        types: The types of the columns.
        rows: Reads the rows of the day, anew at each call.
    """

    facts: Sequence[str]
    read: Sequence[str]
    types: pa.Schema
    rows: Callable[[], Iterable[pa.RecordBatch]]

    @property
    def version(self) -> str:
        """Without the time, which is lost when the file's snapshot expires."""
        return " ".join(self.read)


def staged(files: Sequence[StoredFile], declared: Input, folder: str, *, hidden: bool) -> list[str]:
    """Return the same files as Parquet, in their order.

    A file that did not change since it was staged is not read again.

    Args:
        files: The files of a day.
        declared: Their format and columns.
        folder: The folder of the copies, which driver and executors share, or its URL.
        hidden: Whether values of the files are personal, and stay out of messages.

    Raises:
        DeclarationError: A file has gone or changes, does not hold the declared columns, or the
            folder cannot be written.
    """
    are_copies = all(_is_copied(file, declared) for file in files)
    copied = partial(_staged, declared=declared, folder=folder, hidden=hidden)
    with (
        _copying("files", folder),
        ThreadPoolExecutor(AT_ONCE if are_copies else 1) as pool,  # copies only wait
    ):
        return list(pool.map(copied, files))


def name_anywhere(file: str) -> str:
    """Return an input file's place; of a copy only its end, which it has beside any table."""
    return re.sub(BEFORE_COPIES, f"{FOLDER}/", file)


def names_anywhere(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of written rows; that of their source files as by `name_anywhere`."""
    if name != SOURCE_FILE:
        return column
    return pc.replace_substring_regex(column.cast(pa.string()), BEFORE_COPIES, f"{FOLDER}/")


@contextlib.contextmanager
def _copying(copies: str, folder: str) -> Iterator[None]:
    """Make the folder of copies, and sync it once they are there."""
    try:
        if not is_url(folder):
            durable.make_folder(Path(folder))
        yield
        if not is_url(folder):
            durable.sync(Path(folder))
    except OSError as error:
        raise DeclarationError(
            f"input: {copies} cannot be copied to {folder}: {error_text(error)}."
        ) from error


def _is_copied(file: StoredFile, declared: Input) -> bool:
    return declared.format in COPIED and not isinstance(file, ScannedFile)


def _staged(file: StoredFile, declared: Input, folder: str, *, hidden: bool) -> str:
    try:
        target = _place(
            file,
            folder,
            [
                declared.format, declared.schema, file.size, file.changed_ns,
                *_further_facts(file, declared),
            ],
        )  # fmt: skip
        if not is_kept(target):
            with copy_at(target) as copy:
                if not _written(file, declared, copy):
                    raise DeclarationError(
                        f"input: {file.place} changed while it was read; start again when it is "
                        "complete."
                    )
    except TextFault as fault:
        raise DeclarationError(f"input: {file.place}: {fault.sentence(hidden=hidden)}") from fault
    except (EOFError, zlib.error) as error:
        raise DeclarationError(
            f"input: {file.place} is not a whole gzip file. Write it again."
        ) from error
    except OSError as error:  # gzip's too, of another file or a wrong checksum
        raise DeclarationError(
            f"input: {file.place} cannot be copied to {folder}: {error_text(error)}."
        ) from error
    return target


def _further_facts(file: StoredFile, declared: Input) -> Sequence[Any]:
    if isinstance(file, ScannedFile):
        return [file.facts]
    # files of a table, unlike those of a day's folder, may have the same name
    return [file.place] if declared.format == "delta" else TEXT_RULES if declared.schema else []


def _place(file: StoredFile, folder: str, facts: Sequence[Any]) -> str:
    """Return the place of a copy, whose name changes with the facts that it depends on."""
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
    return below(folder, f"{file.name}-{digest}.parquet")


def is_kept(target: str) -> bool:
    """Return whether such a copy exists, and keep it, as it is in use from now on."""
    if is_url(target):
        return is_there(target)
    if kept := Path(target).exists():
        os.utime(target)  # vacuum goes by its last use
    return kept


@contextlib.contextmanager
def copy_at(target: str) -> Iterator[Writable]:
    """Write a copy in the body, which readers see when it is complete."""
    if is_url(target):
        with new_file(target) as file:
            yield file
        return
    path = Path(target)
    draft = durable.name_draft(path)
    try:
        yield draft
        durable.sync(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _written(file: StoredFile, declared: Input, target: Writable) -> bool:
    """Write the copy. Returns whether the file was read as it was listed."""
    if isinstance(target, Path) and _is_copied(file, declared) and is_configured(file.place):
        return file.is_like(download(file.place, target))
    _write(file, declared, target)
    return declared.format in TABLES or file.is_like(StoredFile.at(file.place))  # no table changes


def _write(file: StoredFile, declared: Input, target: Writable) -> None:
    if isinstance(file, ScannedFile):
        with pq.ParquetWriter(target, file.types) as writer:
            for batch in file.rows():
                writer.write_batch(batch)
        return
    if isinstance(target, Path) and _is_copied(file, declared):  # on a store they are read in place
        with file.open() as source, target.open("xb") as copy:
            shutil.copyfileobj(source, copy, BLOCK)
        return
    _convert(file, declared, target)


def is_copy(file: str) -> bool:
    """Return whether a file is a copy, by its path."""
    return file.split("/")[-3:-2] == [FOLDER]


def typed_copy(
    file: str, types: Mapping[str, pa.DataType], folder: str, others: Mapping[str, pa.DataType]
) -> str:
    """Return a copy of a Parquet file in which these columns have these types.

    Args:
        file: Its place.
        types: Of columns that are written without a type there.
        folder: The folder of the copy.
        others: The types in which Spark reads the other columns.

    Raises:
        DeclarationError: The file changes, or the copy cannot be written.
    """
    stored = StoredFile.at(file)
    named = {name: str(kind) for name, kind in types.items()}
    target = _place(stored, folder, [stored.size, stored.changed_ns, named])
    if is_kept(target):
        return target
    with _copying(file, folder), copy_at(target) as copy:
        with open_parquet(file) as opened:
            typed = pa.schema(
                field.with_type(types.get(field.name, others[field.name]))
                for field in opened.schema_arrow
            )
            with pq.ParquetWriter(copy, typed) as writer:
                for batch in batches_in(opened, ROWS_AT_ONCE):
                    writer.write_batch(conform_rows(batch, typed))
        if StoredFile.at(file) != stored:
            raise DeclarationError(
                f"input: {file} changed while it was read; start again when it is complete."
            )
    return target


class _CountedBytes(io.RawIOBase):
    """Counts the bytes that are read from a stream."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self.bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._stream.readinto(buffer)
        self.bytes += count
        return count


def _convert(file: StoredFile, declared: Input, target: Writable) -> None:
    """Write the rows of a CSV or JSON file with the declared types.

    Raises:
        DeclarationError: The file was not read to its end, or not all of its rows were written.
        TextFault: It does not hold what is declared.
    """
    read = read_csv if declared.format == "csv" else read_json
    types = pa.schema([(column.name, column.arrow_type) for column in declared.columns])
    rows = 0
    with file.open() as stored, pq.ParquetWriter(target, types) as writer:
        counted = _CountedBytes(stored)
        packed = io.BufferedReader(counted, BLOCK)
        source = gzip.GzipFile(fileobj=packed) if file.name.lower().endswith(".gz") else packed
        for table in read(source, declared.columns):
            writer.write_table(table)
            rows += table.num_rows
    written = pq.read_metadata(target).num_rows
    if counted.bytes != file.size or written != rows:
        raise DeclarationError(
            f"input: {file.place} has {file.size:,} bytes and {rows:,} rows, of which "
            f"{counted.bytes:,} bytes were read and {written:,} rows written; start again."
        )
