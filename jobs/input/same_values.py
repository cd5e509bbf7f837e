"""Whether Arrow reads from Parquet files the values that Spark reads, told by their footers."""

import datetime as dt
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.errors import DeclarationError
from jobs.storage.parquet_files import has_old_calendar, open_parquet

# metadata of Arrow's files: the types that it reads, which are not always Parquet's
ARROW_TYPES = b"ARROW:schema"
# before it, times depend on the calendar of who wrote them
UNAMBIGUOUS_FROM = dt.datetime(1900, 1, 1)  # noqa: DTZ001  # Arrow casts it to any type of time


def reading_facts(footer: pq.FileMetaData) -> tuple[bool, bytes | None]:
    """Return the facts that `only_in_spark` depends on, except Parquet's types."""
    return has_old_calendar(footer), (footer.metadata or {}).get(ARROW_TYPES)


def only_in_spark(footers: Iterable[pq.FileMetaData], types: Mapping[str, pa.DataType]) -> str:
    """Name the first column that only Spark reads as it was meant; empty if Arrow reads them all.

    A cast of what Arrow reads gives what Spark reads of the others.

    Args:
        footers: The footers of the files.
        types: The types in which Spark passes columns to Arrow, by lower-case name.
    """
    for footer in footers:
        is_old = has_old_calendar(footer)
        for field in footer.schema.to_arrow_schema():
            read = types.get(field.name.lower())
            if read is not None and not _same(field.type, read, old_calendar=is_old):
                return f"{field.name!r} ({_difference(field.type, read, old_calendar=is_old)})"
    return ""


def _difference(stored: pa.DataType, read: pa.DataType, *, old_calendar: bool) -> str:
    if pa.types.is_nested(read):
        return "a nested column"
    is_old = old_calendar and pa.types.is_temporal(read)
    return "of an old calendar" if is_old else f"{stored}, for Spark {read}"


def refuse_old_dates(files: Iterable[str]) -> None:
    """Refuse values that Arrow reads otherwise than Spark: dates and times of the old calendar.

    Reads only columns of dates and times, and only of files that may have such values.

    Raises:
        DeclarationError: A file has such a value, or may have it in a nested column.
    """
    for path in files:
        with open_parquet(path) as file:
            if not has_old_calendar(file.metadata):
                continue
            for field in file.schema_arrow:
                if _may_be_old(field.type) and not is_unambiguous(file.read([field.name])[0]):
                    raise DeclarationError(
                        f"input: {field.name!r} in {path} has dates or times before 1900 in the "
                        "calendar of Spark 2. Spark would convert them, but Input(rows="
                        '"changed"), `try` and `eval` read files without Spark, and so do copies '
                        "of files with columns without a type. Write the file again with Spark "
                        "3 or later."
                    )


def _may_be_old(kind: pa.DataType) -> bool:
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind) or any(map(_may_be_old, inner))


def is_unambiguous(values: pa.ChunkedArray) -> bool:
    """Return whether no date or time depends on the calendar of the program that wrote it."""
    kind = values.type
    if not _may_be_old(kind):
        return True
    if pa.types.is_nested(kind):
        return False
    first, least = pa.scalar(UNAMBIGUOUS_FROM, pa.timestamp("us")).cast(kind), pc.min(values)
    return not least.is_valid or bool(pc.greater_equal(least, first).as_py())


def _same(stored: pa.DataType, read: pa.DataType, *, old_calendar: bool) -> bool:
    """Return whether a cast of the type that Arrow reads gives what Spark reads.

    Nested types are left to Spark, which reads some of their layouts differently.
    """
    of = pa.types
    if of.is_nested(read) or (old_calendar and of.is_temporal(read)):
        return False
    if of.is_dictionary(stored):
        stored = stored.value_type
    if of.is_integer(stored) and of.is_integer(read):
        return bool(stored.bit_width < read.bit_width or stored == read)
    if of.is_timestamp(stored) and of.is_timestamp(read):
        return bool(stored.tz is None or read.tz is not None)  # INT96 has none, and is in UTC
    return bool(
        stored == read
        or of.is_null(stored)
        or ((of.is_large_string(stored) or of.is_string_view(stored)) and of.is_string(read))
        or (_is_bytes(stored) and of.is_binary(read))
        or (of.is_float32(stored) and of.is_float64(read))
    )


def _is_bytes(kind: pa.DataType) -> bool:
    of = pa.types
    return bool(
        of.is_large_binary(kind) or of.is_binary_view(kind) or of.is_fixed_size_binary(kind)
    )
