"""Whether the table can take what a day would publish, as the footers of the input tell it before Spark starts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.schema import PrimitiveType

from jobs.declarations import Enrichment
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


def check_types(enrichment: Enrichment, file: Path) -> None:
    """The columns of the day's input, of which `file` is one, and those of the answers fit a Delta table, and the
    published one if there is one. Raises DeclarationError.
    """
    path = enrichment.output.path
    try:
        published = _published_types(enrichment)
        _check_answers(enrichment, published)
        _check_input(file, published, path)
    except DeclarationError as error:
        raise DeclarationError(f"{enrichment.name}: {error}") from error.__cause__


def _published_types(enrichment: Enrichment) -> dict[str, Any]:
    """Delta's types of the table's columns, by name; none where there is no table yet."""
    path = enrichment.output.path
    if not DeltaTable.is_deltatable(path):
        return {}
    table = DeltaTable(path)
    partitions = table.metadata().partition_columns
    if partitions != [enrichment.input.partition]:
        raise DeclarationError(
            f"output: {path} is partitioned by {', '.join(partitions) or 'nothing'}, the input by "
            f"{enrichment.input.partition}. Publish to another path."
        )
    types = {field.name: field.type for field in table.schema().fields}
    days = types[enrichment.input.partition]
    if days != PrimitiveType("date"):
        raise DeclarationError(
            f"output: the days of {path}, {enrichment.input.partition}, are {_named(days)} there, and date here. "
            "Publish to another path."
        )
    return types


def _check_answers(enrichment: Enrichment, published: Mapping[str, Any]) -> None:
    for lookup in enrichment.lookups:
        declared = Schema.from_arrow(pa.schema([(column.name, column.arrow_type) for column in lookup.columns]))
        for field, column in zip(declared.fields, lookup.columns, strict=True):
            known = published.get(field.name, field.type)
            if known != field.type:
                raise DeclarationError(
                    f"lookup {lookup.name}: returns: {field.name} is {column.spark_type}, but in "
                    f"{enrichment.output.path} it is {_named(known)}. A column keeps its type: give it another name "
                    "here."
                )


def _check_input(file: Path, published: Mapping[str, Any], path: str) -> None:
    untyped = {field.name for field in pq.read_schema(file) if _has_no_type(field.type)}
    for field in Schema.from_arrow(types_as_read(file)).fields:
        known = published.get(field.name)
        if known == field.type:
            continue
        if field.name in untyped:  # it would be an integer from now on
            wanted = "its type" if known is None else f"its type, {_named(known)} in {path}"
            raise DeclarationError(
                f"input: {field.name!r} has no type in {file}, as all of it is null there. Write it with {wanted}."
            )
        if known is not None:
            raise DeclarationError(
                f"input: {field.name!r} is {_named(field.type)} in {file}, but in {path} it is {_named(known)}. A "
                "column keeps its type: write it with that type, or under another name."
            )


def _named(kind: Any) -> str:
    return str(kind.type) if isinstance(kind, PrimitiveType) else str(kind)


def _has_no_type(kind: pa.DataType) -> bool:
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return pa.types.is_null(kind) or any(map(_has_no_type, inner))


def types_as_read(file: Path) -> pa.Schema:
    """The columns of a Parquet file with the types that Spark gives them, as it hands them to Arrow.

    Raises DeclarationError for one that Spark does not read, or that no Delta table holds.
    """
    footer = pq.read_metadata(file).schema
    leaves = (footer.column(number) for number in range(len(footer)))
    fields = []
    for field in footer.to_arrow_schema():
        try:
            fields.append(pa.field(field.name, _as_read(field.type, leaves)))
        except ValueError as reason:
            raise DeclarationError(f"input: {field.name!r} in {file} is {reason}") from reason
    return pa.schema(fields)


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
