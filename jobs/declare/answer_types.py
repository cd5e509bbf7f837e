"""The columns that a lookup returns: Spark DDL read without Spark, Arrow types, and one strict cast per value."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import expressions as exp

from jobs.declare.answer_json import dump, load
from jobs.errors import DeclarationError

Cast = Callable[[Any], Any]
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LARGEST_PRECISION = 38  # of a DECIMAL, in Spark
LARGEST_FLOAT = 3.4028235677973366e38  # the smallest number that FLOAT cannot hold


@dataclass(frozen=True)
class AnswerColumn:
    """One column of an answer. `cast` returns the value for Arrow, or raises ValueError with a sentence."""

    name: str
    spark_type: str
    arrow_type: pa.DataType
    cast: Cast


def cast_all(columns: Sequence[AnswerColumn], values: Sequence[Any]) -> tuple[Any, ...]:
    """The values of an answer for Arrow, one per column. Raises ValueError with the column's name.

    A value that does not fit is cast in the ledger's form (a UUID as its text, an Enum as its value, a set as a list),
    so that the result does not depend on whether the answer was stored.
    """
    try:
        return tuple([column.cast(value) for column, value in zip(columns, values)])  # noqa: B905  # a cost per row
    except ValueError:
        return tuple(_named_cast(column, value) for column, value in zip(columns, _as_kept(values), strict=True))


def _as_kept(values: Sequence[Any]) -> Sequence[Any]:
    try:
        kept: list[Any] = load(dump(values))
    except ValueError:  # the ledger cannot store them, so no run gets them in another form
        return values
    return kept


def _named_cast(column: AnswerColumn, value: Any) -> Any:
    try:
        return column.cast(value)
    except ValueError as error:
        raise ValueError(f"{column.name}: {error}") from error


def read_ddl(ddl: str, where: str = "returns") -> tuple[AnswerColumn, ...]:
    """`"temp_c DOUBLE, visibility_m INT"` -> its columns. Raises DeclarationError with the unreadable text.

    where: the declared field.
    """
    cure = 'Write Spark DDL, as in "temp_c DOUBLE, visibility_m INT".'
    try:
        struct = exp.DataType.build(f"STRUCT<{ddl}>", dialect="spark")
    except sqlglot.errors.SqlglotError as error:
        raise DeclarationError(f"{where}: cannot read {ddl!r}. {cure}") from error
    columns = struct.expressions
    if not columns or not all(isinstance(column, exp.ColumnDef) and column.args.get("kind") for column in columns):
        raise DeclarationError(f"{where}: cannot read {ddl!r}: every column needs a name and a type. {cure}")
    read = []
    for column in columns:
        try:
            _quoted(column.name)
            spark_type, arrow_type, cast = _read_type(column.args["kind"])
        except ValueError as error:
            raise DeclarationError(f"{where}: {column.name}: {error} {cure}") from error
        read.append(AnswerColumn(column.name, spark_type, arrow_type, cast))
    names = [column.name for column in read]
    if len({name.lower() for name in names}) < len(names):
        raise DeclarationError(f"{where}: {ddl!r} names a column twice. Names are compared without case.")
    return tuple(read)


def _read_type(kind: exp.DataType) -> tuple[str, pa.DataType, Cast]:
    """Spark's and Arrow's type, and the cast. Raises ValueError for a type that an answer cannot have."""
    match kind.this:
        case simple if simple in _simple_types():
            return _simple_types()[simple]
        case exp.DType.DECIMAL:
            precision, scale = (
                ([int(size.name) for size in kind.expressions] + [0])[:2] if kind.expressions else (10, 0)
            )
            name = f"DECIMAL({precision},{scale})"
            if not 0 <= scale <= precision <= LARGEST_PRECISION:
                raise ValueError(f"{name} has more than {LARGEST_PRECISION} digits, or fewer than its scale.")
            return name, pa.decimal128(precision, scale), _decimal(precision, scale)
        case exp.DType.ARRAY if kind.expressions:
            inner, arrow, cast = _read_type(kind.expressions[0])
            return f"ARRAY<{inner}>", pa.list_(arrow), _list_of(cast)
        case exp.DType.STRUCT if kind.expressions:
            if len({field.name.lower() for field in kind.expressions}) < len(kind.expressions):
                raise ValueError(f"{kind.sql(dialect='spark')} names a field twice.")
            fields = {field.name: _read_type(field.args["kind"]) for field in kind.expressions}
            inner = ", ".join(f"{_quoted(name)}: {read[0]}" for name, read in fields.items())
            arrow = pa.struct([(name, read[1]) for name, read in fields.items()])
            return f"STRUCT<{inner}>", arrow, _struct_of({name: read[2] for name, read in fields.items()})
    raise ValueError(f"the type {kind.sql(dialect='spark')} is not one that an answer can have.")


def _quoted(name: str) -> str:
    """A quoted name for DDL. Raises ValueError for a name that DDL cannot express."""
    if not name or "`" in name:
        raise ValueError(f"{name!r} is not a name: it must not be empty or contain a backtick.")
    return name if PLAIN_NAME.fullmatch(name) else f"`{name}`"


@functools.cache
def _simple_types() -> dict[exp.DType, tuple[str, pa.DataType, Cast]]:
    type_ = exp.DType
    text = "STRING", pa.string(), _text
    binary = "BINARY", pa.binary(), _bytes
    timestamp = "TIMESTAMP", pa.timestamp("us", tz="UTC"), _timestamp
    return {
        type_.TINYINT: ("TINYINT", pa.int8(), _whole_number("TINYINT", 8)),
        type_.SMALLINT: ("SMALLINT", pa.int16(), _whole_number("SMALLINT", 16)),
        type_.INT: ("INT", pa.int32(), _whole_number("INT", 32)),
        type_.BIGINT: ("BIGINT", pa.int64(), _whole_number("BIGINT", 64)),
        type_.FLOAT: ("FLOAT", pa.float32(), _number("FLOAT", LARGEST_FLOAT)),
        type_.DOUBLE: ("DOUBLE", pa.float64(), _number("DOUBLE")),
        type_.BOOLEAN: ("BOOLEAN", pa.bool_(), _boolean),
        type_.DATE: ("DATE", pa.date32(), _date),
        **dict.fromkeys((type_.TEXT, type_.VARCHAR, type_.CHAR), text),
        **dict.fromkeys((type_.BINARY, type_.VARBINARY), binary),
        **dict.fromkeys((type_.TIMESTAMP, type_.TIMESTAMPTZ, type_.TIMESTAMPLTZ), timestamp),
    }


def _refuse(type_name: str, value: Any) -> ValueError:
    shown = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return ValueError(f"expected {type_name}, got {shown if len(shown) <= 60 else shown[:57] + '...'}")


def _nullable(cast: Cast) -> Cast:
    return lambda value: None if value is None else cast(value)


def _whole_number(name: str, bits: int) -> Cast:
    smallest, largest = -(1 << bits - 1), (1 << bits - 1) - 1

    def cast(value: Any) -> Any:
        if value is None or (type(value) is int and smallest <= value <= largest):
            return value
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON has one kind of number
        if isinstance(value, bool) or not isinstance(value, int) or not smallest <= value <= largest:
            raise _refuse(name, value)
        return value

    return cast


def _number(name: str, largest: float = math.inf) -> Cast:
    def cast(value: Any) -> Any:
        if value is None or (type(value) is float and -largest < value < largest):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
            raise _refuse(name, value)
        try:
            number = float(value)
        except (OverflowError, ValueError) as error:  # an integer beyond all floats, or a signalling NaN
            raise _refuse(name, value) from error
        if largest <= abs(number) < math.inf:
            raise _refuse(name, value)
        return number

    return cast


def _text(value: Any) -> Any:
    if value is None or (type(value) is str and value.isascii()):
        return value
    if not isinstance(value, str):
        raise _refuse("STRING", value)
    try:
        value.encode()
    except UnicodeEncodeError as error:  # a lone surrogate: JSON can escape it, but no file can hold it
        raise _refuse("STRING", value) from error
    return value


def _boolean(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    raise _refuse("BOOLEAN", value)


@_nullable
def _bytes(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError) as error:
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
    try:
        return value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
    except OverflowError as error:  # before the year 1 or after 9999, in UTC
        raise _refuse("TIMESTAMP (ISO 8601)", value) from error


def _decimal(precision: int, scale: int) -> Cast:
    name = f"DECIMAL({precision},{scale})"
    unit = decimal.Decimal(1).scaleb(-scale)
    digits = decimal.Context(prec=precision)

    @_nullable
    def cast(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float | decimal.Decimal):
            raise _refuse(name, value)
        try:
            number = decimal.Decimal(str(value)).quantize(unit, context=digits)
        except (decimal.InvalidOperation, ValueError) as error:  # too many digits, or not a number
            raise _refuse(name, value) from error
        if not number.is_finite():
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
