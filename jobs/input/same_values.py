"""Whether Arrow reads from Parquet files the values that Spark reads, told by their footers."""

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

# metadata of Arrow's files: the types that it reads, which are not always Parquet's
ARROW_TYPES = b"ARROW:schema"
SPARK_VERSION, OLD_CALENDAR = b"org.apache.spark.version", b"org.apache.spark.legacyDateTime"


def reading_facts(footer: pq.FileMetaData) -> tuple[bool, bytes | None]:
    """Return the facts that `reads_same` depends on, except Parquet's types."""
    return _has_old_calendar(footer), (footer.metadata or {}).get(ARROW_TYPES)


def reads_same(footers: Iterable[pq.FileMetaData], types: Mapping[str, pa.DataType]) -> bool:
    """Return whether Arrow reads these columns of all files, and a cast gives what Spark reads.

    Args:
        footers: The footers of the files.
        types: The types in which Spark passes columns to Arrow, by lower-case name.
    """
    return all(
        _same(field.type, types[field.name.lower()], old_calendar=_has_old_calendar(footer))
        for footer in footers
        for field in footer.schema.to_arrow_schema()
        if field.name.lower() in types
    )


def _has_old_calendar(footer: pq.FileMetaData) -> bool:
    """Return whether dates and times before 1900 may be of the Julian calendar.

    Spark wrote it before version 3.
    """
    noted = footer.metadata or {}
    version = noted.get(SPARK_VERSION, b"").partition(b".")[0]
    return OLD_CALENDAR in noted or (version.isdigit() and int(version) < 3)


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
        return bool(stored.unit != "ns" and (stored.tz is None) == (read.tz is None))
    return bool(
        stored == read
        or of.is_null(stored)
        or (of.is_large_string(stored) and of.is_string(read))
        or ((of.is_large_binary(stored) or of.is_fixed_size_binary(stored)) and of.is_binary(read))
        or (of.is_float32(stored) and of.is_float64(read))
    )
