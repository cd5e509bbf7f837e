"""The types that Spark gives the columns of Parquet files, told from their footers: before Spark starts, and instead of
asking it, which would be a job of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import DeclarationError

UTC = pa.timestamp("us", tz="UTC")
BY_STORAGE = {
    "BOOLEAN": pa.bool_(), "INT32": pa.int32(), "INT64": pa.int64(), "INT96": UTC, "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(), "BYTE_ARRAY": pa.binary(), "FIXED_LEN_BYTE_ARRAY": pa.binary(),
}  # fmt: skip
BY_NAME = {
    "STRING": pa.string(), "ENUM": pa.string(), "JSON": pa.string(), "BSON": pa.binary(), "DATE": pa.date32(),
    "UNKNOWN": pa.int32(),  # all null, and without a type
}  # fmt: skip
SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
UNSIGNED = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}
LARGEST_PRECISION = 38  # of a DECIMAL, in Spark and Delta
REFUSED = {
    "TIME": "a time of day, which a Delta table does not hold. Write it as text.",
    "TIMESTAMP": "a timestamp in nanoseconds, which Spark does not read. Write it in microseconds.",
    "DECIMAL": f"a decimal of more than {LARGEST_PRECISION} digits, which Spark does not read. Write it with fewer.",
}


@dataclass(frozen=True)
class InputColumn:
    name: str
    kind: pa.DataType  # as Spark hands it to Arrow
    file: Path  # one that has it so
    untyped: bool  # it, or something in it, is null in all of the file and was written without a type


def columns_of(file: Path, footer: pq.FileMetaData) -> Iterator[InputColumn]:
    """Those of one file, in its order. Raises DeclarationError for one that Spark does not read, or no Delta table
    holds.
    """
    leaves = (footer.schema.column(number) for number in range(len(footer.schema)))
    for field in footer.schema.to_arrow_schema():
        try:
            kind = _as_read(field.type, leaves)
        except ValueError as reason:
            raise DeclarationError(f"input: {field.name!r} in {file} is {reason}") from reason
        yield InputColumn(field.name, kind, file, _has_no_type(field.type))


def _has_no_type(kind: pa.DataType) -> bool:
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return pa.types.is_null(kind) or any(map(_has_no_type, inner))


def _as_read(kind: pa.DataType, leaves: Iterator[Any]) -> pa.DataType:
    """kind: as Arrow reads the column. Of its leaves, which come one by one, Spark knows what Parquet says alone."""
    if isinstance(kind, pa.BaseExtensionType):
        return _as_read(kind.storage_type, leaves)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_read(field.type, leaves)) for field in kind])
    if pa.types.is_map(kind):
        key = _as_read(kind.key_type, leaves)
        return pa.map_(key, _as_read(kind.item_type, leaves))
    if pa.types.is_nested(kind):
        return pa.list_(_as_read(kind.value_type, leaves))
    return _leaf(next(leaves))


def _leaf(column: Any) -> pa.DataType:
    """Raises ValueError, with what it is and a cure, for one that cannot be published."""
    name, logical = column.logical_type.type, json.loads(column.logical_type.to_json())
    kind = BY_STORAGE.get(column.physical_type) if name == "NONE" else BY_NAME.get(name)
    if name == "INT":
        kind = (SIGNED if logical["isSigned"] else UNSIGNED)[logical["bitWidth"]]
    elif name == "DECIMAL" and column.precision <= LARGEST_PRECISION:
        kind = pa.decimal128(column.precision, column.scale)
    elif name == "TIMESTAMP" and logical["timeUnit"] != "nanoseconds":
        kind = UTC if logical["isAdjustedToUTC"] else pa.timestamp("us")
    if kind is None:
        other = f"of Parquet's type {name}, which does not go into a Delta table. Write it as another type."
        raise ValueError(REFUSED.get(name, other))
    return kind


def in_both(one: InputColumn, other: InputColumn) -> InputColumn:
    """A column that two files of a day have, with the type in which Spark reads it from both.

    Raises DeclarationError where there is none.
    """
    kind = _wider(one.kind, other.kind)
    if kind is not None:
        typed = other if one.untyped else one
        return replace(other if kind == other.kind != one.kind else typed, name=one.name, kind=kind)
    if one.untyped or other.untyped:
        bare, typed = (one, other) if one.untyped else (other, one)
        raise DeclarationError(
            f"input: {one.name!r} has no type in {bare.file}, as all of it is null there. Write it with its type, "
            f"{typed.kind} in {typed.file}."
        )
    raise DeclarationError(
        f"input: {one.name!r} is {one.kind} in {one.file}, but {other.kind} in {other.file}. A column has one type in "
        "all files of a day: write one of them anew with the other's."
    )


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type in which Spark reads both, without a value changed; None where there is none."""
    if one == other:
        return one
    kinds = (one, other)
    if all(map(pa.types.is_integer, kinds)) or all(map(pa.types.is_floating, kinds)):
        return max(kinds, key=lambda kind: kind.bit_width)
    if all(map(pa.types.is_decimal, kinds)) and one.scale == other.scale:
        return max(kinds, key=lambda kind: kind.precision)
    return None
