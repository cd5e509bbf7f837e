"""Whether Arrow reads from Parquet files the values that Spark reads, told by their footers."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.arrow_values import is_unambiguous, may_be_old
from jobs.errors import DeclarationError
from jobs.input.types import columns_of_old_layout
from jobs.storage.parquet_files import has_old_calendar, open_parquet

# metadata of Arrow's files: the types that it reads, which are not always Parquet's
ARROW_TYPES = b"ARROW:schema"
# metadata of a column in Spark's JSON: it pads a CHAR, has a default where a file lacks the column,
# and compares texts by a collation
CHANGING = {"__CHAR_VARCHAR_TYPE_STRING", "EXISTS_DEFAULT", "__COLLATIONS"}


def changes_values(field: Any) -> bool:
    """Return whether Spark reads a field, in its JSON, otherwise than its type says."""
    if isinstance(field, list):
        return any(map(changes_values, field))
    if not isinstance(field, dict):
        return False
    inner = [value for name, value in field.items() if name != "metadata"]
    return bool(CHANGING & set(field.get("metadata", ()))) or changes_values(inner)


def only_in_spark(footers: Iterable[pq.FileMetaData], types: Mapping[str, pa.DataType]) -> str:
    """Name the first column that only Spark reads as it was meant; empty if Arrow reads them all.

    Dates and times of an old calendar are not looked for. Of the other columns `conform` turns what
    Arrow reads into what Spark reads.

    Args:
        footers: The footers of the files.
        types: The types in which Spark passes columns to Arrow, by lower-case name.
    """
    for footer in footers:
        old_layout = set(columns_of_old_layout(footer))
        for field in footer.schema.to_arrow_schema():
            read = types.get(field.name.lower())
            if read is None:
                continue
            if field.name in old_layout:
                return f"{field.name!r} (lists or maps in a layout of old writers)"
            if not _same(field.type, read):
                return f"{field.name!r} ({field.type}, for Spark {read})"
    return ""


def refuse_old_dates(files: Iterable[str]) -> None:
    """Refuse values that Arrow reads otherwise than Spark: dates and times of the old calendar.

    Reads only columns of dates and times, and only of files that may have such values.

    Raises:
        DeclarationError: A file has such a value.
    """
    for path in files:
        with open_parquet(path) as file:
            if not has_old_calendar(file.metadata):
                continue
            for field in file.schema_arrow:
                if may_be_old(field.type) and not is_unambiguous(file.read([field.name])[0]):
                    raise DeclarationError(
                        f"input: {field.name!r} in {path} has dates or times before 1900 in the "
                        "calendar of Spark 2. Spark would convert them, but the local engine, "
                        'Input(rows="changed"), `try` and `eval` read files without Spark, and '
                        "so do copies of files with columns without a type. Write the file again "
                        "with Spark 3 or later."
                    )


def _same(stored: pa.DataType, read: pa.DataType) -> bool:
    """Return whether `conform` can turn Arrow's type of a column into Spark's."""
    types = pa.types
    if isinstance(stored, pa.BaseExtensionType):
        stored = stored.storage_type
    if types.is_dictionary(stored):
        stored = stored.value_type
    if types.is_nested(stored) or types.is_nested(read):
        return _same_nested(stored, read)
    if types.is_integer(stored) and types.is_integer(read):
        return bool(stored.bit_width < read.bit_width or stored == read)
    if types.is_timestamp(stored) and types.is_timestamp(read):
        return bool(stored.tz is None or read.tz is not None)  # INT96 has none, and is in UTC
    pairs = (is_stored(stored) and is_read(read) for is_stored, is_read in ALIKE)
    return stored == read or types.is_null(stored) or any(pairs)


def _same_nested(stored: pa.DataType, read: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(stored) and types.is_struct(read):
        fields = {field.name.lower(): field.type for field in read}
        names = [field.name.lower() for field in stored]
        known = [field for field in stored if field.name.lower() in fields]
        # versions of Spark differ where a file has no field of a struct
        return (
            bool(known)
            and len(set(names)) == len(names)
            and all(_same(field.type, fields[field.name.lower()]) for field in known)
        )
    if types.is_map(stored) and types.is_map(read):
        return _same(stored.key_type, read.key_type) and _same(stored.item_type, read.item_type)
    is_list = types.is_nested(stored) and not (types.is_struct(stored) or types.is_map(stored))
    return bool(is_list and types.is_list(read)) and _same(stored.value_type, read.value_type)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    of = pa.types
    return bool(
        of.is_binary(kind)
        or of.is_large_binary(kind)
        or of.is_binary_view(kind)
        or of.is_fixed_size_binary(kind)
    )


ALIKE = (  # stored, read
    (_is_text, pa.types.is_string),
    (_is_bytes, lambda kind: pa.types.is_binary(kind) or pa.types.is_string(kind)),
    (pa.types.is_float32, pa.types.is_float64),
    (pa.types.is_integer, lambda kind: pa.types.is_decimal(kind) or pa.types.is_float64(kind)),
    (pa.types.is_decimal, pa.types.is_decimal),
    (pa.types.is_date, lambda kind: kind == pa.timestamp("us")),
    (pa.types.is_duration, pa.types.is_int64),
)
