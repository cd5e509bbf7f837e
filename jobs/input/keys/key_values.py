"""Values of key expressions, evaluated by Arrow in a task.

`jobs/input/keys/arrow_expressions.py` makes them in the driver. This module loads without the SQL
parser, which takes 40 MB of each worker.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

# letters of Unicode 15 to 17, which Spark's ICU knows and the oldest Python does not
LOWER = {
    0xA7CB: 0x0264,
    0xA7DC: 0x019B,
    **{letter: letter + 1 for letter in (0x1C89, 0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA)},
    **{letter: letter + 0x20 for letter in range(0x10D50, 0x10D66)},
    **{letter: letter + 0x1B for letter in range(0x16EA0, 0x16EB9)},
}
UPPER = {small: capital for capital, small in LOWER.items()}

Columns = Mapping[str, pa.Array]  # of equal length, by name


class Values(Protocol):
    """An expression, or a part of it. Plain data, sent to executors."""

    @property
    def kind(self) -> pa.DataType:
        """The type of its values."""

    @property
    def reads(self) -> frozenset[str]:
        """The columns that it reads."""

    def evaluate(self, columns: Columns, rows: int) -> pa.Array:
        """Return a value for each row.

        Args:
            columns: At least the columns that it reads.
            rows: Their length, which an expression without a column needs.
        """


@dataclass(frozen=True)
class ColumnValues:
    """The values of a column of the input."""

    name: str
    kind: pa.DataType

    @property
    def reads(self) -> frozenset[str]:
        return frozenset([self.name])

    def evaluate(self, columns: Columns, _rows: int) -> pa.Array:
        return columns[self.name]


@dataclass(frozen=True)
class ConstantValues:
    """The same value in each row."""

    value: object
    kind: pa.DataType
    reads: frozenset[str] = frozenset()

    def evaluate(self, _columns: Columns, rows: int) -> pa.Array:
        return pa.repeat(pa.scalar(self.value, self.kind), rows)


@dataclass(frozen=True)
class FunctionValues:
    """The values of a function.

    Attributes:
        function: A function of a module, or a partial of it, so that it can be sent.
    """

    function: Callable[..., pa.Array]
    kind: pa.DataType
    operands: tuple[Values, ...]

    @property
    def reads(self) -> frozenset[str]:
        return read_by(self.operands)

    def evaluate(self, columns: Columns, rows: int) -> pa.Array:
        return self.function(*(operand.evaluate(columns, rows) for operand in self.operands))


def read_by(values: Iterable[Values]) -> frozenset[str]:
    """Return the columns that any of these read."""
    return frozenset[str]().union(*(value.reads for value in values))


def cast(kind: pa.DataType, values: pa.Array) -> pa.Array:
    return values.cast(kind)


def lower(texts: pa.Array) -> pa.Array:
    """Return texts in lower case, by the full rules of Unicode, as ICU has them in Spark."""
    return _mapped(texts, pc.ascii_lower, lambda text: text.lower().translate(LOWER))


def upper(texts: pa.Array) -> pa.Array:
    """Return texts in upper case, as `lower`."""
    return _mapped(texts, pc.ascii_upper, lambda text: text.upper().translate(UPPER))


def _mapped(
    texts: pa.Array, of_ascii: Callable[[pa.Array], pa.Array], of_any: Callable[[str], str]
) -> pa.Array:
    if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
        return of_ascii(texts)
    distinct = texts.dictionary_encode()
    found = distinct.dictionary.cast(pa.binary()).to_pylist()
    # Java, too, replaces what is no UTF-8
    mapped = pa.array([of_any(text.decode(errors="replace")) for text in found], pa.string())
    return mapped.take(distinct.indices)


def split_part(mark: str, number: int, texts: pa.Array) -> pa.Array:
    """Return the part of this number, from 1, between marks; empty where there are fewer."""
    parts = pc.split_pattern(texts, pattern=mark)
    has_part = pc.greater_equal(pc.list_value_length(parts), number)
    places = pc.add(parts.offsets[:-1].cast(pa.int64()), number - 1)
    found = parts.values.take(pc.if_else(has_part, places, pa.scalar(None, pa.int64())))
    return pc.if_else(has_part, found, "")


def join(*texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


def null_where(values: pa.Array, is_unwanted: pa.Array) -> pa.Array:
    nothing = pa.scalar(None, values.type)
    return pc.if_else(pc.fill_null(is_unwanted, fill_value=False), nothing, values)


def choose(count: int, *operands: pa.Array) -> pa.Array:
    """Return the value of the first condition that holds.

    The operands are `count` conditions, their values, and the default.
    """
    conditions = pc.make_struct(*operands[:count], field_names=[str(n) for n in range(count)])
    return pc.case_when(conditions, *operands[count:])


def equal_or_null(
    left: pa.Array, right: pa.Array, equal: Callable[..., pa.Array] = pc.equal
) -> pa.Array:
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(pc.fill_null(equal(left, right), fill_value=False), both_null)


def compare_floats(compare: Callable[..., pa.Array], left: pa.Array, right: pa.Array) -> pa.Array:
    """Compare as Spark does: NaN is equal to NaN, and larger than any other number."""
    if compare is equal_or_null:
        return equal_or_null(left, right, functools.partial(compare_floats, pc.equal))
    # 1 where left is the larger number, -1 where right is, 0 where they are equal
    order = pc.subtract(_is_larger(left, right), _is_larger(right, left))
    return compare(order, 0)


def _is_larger(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return 1 where the left number is larger, else 0; null if one of them is null."""
    only_left_nan = pc.and_kleene(pc.is_nan(left), pc.invert(pc.is_nan(right)))
    return pc.or_kleene(pc.greater(left, right), only_left_nan).cast(pa.int8())


def is_in(values: pa.Array, *others: pa.Array) -> pa.Array:
    return functools.reduce(pc.or_kleene, (pc.equal(values, other) for other in others))
