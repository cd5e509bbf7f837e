"""Spark's types of the columns of Parquet files, derived from footers.

They are known before Spark starts, and without a Spark job.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.arrow_values import SIGNED
from jobs.errors import DeclarationError

# metadata of Spark's files for types that Parquet lacks
SPARK_TYPES = "org.apache.spark.sql.parquet.row.metadata"
UTC, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
BY_STORAGE = {
    "BOOLEAN": pa.bool_(), "INT32": pa.int32(), "INT64": pa.int64(), "INT96": UTC,
    "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "BYTE_ARRAY": pa.binary(),
    "FIXED_LEN_BYTE_ARRAY": pa.binary(),
}  # fmt: skip
BY_NAME = {
    "STRING": pa.string(), "ENUM": pa.string(), "JSON": pa.string(), "BSON": pa.binary(),
    "DATE": pa.date32(),
}  # fmt: skip
UNSIGNED = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}
LARGEST_PRECISION = 38  # of a DECIMAL, in Spark and Delta
# a group of this type, in the text of a schema: pyarrow tells the types of leaves only
VARIANT = re.compile(r" group field_id=-?\d+ (.*) \(Variant\(\d+\)\) \{$", re.MULTILINE)
REFUSED = {
    "TIME": "a time of day, which a Delta table cannot store. Write it as text.",
    "TIMESTAMP": "a timestamp in nanoseconds, which Spark does not read. Write it in microseconds.",
    "DECIMAL": (
        f"a decimal of more than {LARGEST_PRECISION} digits, which Spark does not read. "
        "Write it with fewer."
    ),
}


@dataclass(frozen=True)
class InputColumn:
    name: str
    kind: pa.DataType  # the type that Spark passes to Arrow
    file: Path | str  # a file with this type, or the table
    untyped: bool  # it, or a part, is null in the whole file and has no type
    spark_field: dict[str, Any] | None  # for a file by Spark: the field in Spark's JSON
    # its lists or maps have a layout of old writers, in which Spark may see another type than Arrow
    has_old_layout: bool = False

    @property
    def without_type(self) -> str:
        """A clause that the column has no type, with the reason."""
        if pa.types.is_nested(self.kind):
            return (
                f"something in {self.name!r} has no type in {self.file}, as it is null or empty "
                "in all rows there"
            )
        return f"{self.name!r} has no type in {self.file}, as all of it is null there"


def read_columns(file: Path | str, footer: pq.FileMetaData) -> Iterator[InputColumn]:
    """Yield the columns of a file in order.

    Raises:
        DeclarationError: Spark cannot read a column, or a Delta table cannot store it.
    """
    leaves = (footer.schema.column(number) for number in range(len(footer.schema)))
    noted = json.loads((footer.metadata or {}).get(SPARK_TYPES.encode(), b'{"fields": []}'))[
        "fields"
    ]
    spark_field = {field["name"]: field for field in noted}
    variant = VARIANT.search(str(footer.schema))
    if variant and not noted:
        raise DeclarationError(
            f"input: {variant[1]!r} in {file} is a variant, of which a run would publish the "
            "bytes. Write it as text."
        )
    old = set(columns_of_old_layout(footer))
    for field in footer.schema.to_arrow_schema():
        try:
            # Spark knows only Parquet's types
            read = with_leaves(field.type, lambda _: _leaf(next(leaves)))
            kind = _without_types(read, field.type)
        except ValueError as reason:
            raise DeclarationError(f"input: {field.name!r} in {file} is {reason}") from reason
        yield InputColumn(
            field.name,
            kind,
            file,
            _has_no_type(field.type),
            spark_field.get(field.name),
            field.name in old,
        )


def columns_of_old_layout(footer: pq.FileMetaData) -> Iterator[str]:
    """Yield the columns with a list or map that is not a group of a repeated group."""
    paths = (footer.schema.column(number).path for number in range(len(footer.schema)))
    for field in footer.schema.to_arrow_schema():
        wanted = list(_dots(field.type, field.name.count(".")))
        if wanted != [next(paths).count(".") for _ in wanted]:
            yield field.name


def _dots(kind: pa.DataType, dots: int) -> Iterator[int]:
    """Yield how many dots the path of each leaf has where lists and maps have three levels."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _dots(field.type, dots + 1 + field.name.count("."))
    elif pa.types.is_map(kind):
        yield from _dots(kind.key_type, dots + 2)
        yield from _dots(kind.item_type, dots + 2)
    elif pa.types.is_nested(kind):
        yield from _dots(kind.value_type, dots + 2)
    else:
        yield dots


def _without_types(kind: pa.DataType, stored: pa.DataType) -> pa.DataType:
    """Return the type with null for each part that was stored, in Arrow's type, without a type."""
    if pa.types.is_null(stored):
        return stored
    if pa.types.is_struct(kind) and pa.types.is_struct(stored):
        pairs = zip(kind, stored, strict=True)
        return pa.struct(
            [one.with_type(_without_types(one.type, other.type)) for one, other in pairs]
        )
    if pa.types.is_map(kind) and pa.types.is_map(stored):
        return pa.map_(kind.key_type, _without_types(kind.item_type, stored.item_type))
    if pa.types.is_list(kind) and stored.num_fields == 1:
        return pa.list_(_without_types(kind.value_type, stored.field(0).type))
    return kind


def with_types(column: InputColumn) -> InputColumn:
    """Return the column as Spark reads it: what has no type in any file is an integer."""
    if not column.untyped:
        return column
    kind = with_leaves(column.kind, lambda leaf: pa.int32() if pa.types.is_null(leaf) else leaf)
    return replace(column, kind=kind)


def in_table(column: InputColumn, kind: pa.DataType, table: str) -> InputColumn:
    """Return the column with the published table's type, by the rule for two files of a day.

    Fields of structs may be new. Where the table's type cannot hold the values, the column stays.
    """
    wide = _wider(kind, column.kind)
    if wide is None or wide == column.kind or not _adds_fields(kind, wide):
        return column
    return InputColumn(column.name, wide, table, untyped=_has_no_type(wide), spark_field=None)


def _adds_fields(kind: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether `wide` has more fields in structs than `kind`, and otherwise its types."""
    if pa.types.is_struct(kind) and pa.types.is_struct(wide):
        fields = {field.name: field.type for field in wide}
        return all(
            field.name in fields and _adds_fields(field.type, fields[field.name]) for field in kind
        )
    if pa.types.is_map(kind) and pa.types.is_map(wide):
        return bool(kind.key_type == wide.key_type and _adds_fields(kind.item_type, wide.item_type))
    if pa.types.is_list(kind) and pa.types.is_list(wide):
        return _adds_fields(kind.value_type, wide.value_type)
    return bool(kind == wide)


def needs_types(stored: pa.DataType, read: pa.DataType) -> bool:
    """Return whether Spark would read a part without a type as another type than the day's."""
    if pa.types.is_null(stored):
        return not (pa.types.is_integer(read) or pa.types.is_null(read))
    if pa.types.is_struct(stored):
        fields = {field.name.lower(): field.type for field in read}
        return any(needs_types(field.type, fields[field.name.lower()]) for field in stored)
    if pa.types.is_map(stored):
        return needs_types(stored.item_type, read.item_type)
    return bool(pa.types.is_list(stored) and needs_types(stored.value_type, read.value_type))


def _has_no_type(kind: pa.DataType) -> bool:
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return pa.types.is_null(kind) or any(map(_has_no_type, inner))


def with_leaves(
    kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType] = lambda leaf: leaf
) -> pa.DataType:
    """Return a type with other leaves, as Spark reads it from files, which may lack each part.

    Args:
        kind: The type.
        change: Returns the type in place of a leaf; called in the order of the leaves.

    Raises:
        ValueError: Fields of a struct differ only in case; the text says so.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return with_leaves(kind.storage_type, change)
    if pa.types.is_struct(kind):
        if len({field.name.lower() for field in kind}) < kind.num_fields:
            raise ValueError(
                "a struct with fields that differ only in case, which Spark ignores, or has such "
                "a struct. Rename a field."
            )
        return pa.struct([(field.name, with_leaves(field.type, change)) for field in kind])
    if pa.types.is_map(kind):
        key = with_leaves(kind.key_type, change)
        return pa.map_(key, with_leaves(kind.item_type, change))
    if pa.types.is_nested(kind):
        return pa.list_(with_leaves(kind.value_type, change))
    return change(kind)


def _leaf(column: Any) -> pa.DataType:
    """Return Spark's type of a leaf.

    Raises:
        ValueError: The type cannot be published; the text names it and a cure.
    """
    if "\0" in column.path:  # the schema of a Delta table ends the name there
        raise ValueError(
            "named with the character NUL, or has such a field, and is published without its "
            "values. Rename it."
        )
    name, logical = column.logical_type.type, json.loads(column.logical_type.to_json())
    if column.converted_type == "INTERVAL":  # it has no logical type
        name = "INTERVAL"
    untyped = name in ("NONE", "UNKNOWN")  # UNKNOWN: all null, and written without a type
    kind = BY_STORAGE.get(column.physical_type) if untyped else BY_NAME.get(name)
    if name == "INT":
        kind = (SIGNED if logical["isSigned"] else UNSIGNED)[logical["bitWidth"]]
    elif name == "DECIMAL" and column.precision <= LARGEST_PRECISION:
        kind = pa.decimal128(column.precision, column.scale)
    elif name == "TIMESTAMP" and logical["timeUnit"] != "nanoseconds":
        kind = UTC if logical["isAdjustedToUTC"] else LOCAL
    if kind is None:
        other = (
            f"of Parquet's type {name}, which a Delta table cannot store. Write it as another type."
        )
        raise ValueError(REFUSED.get(name, other))
    return kind


def in_both(one: InputColumn, other: InputColumn) -> InputColumn:
    """Return a column of two files of a day, with the type in which Spark reads both.

    Raises:
        DeclarationError: No such type exists.
    """
    kind = _wider(one.kind, other.kind)
    if kind is not None:
        wide = next((column for column in (one, other) if column.kind == kind), None)
        return replace(
            wide or replace(one, kind=kind, untyped=_has_no_type(kind), spark_field=None),
            name=one.name,
        )
    raise DeclarationError(
        f"input: {one.name!r} is {one.kind} in {one.file}, but {other.kind} in {other.file}. A "
        "column has one type in all files of a day: write one of them again with the other's type."
    )


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type in which Spark reads both without changing a value, or None."""
    if one == other or pa.types.is_null(other) or _fits(other, one):
        return one
    if pa.types.is_null(one) or _fits(one, other):
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _all_fields(one, other)
    if pa.types.is_list(one) and pa.types.is_list(other):
        item = _wider(one.value_type, other.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_map(one) and pa.types.is_map(other):
        key, item = _wider(one.key_type, other.key_type), _wider(one.item_type, other.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    return None


def _all_fields(one: pa.StructType, other: pa.StructType) -> pa.StructType | None:
    """Return a struct with the fields of both; a field that a file lacks is null in its rows."""
    fields = {field.name.lower(): field for field in one}
    for field in other:
        known = fields.get(field.name.lower(), field)
        kind = _wider(known.type, field.type)
        if kind is None:
            return None
        fields[field.name.lower()] = known.with_type(kind)
    return pa.struct(fields.values())


def _fits(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether Spark 4 reads `narrow` as `wide` with the same values (SPARK-40876)."""
    types = pa.types
    if types.is_integer(narrow):
        if types.is_decimal(wide):
            return bool(wide.precision - wide.scale >= (20 if narrow.bit_width == 64 else 10))
        room = 32 if types.is_float64(wide) else wide.bit_width if types.is_integer(wide) else 0
        return bool(narrow.bit_width <= room)
    if types.is_decimal(narrow) and types.is_decimal(wide):
        return bool(
            wide.scale >= narrow.scale
            and wide.precision - wide.scale >= narrow.precision - narrow.scale
        )
    pairs = (
        (types.is_float32, types.is_float64),
        (types.is_binary, types.is_string),
        (types.is_date, lambda kind: kind == LOCAL),
        (lambda kind: kind == LOCAL, lambda kind: kind == UTC),
    )
    return any(is_narrow(narrow) and is_wide(wide) for is_narrow, is_wide in pairs)
