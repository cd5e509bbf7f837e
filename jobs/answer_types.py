"""The columns that a lookup returns: Spark DDL read without Spark, Arrow types, and one strict cast per value."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import expressions as exp

from jobs.errors import DeclarationError

Cast = Callable[[Any], Any]

_INTEGERS = {
    exp.DataType.Type.TINYINT: ("TINYINT", pa.int8(), 8),
    exp.DataType.Type.SMALLINT: ("SMALLINT", pa.int16(), 16),
    exp.DataType.Type.INT: ("INT", pa.int32(), 32),
    exp.DataType.Type.BIGINT: ("BIGINT", pa.int64(), 64),
}


@dataclass(frozen=True)
class AnswerColumn:
    """One column of an answer. `cast` gives the value as Arrow takes it, or raises ValueError with a sentence."""

    name: str
    spark_type: str
    arrow_type: pa.DataType
    cast: Cast


def read_ddl(ddl: str) -> tuple[AnswerColumn, ...]:
    """`"temp_c DOUBLE, visibility_m INT"` -> its columns. Raises DeclarationError naming what cannot be read."""
    cure = 'Write Spark DDL, as in "temp_c DOUBLE, visibility_m INT".'
    try:
        struct = exp.DataType.build(f"STRUCT<{ddl}>", dialect="spark")
    except sqlglot.errors.SqlglotError as error:
        raise DeclarationError(f"returns: cannot read {ddl!r}. {cure}") from error
    columns = struct.expressions
    if not columns or not all(isinstance(column, exp.ColumnDef) and column.args.get("kind") for column in columns):
        raise DeclarationError(f"returns: cannot read {ddl!r}: every column needs a name and a type. {cure}")
    read = []
    for column in columns:
        try:
            spark_type, arrow_type, cast = _read_type(column.args["kind"])
        except ValueError as error:
            raise DeclarationError(f"returns: {column.name}: {error} {cure}") from error
        read.append(AnswerColumn(column.name, spark_type, arrow_type, cast))
    names = [column.name for column in read]
    if len({name.lower() for name in names}) < len(names):
        raise DeclarationError(f"returns: {ddl!r} names a column twice. Names are told apart without regard to case.")
    return tuple(read)


def _read_type(kind: exp.DataType) -> tuple[str, pa.DataType, Cast]:  # noqa: PLR0911  # one return per type
    type_ = exp.DataType.Type
    match kind.this:
        case whole if whole in _INTEGERS:
            name, arrow, bits = _INTEGERS[whole]
            return name, arrow, _whole_number(name, bits)
        case type_.DOUBLE:
            return "DOUBLE", pa.float64(), _number("DOUBLE")
        case type_.FLOAT:
            return "FLOAT", pa.float32(), _number("FLOAT")
        case type_.BOOLEAN:
            return "BOOLEAN", pa.bool_(), _exactly("BOOLEAN", bool)
        case type_.TEXT | type_.VARCHAR | type_.CHAR:
            return "STRING", pa.string(), _exactly("STRING", str)
        case type_.BINARY | type_.VARBINARY:
            return "BINARY", pa.binary(), _bytes
        case type_.DATE:
            return "DATE", pa.date32(), _date
        case type_.TIMESTAMP | type_.TIMESTAMPTZ | type_.TIMESTAMPLTZ:
            return "TIMESTAMP", pa.timestamp("us", tz="UTC"), _timestamp
        case type_.DECIMAL:
            precision, scale = (int(size.name) for size in kind.expressions) if kind.expressions else (10, 0)
            return f"DECIMAL({precision},{scale})", pa.decimal128(precision, scale), _decimal(precision, scale)
        case type_.ARRAY:
            inner, arrow, cast = _read_type(kind.expressions[0])
            return f"ARRAY<{inner}>", pa.list_(arrow), _list_of(cast)
        case type_.STRUCT:
            fields = {field.name: _read_type(field.args["kind"]) for field in kind.expressions}
            inner = ", ".join(f"{name}: {read[0]}" for name, read in fields.items())
            arrow = pa.struct([(name, read[1]) for name, read in fields.items()])
            return f"STRUCT<{inner}>", arrow, _struct_of({name: read[2] for name, read in fields.items()})
    raise ValueError(f"the type {kind.sql(dialect='spark')} is not one that an answer can have.")


def _refuse(type_name: str, value: Any) -> ValueError:
    shown = repr(value)
    return ValueError(f"expected {type_name}, got {shown if len(shown) <= 60 else shown[:57] + '...'}")


def _nullable(cast: Cast) -> Cast:
    return lambda value: None if value is None else cast(value)


def _whole_number(name: str, bits: int) -> Cast:
    smallest, largest = -(1 << bits - 1), (1 << bits - 1) - 1

    def cast(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON has one kind of number
        if isinstance(value, bool) or not isinstance(value, int) or not smallest <= value <= largest:
            raise _refuse(name, value)
        return value

    return cast


def _number(name: str) -> Cast:
    def cast(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
            raise _refuse(name, value)
        return float(value)

    return cast


def _exactly(name: str, kind: type) -> Cast:
    def cast(value: Any) -> Any:
        if value is None or isinstance(value, kind):
            return value
        raise _refuse(name, value)

    return cast


@_nullable
def _bytes(value: Any) -> Any:
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, binascii.Error) as error:
        raise _refuse("BINARY (bytes, or base64 text)", value) from error


@_nullable
def _date(value: Any) -> Any:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    try:
        return dt.date.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise _refuse("DATE (as 2013-01-10)", value) from error


@_nullable
def _timestamp(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError as error:
            raise _refuse("TIMESTAMP (ISO 8601)", value) from error
    if not isinstance(value, dt.datetime):
        raise _refuse("TIMESTAMP (ISO 8601)", value)
    return value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)


def _decimal(precision: int, scale: int) -> Cast:
    name = f"DECIMAL({precision},{scale})"

    @_nullable
    def cast(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float | decimal.Decimal):
            raise _refuse(name, value)
        try:
            number = decimal.Decimal(str(value)).quantize(decimal.Decimal(1).scaleb(-scale))
        except decimal.InvalidOperation as error:
            raise _refuse(name, value) from error
        if len(number.as_tuple().digits) > precision:
            raise _refuse(name, value)
        return number

    return cast


def _list_of(inner: Cast) -> Cast:
    @_nullable
    def cast(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _refuse("ARRAY", value)
        return [inner(item) for item in value]

    return cast


def _struct_of(inner: dict[str, Cast]) -> Cast:
    @_nullable
    def cast(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _refuse("STRUCT", value)
        return {name: cast(value.get(name)) for name, cast in inner.items()}

    return cast
