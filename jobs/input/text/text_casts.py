"""Casts columns of text to declared types by strict grammars: what does not fit is an error."""

import decimal
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.declare.answers.answer_casts import AnswerColumn, cast_to
from jobs.declare.answers.times import DATE_FORMS, TIMESTAMP_FORMS, read_date, read_timestamp

Cast = Callable[[pa.Array], pa.Array]

WHOLE = r"\A[+-]?[0-9]+\z"
DECIMAL = r"\A[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\z"
NOT_FINITE = r"\A[+-]?(?i:nan|inf|infinity)\z"
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
BLANKS = " \t"


class WrongValueError(Exception):
    """A value does not fit.

    Attributes:
        row: The number of the first such value in its column.
    """

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def cast_column(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column of UTF-8 bytes.

    Raises:
        WrongValueError: A value is not of the type; the error has the first such row.
    """
    cast = _cast_to(kind)
    try:
        return cast(texts)
    except (ValueError, pa.ArrowException):
        row = first_wrong(len(texts), lambda first, end: cast(texts[first:end]))
        raise WrongValueError(row) from None


def expected(column: AnswerColumn) -> str:
    """Describe what a column must hold, for a message."""
    forms = {
        "STRING": " in UTF-8",
        "DATE": f" ({DATE_FORMS})",
        "TIMESTAMP": f" ({TIMESTAMP_FORMS})",
    }
    return f"expected {column.spark_type}{forms.get(column.spark_type, '')}"


def first_wrong(rows: int, read: Callable[[int, int], object]) -> int:
    """Return the number of the first row that cannot be read, by halving.

    Args:
        rows: The number of rows, of which one at least is wrong.
        read: Reads the rows from a number to before another. Raises an error if any is wrong.
    """
    right, wrong = 0, rows  # so many rows can be read, and so many cannot
    while wrong - right > 1:
        middle = (right + wrong) // 2
        try:
            read(right, middle)
            right = middle
        except (ValueError, pa.ArrowException):
            wrong = middle
    return right


def _cast_to(kind: pa.DataType) -> Cast:
    if pa.types.is_binary(kind):
        return lambda texts: texts
    if pa.types.is_string(kind):
        return lambda texts: texts.cast(kind)
    plain = _parsed(kind)
    return lambda texts: plain(pc.ascii_trim(texts.cast(pa.string()), BLANKS))


def _parsed(kind: pa.DataType) -> Cast:
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_integer(kind):
        return lambda texts: pc.ascii_ltrim(_require(texts, WHOLE), "+").cast(kind)
    if pa.types.is_decimal(kind):
        return lambda texts: _decimals(_require(texts, DECIMAL), kind)
    if pa.types.is_floating(kind):
        return lambda texts: _number(texts, kind)
    read = read_date if pa.types.is_date(kind) else read_timestamp
    return lambda texts: _read_each(texts, read, kind)


def _read_each(texts: pa.Array, read: Callable[[str], Any], kind: pa.DataType) -> pa.Array:
    """Read each distinct text."""
    distinct = texts.dictionary_encode()
    values = pa.array([read(text) for text in distinct.dictionary.to_pylist()], kind)
    return values.take(distinct.indices)


def _require(texts: pa.Array, pattern: str) -> pa.Array:
    if pc.all(pc.match_substring_regex(texts, pattern)).as_py() is False:
        raise ValueError
    return texts


def _decimals(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast decimals; of texts with more digits than the type, Arrow may make other numbers."""
    whole, fraction = kind.precision - kind.scale, kind.scale
    short = rf"\A[+-]?0?[0-9]{{0,{whole}}}(\.[0-9]{{0,{fraction}}})?\z"
    if pc.all(pc.match_substring_regex(texts, short)).as_py() is not False:
        return texts.cast(kind)
    cast = cast_to(kind)

    def read(text: str) -> Any:
        number = cast(text)
        if number != decimal.Decimal(text):
            raise ValueError
        return number

    return _read_each(texts, read, kind)


def _boolean(texts: pa.Array) -> pa.Array:
    is_true = pc.is_in(texts, pa.array(TRUE))
    known = pc.or_(is_true, pc.is_in(texts, pa.array(FALSE)))
    if texts.null_count + (pc.sum(known).as_py() or 0) < len(texts):
        raise ValueError
    return pc.if_else(texts.is_null(), pa.scalar(None, pa.bool_()), is_true)


def _number(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast numbers. Refuse numbers beyond the largest, but not texts that say infinite."""
    named = pc.match_substring_regex(texts, NOT_FINITE)
    numbers = texts.cast(kind)
    known = pc.or_(named, pc.and_(pc.match_substring_regex(texts, DECIMAL), pc.is_finite(numbers)))
    if pc.all(known).as_py() is False:
        raise ValueError
    return numbers
