"""Spark SQL expressions told without Spark: the common ones, by Spark's rules; any other is refused, not guessed.

Columns are evaluated whole, with the type that Spark would give them (ANSI mode, times in UTC). A value that Spark
would refuse in one row refuses the expression, as does whatever the two might take differently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import sqlglot
from sqlglot import expressions as exp

from jobs.errors import DeclarationError
from jobs.trying import functions

SIZED = re.compile(r"\b(var)?char\s*\(", re.IGNORECASE)  # sqlglot reads VARCHAR(3) of Spark's as STRING
LARGEST_INT = 2**31 - 1  # the narrowest that arithmetic may be done in; what is larger may overflow in Spark


class NotWithoutSpark(Exception):  # noqa: N818  # what is said of it
    """Something in an expression that only Spark can be trusted with. The text says what."""


@dataclass(frozen=True)
class Values:
    """A column: kind is string, int, double, decimal, boolean, date, timestamp, ntz, binary, null or other."""

    kind: str
    items: Sequence[Any]


def evaluate(expression: str, rows: pa.Table) -> pa.Array:
    """The expression for each row. Raises DeclarationError, naming it, when it cannot be told without Spark."""
    tree = sqlglot.parse_one(expression, read="spark")
    try:
        if isinstance(tree, exp.Column):
            return _arrow_column(tree, rows)
        values = Evaluation(rows).whole(expression, tree)
    except NotWithoutSpark as reason:
        raise DeclarationError(
            f"{expression!r} cannot be told without Spark: {reason}. Try it with a key that is a plain column, or run "
            "a day."
        ) from None
    return pa.array(values.items, ARROW_TYPES[values.kind])


def _arrow_column(tree: exp.Column, rows: pa.Table) -> pa.Array:
    if len(tree.parts) > 1:
        raise NotWithoutSpark(f"{tree.sql('spark')} is a field of a struct")
    spelt = {name.lower(): name for name in rows.column_names}  # Spark does not mind case
    column = rows.column(spelt[tree.name.lower()]).combine_chunks()
    if pa.types.is_timestamp(column.type):  # Spark has microseconds
        return column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


ARROW_TYPES = {
    "string": pa.string(),
    "int": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "ntz": pa.timestamp("us"),
    "binary": pa.binary(),
    "null": pa.null(),
}


def kind_of(type_: pa.DataType) -> str:
    is_ = pa.types
    if is_.is_timestamp(type_):
        return "ntz" if type_.tz is None else "timestamp"
    for kind, tests in (
        ("string", (is_.is_string, is_.is_large_string, is_.is_string_view)),
        ("int", (is_.is_signed_integer,)),
        ("double", (is_.is_float64,)),
        ("boolean", (is_.is_boolean,)),
        ("date", (is_.is_date32,)),
        ("binary", (is_.is_binary, is_.is_large_binary)),
        ("null", (is_.is_null,)),
    ):
        if any(test(type_) for test in tests):
            return kind
    return "other"  # to be handed on, no more


class Evaluation:
    """Of one expression over these rows."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._count = rows.num_rows

    def whole(self, text: str, tree: exp.Expr) -> Values:
        """Of all of an expression, as it is written and as it was read. Raises NotWithoutSpark."""
        if SIZED.search(text):
            raise NotWithoutSpark("a type with a size")
        return self.of(tree)

    def of(self, node: exp.Expr) -> Values:
        """The column that a part of the expression stands for. Raises NotWithoutSpark."""
        form = self._FORMS.get(type(node), Evaluation._function)
        return form(self, node)

    def _column(self, node: exp.Column) -> Values:
        column = _arrow_column(node, self._rows)
        return Values(kind_of(column.type), column.to_pylist())

    def _inside(self, node: exp.Expr) -> Values:
        return self.of(node.this)

    def _null(self, _: exp.Expr) -> Values:
        return self._constant("null", None)

    def _boolean(self, node: exp.Expr) -> Values:
        return self._constant("boolean", node.this)

    def _constant(self, kind: str, item: Any) -> Values:
        return Values(kind, [item] * self._count)

    def _literal(self, node: exp.Expr) -> Values:
        if node.args["is_string"]:
            return self._constant("string", node.this)
        if not node.this.isdigit() or int(node.this) > LARGEST_INT:
            raise NotWithoutSpark(f"the number {node.this} is a decimal")
        return self._constant("int", int(node.this))

    def _negative(self, node: exp.Expr) -> Values:
        return Values("int", [None if item is None else -item for item in self._typed(node.this, "int").items])

    def _is_null(self, node: exp.Expr) -> Values:
        if not isinstance(node.expression, exp.Null):
            raise NotWithoutSpark(f"{node.sql('spark')} is not among what is known here")
        return Values("boolean", [item is None for item in self.of(node.this).items])

    def _not(self, node: exp.Expr) -> Values:
        negated = self._typed(node.this, "boolean")
        return Values("boolean", [None if item is None else not item for item in negated.items])

    def _in(self, node: exp.Expr) -> Values:
        if not node.expressions:
            raise NotWithoutSpark(f"{node.sql('spark')} asks another table")
        return self.of(exp.or_(*(exp.EQ(this=node.this, expression=one) for one in node.expressions)))

    def _if(self, node: exp.Expr) -> Values:
        branch = (self._typed(node.this, "boolean"), self.of(node.args["true"]))
        return self._chosen([branch], node.args.get("false"))

    def _nullif(self, node: exp.Expr) -> Values:
        equal = self._compared(exp.EQ(this=node.this, expression=node.expression))
        return self._chosen([(equal, self._constant("null", None))], node.this)

    def _typed(self, node: exp.Expr, *kinds: str) -> Values:
        """Of one of these kinds; null is of every kind."""
        values = self.of(node)
        if values.kind == "null":
            return Values(kinds[0], values.items)
        if values.kind not in kinds:
            raise NotWithoutSpark(f"{node.sql('spark')} is {values.kind}, and {' or '.join(kinds)} is wanted there")
        return values

    def _alike(self, columns: Sequence[Values]) -> str:
        kinds = {values.kind for values in columns} - {"null"}
        if len(kinds) > 1 or kinds & {"other", "decimal"}:
            raise NotWithoutSpark(f"values of different types ({', '.join(sorted(kinds))}) become one type in Spark")
        return kinds.pop() if kinds else "null"

    def _first_known(self, node: exp.Expr) -> Values:
        columns = [self.of(one) for one in (node.this, *node.expressions)]
        kind = self._alike(columns)
        rows = zip(*(values.items for values in columns), strict=True)
        return Values(kind, [next((item for item in row if item is not None), None) for row in rows])

    def _case(self, node: exp.Expr) -> Values:
        subject = node.args.get("this")
        branches = []
        for one in node.args["ifs"]:
            condition = one.this if subject is None else exp.EQ(this=subject, expression=one.this)
            branches.append((self._typed(condition, "boolean"), self.of(one.args["true"])))
        return self._chosen(branches, node.args.get("default"))

    def _chosen(self, branches: Sequence[tuple[Values, Values]], otherwise: exp.Expr | None) -> Values:
        last = self._constant("null", None) if otherwise is None else self.of(otherwise)
        kind = self._alike([last, *(values for _, values in branches)])
        items = list(last.items)
        for condition, values in reversed(branches):
            items = [
                item if held else other for held, item, other in zip(condition.items, values.items, items, strict=True)
            ]
        return Values(kind, items)

    def _logic(self, node: exp.Expr) -> Values:
        pairs = zip(self._typed(node.this, "boolean").items, self._typed(node.expression, "boolean").items, strict=True)
        decides = isinstance(node, exp.Or)  # the value that decides alone
        return Values(
            "boolean", [decides if decides in pair else None if None in pair else not decides for pair in pairs]
        )

    def _compared(self, node: exp.Expr) -> Values:
        left, right = self.of(node.this), self.of(node.expression)
        if self._alike([left, right]) in ("double", "binary"):
            raise NotWithoutSpark(f"{node.sql('spark')} compares {left.kind}")
        compare: Callable[[Any, Any], bool] = functions.COMPARISONS[type(node).__name__]
        pairs = zip(left.items, right.items, strict=True)
        return Values("boolean", [None if None in pair else compare(*pair) for pair in pairs])

    def _arithmetic(self, node: exp.Expr) -> Values:
        pairs = zip(self._typed(node.this, "int").items, self._typed(node.expression, "int").items, strict=True)
        compute: Callable[[int, int], int] = functions.ARITHMETIC[type(node).__name__]
        items = [None if None in pair else compute(*pair) for pair in pairs]
        if any(item is not None and abs(item) > LARGEST_INT for item in items):
            raise NotWithoutSpark(f"{node.sql('spark')} is beyond what an INT holds")
        return Values("int", items)

    def _concatenated(self, node: exp.Expr) -> Values:
        parts = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
        columns = [self._as_text(self.of(part), part) for part in parts]
        rows = zip(*(values.items for values in columns), strict=True)
        return Values("string", [None if None in row else "".join(row) for row in rows])

    def _as_text(self, values: Values, node: exp.Expr) -> Values:
        if values.kind not in functions.AS_TEXT:
            raise NotWithoutSpark(f"{node.sql('spark')} is {values.kind}, which Spark writes in its own way")
        return self._each("string", functions.AS_TEXT[values.kind], values)

    def _letters(self, node: exp.Expr) -> Values:
        """Spark drops a change of case inside another one: with some letters that is not the same."""
        while isinstance(node.this, exp.Lower | exp.Upper):
            node = type(node)(this=node.this.this)
        return self._function(node)

    def _cast(self, node: exp.Cast) -> Values:
        values, to = self.of(node.this), node.to
        wanted = to.sql("spark").lower()
        kind = functions.KINDS.get(wanted)
        if node.args.get("format") or kind is None:
            raise NotWithoutSpark(f"a cast of {values.kind} to {wanted}")
        if kind == "string":
            return self._as_text(values, node.this)
        if values.kind == "null":
            return Values(kind, values.items)
        convert = functions.CASTS.get((values.kind, wanted))
        if convert is None:
            raise NotWithoutSpark(f"a cast of {values.kind} to {wanted}")
        return self._each(kind, convert, values)

    def _function(self, node: exp.Expr) -> Values:
        known = functions.FUNCTIONS.get(type(node).__name__)
        arguments = {name: value for name, value in node.args.items() if value not in (None, False, [])}
        if known is None or not set(arguments) <= {*known.arguments, *known.ignored}:
            raise NotWithoutSpark(f"{node.sql('spark')} is not among the functions that are known here")
        columns = []
        for name, kinds in known.arguments.items():
            if name in arguments:
                part = arguments[name]
                if kinds == ("unit",):
                    columns.append(self._constant("string", part.name if isinstance(part, exp.Expr) else part))
                else:
                    columns.append(self._typed(part, *kinds))
        return self._each(known.gives, known.compute, *columns)

    def _each(self, kind: str, compute: Callable[..., Any], *columns: Values) -> Values:
        """`compute` for each row without a null; it raises ValueError for what Spark would not take, or not so."""
        try:
            rows = zip(*(values.items for values in columns), strict=True)
            return Values(kind, [None if None in row else compute(*row) for row in rows])
        except (ValueError, OverflowError) as error:
            raise NotWithoutSpark(str(error)) from error

    _FORMS: ClassVar[dict[type[exp.Expr], Callable[[Any, Any], Values]]] = {
        exp.Column: _column,
        exp.Paren: _inside,
        exp.Null: _null,
        exp.Boolean: _boolean,
        exp.Literal: _literal,
        exp.Neg: _negative,
        exp.Cast: _cast,
        exp.TryCast: _cast,
        exp.Coalesce: _first_known,
        exp.Case: _case,
        exp.If: _if,
        exp.Nullif: _nullif,
        exp.In: _in,
        exp.Is: _is_null,
        exp.Not: _not,
        exp.And: _logic,
        exp.Or: _logic,
        **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), _compared),
        **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), _arithmetic),
        exp.Concat: _concatenated,
        exp.DPipe: _concatenated,
        exp.Lower: _letters,
        exp.Upper: _letters,
    }
