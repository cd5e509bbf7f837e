"""The columns that a lookup returns, with a strict cast for each."""

import base64
import datetime as dt
import decimal
import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from jobs.declare.answers.answer_json import dump, load
from jobs.declare.answers.json_text import exact_digits
from jobs.declare.answers.times import DATE_FORMS, TIMESTAMP_FORMS, read_date, read_timestamp, shown

Cast = Callable[[Any], Any]
# as text
NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,9})?\s*", re.ASCII)
LARGEST_FLOAT = 3.4028235677973366e38  # the smallest number that FLOAT cannot hold


@dataclass(frozen=True)
class AnswerColumn:
    """A column of an answer. `cast` returns the value for Arrow, or raises ValueError."""

    name: str
    spark_type: str
    arrow_type: pa.DataType
    cast: Cast = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cast", cast_to(self.arrow_type))

    @property
    def is_number(self) -> bool:
        from jobs.arrow_values import is_number  # it loads Arrow's functions, which few need

        return is_number(self.arrow_type)

    @functools.cached_property
    def item_type(self) -> pa.DataType:
        """The Arrow type below all lists."""
        kind = self.arrow_type
        while pa.types.is_list(kind):
            kind = kind.value_type
        return kind

    # a cast is a closure, which no pickle holds
    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return AnswerColumn, (self.name, self.spark_type, self.arrow_type)


def cast_all(columns: Sequence[AnswerColumn], values: Sequence[Any]) -> tuple[Any, ...]:
    """Return an answer's values for Arrow, by column. Raises ValueError that names the column.

    A value that does not fit is cast in the ledger's form (a UUID as its text, an Enum as its
    value, a set as a list), so that the result does not depend on whether the answer was stored.
    """
    try:
        return tuple([column.cast(value) for column, value in zip(columns, values)])  # noqa: B905  # a cost per row
    except Exception:  # noqa: BLE001  # code of a value's class may raise anything
        stored = load(dump(values))
        return tuple(
            _named_cast(column, value) for column, value in zip(columns, stored, strict=True)
        )


def _named_cast(column: AnswerColumn, value: Any) -> Any:
    try:
        return column.cast(value)
    except ValueError as error:
        raise ValueError(f"{column.name}: {error}") from error


def cast_to(kind: pa.DataType) -> Cast:
    """Return the cast to an Arrow type of `answer_types`."""
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return _map_cast(cast_to(kind.item_type))
    if pa.types.is_list(kind):
        return _list_cast(cast_to(kind.value_type))
    if pa.types.is_struct(kind):
        return _struct_cast({field.name: cast_to(field.type) for field in kind})
    return _SIMPLE[kind]


def _refuse(type_name: str, value: Any) -> ValueError:
    return ValueError(f"expected {type_name}, got {shown(value)}")


def _refuse_number(type_name: str, value: Any) -> ValueError:
    is_text = isinstance(value, str) and NUMBER.fullmatch(value)
    cure = "; a number that comes as text needs a DECIMAL" if is_text else ""
    return ValueError(f"{_refuse(type_name, value)}{cure}")


def _nullable(cast: Cast) -> Cast:
    return lambda value: None if value is None else cast(value)


def _whole_number(name: str, bits: int) -> Cast:
    smallest, largest = -(1 << bits - 1), (1 << bits - 1) - 1

    def cast(value: Any) -> Any:
        if value is None or (type(value) is int and smallest <= value <= largest):
            return value
        # JSON has one kind of number
        number = _as_integer(value) if isinstance(value, float | decimal.Decimal) else value
        if (
            isinstance(number, bool)
            or not isinstance(number, int)
            or not smallest <= number <= largest
        ):
            raise _refuse_number(name, value)
        return int(number)

    return cast


def _as_integer(value: float | decimal.Decimal) -> int | None:
    if not math.isfinite(value):
        return None
    exact = exact_digits(value)
    whole = int(exact)
    return whole if whole == exact else None


def _number(name: str, largest: float = math.inf) -> Cast:
    def cast(value: Any) -> Any:
        if value is None or (type(value) is float and -largest < value < largest):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
            raise _refuse_number(name, value)
        try:
            number = float(value)
        # an integer beyond all floats, or a signalling NaN
        except (OverflowError, ValueError) as error:
            raise _refuse(name, value) from error
        if abs(number) >= largest and value not in (math.inf, -math.inf):
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
    # a lone surrogate: JSON can escape it, but no file can hold it
    except UnicodeEncodeError as error:
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
        # b64decode itself would take the bytes of an array for a text
        return base64.b64decode(value.encode("ascii"), validate=True)
    except (AttributeError, TypeError, ValueError) as error:
        raise _refuse("BINARY (bytes, or base64 text)", value) from error


@_nullable
def _date(value: Any) -> Any:
    if type(value) is dt.date:
        return value
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.date(value.year, value.month, value.day)
    if not isinstance(value, str):
        raise _refuse(f"DATE ({DATE_FORMS})", value)
    return read_date(value)


@_nullable
def _timestamp(value: Any) -> Any:
    if isinstance(value, str):
        return read_timestamp(value)
    if not isinstance(value, dt.datetime) or value != value:  # noqa: PLR0124  # pandas' NaT
        raise _refuse(f"TIMESTAMP ({TIMESTAMP_FORMS})", value)
    try:
        if type(value) is not dt.datetime:  # without pandas' nanoseconds
            value = dt.datetime.fromisoformat(dt.datetime.isoformat(value))
        return value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
    except OverflowError as error:  # before the year 1 or after 9999, in UTC
        raise _refuse(f"TIMESTAMP ({TIMESTAMP_FORMS})", value) from error


def _decimal(precision: int, scale: int) -> Cast:
    name = f"DECIMAL({precision},{scale})"
    unit = decimal.Decimal(1).scaleb(-scale)
    digits = decimal.Context(prec=precision, rounding=decimal.ROUND_HALF_UP)  # as Spark's casts

    @_nullable
    def cast(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float | decimal.Decimal):
            raise _refuse(name, value)
        if isinstance(value, str) and not NUMBER.fullmatch(value):
            raise _refuse(name, value)
        try:
            number = decimal.Decimal(str(value)).quantize(unit, context=digits)
        except (decimal.InvalidOperation, ValueError) as error:  # too many digits, or not a number
            raise _refuse(name, value) from error
        if not number.is_finite():
            raise _refuse(name, value)
        return number

    return cast


def _list_cast(inner: Cast) -> Cast:
    @_nullable
    def cast(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _refuse("ARRAY", value)
        return [inner(item) for item in value]

    return cast


def _struct_cast(inner: dict[str, Cast]) -> Cast:
    @_nullable
    def cast(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _refuse("STRUCT", value)
        return {name: cast(value.get(name)) for name, cast in inner.items()}

    return cast


def _map_cast(inner: Cast) -> Cast:
    @_nullable
    def cast(value: Any) -> Any:
        if not isinstance(value, dict) or None in value:
            raise _refuse("MAP", value)
        return [(_text(name), inner(item)) for name, item in value.items()]

    return cast


_SIMPLE: dict[pa.DataType, Cast] = {
    pa.int8(): _whole_number("TINYINT", 8),
    pa.int16(): _whole_number("SMALLINT", 16),
    pa.int32(): _whole_number("INT", 32),
    pa.int64(): _whole_number("BIGINT", 64),
    pa.float32(): _number("FLOAT", LARGEST_FLOAT),
    pa.float64(): _number("DOUBLE"),
    pa.bool_(): _boolean,
    pa.date32(): _date,
    pa.string(): _text,
    pa.binary(): _bytes,
    pa.timestamp("us", tz="UTC"): _timestamp,
}
