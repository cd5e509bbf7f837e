"""Evaluates Spark SQL expressions of keys by Arrow, value for value as Spark does.

It knows columns, fields of structs, literals, trim, lower, upper, coalesce, nullif, if, CASE,
concat, substring, split_part, replace, casts to a text or a wider integer, comparisons (of a DOUBLE
also with a number such as 0.7), BETWEEN, IN, IS NULL, AND, OR, NOT. Other expressions, and
expressions whose operands Spark would convert first, need Spark. A random search compares both
engines: tests/jobs/input/keys/test_arrow_expressions.py.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import expressions as exp

from jobs.declare.lookup import Lookup
from jobs.input.keys.key_values import (
    ColumnValues,
    ConstantValues,
    FunctionValues,
    Values,
    cast,
    choose,
    compare_floats,
    equal_or_null,
    is_in,
    join,
    lower,
    null_where,
    split_part,
    upper,
)

UTC, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())  # from narrow to wide
ORDERED = (pa.string(), *INTEGERS, pa.date32(), UTC, LOCAL)
KINDS = (*ORDERED, pa.bool_())
# types of keys that Arrow compares and writes as text like Spark: no floats, which have -0.0 and
# NaN, no strings with a collation, and no types that hold such values
COMPARABLE = {*KINDS, pa.binary()}
MOST_ROWS = 5_000_000  # of a day, for which the driver can hold the keys
IN_TEXT = (pa.string(), pa.bool_(), *INTEGERS)  # Spark and Arrow write their values alike
SPACE = " "  # the only character that Spark's trim removes
SIDES = {
    "LEADING": pc.utf8_ltrim,
    "TRAILING": pc.utf8_rtrim,
    "BOTH": pc.utf8_trim,
    "": pc.utf8_trim,
}
COMPARISONS: dict[type[exp.Expr], Callable[[pa.Array, pa.Array], pa.Array]] = {
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
}
# what Spark applies to the whole comparison before it, and sqlglot to that comparison's right side
PREDICATES = (exp.Between, exp.In, exp.Is, exp.Not, exp.NullSafeEQ)
DOUBLE, DECIMAL = pa.float64(), pa.decimal128(38, 0)  # DECIMAL: a literal such as 0.7, to compare
TO_DOUBLE = (pa.int8(), pa.int16(), pa.int32(), pa.null())  # that Spark casts without a change
CASTS = {
    exp.DType.TEXT: pa.string(),
    exp.DType.SMALLINT: pa.int16(),
    exp.DType.INT: pa.int32(),
    exp.DType.BIGINT: pa.int64(),
}


class _NeedsSparkError(Exception):
    """Arrow may give another value than Spark."""


def arrow_expression(text: str, types: pa.Schema) -> Values | None:
    """Find out whether Arrow can evaluate a Spark SQL expression.

    Args:
        text: An expression, which `columns_in` accepts.
        types: The input's columns, in the types in which Spark passes them to Arrow.

    Returns:
        The expression; None where only Spark can evaluate it.
    """
    if "\\" in text:  # escapes of literals, which a setting of Spark changes
        return None
    try:
        if _joins_literals(text):
            return None
        tree = sqlglot.parse_one(text, read="spark")
        compiled = _Compiler({field.name.lower(): field for field in types}).compile(tree)
    except (_NeedsSparkError, sqlglot.errors.SqlglotError):
        return None
    return None if compiled.kind == pa.null() else compiled


def _joins_literals(text: str) -> bool:
    """Return whether literals follow each other, as in 'O''Neil': a setting of Spark reads them."""
    kinds = [token.token_type for token in sqlglot.tokenize(text, read="spark")]
    return any(one == other == sqlglot.TokenType.STRING for one, other in pairwise(kinds))


def arrow_keys(lookup: Lookup, names: Sequence[str], types: pa.Schema) -> dict[str, Values] | None:
    """Compile the parts of a lookup's key.

    Args:
        lookup: Declares the expressions.
        names: The column of each part.
        types: As in `arrow_expression`.

    Returns:
        The values of each column in `names`; None where only Spark can evaluate a part.
    """
    keys = {}
    for name, text in zip(names, lookup.key_sql.values(), strict=True):
        values = arrow_expression(text, types)
        if values is None:
            return None
        keys[name] = values
    return keys


def evaluate(text: str, rows: pa.Table) -> pa.Array | None:
    """Return the values of an expression over rows, in Spark's types; None if it needs Spark."""
    values = arrow_expression(text, rows.schema)
    if values is None:
        return None
    columns = {name: rows[name].combine_chunks() for name in values.reads}
    return values.evaluate(columns, rows.num_rows)


class _Compiler:
    """Compiles the syntax tree of an expression.

    Args:
        columns: The input's columns by lower-case name, as Spark has them.
    """

    def __init__(self, columns: Mapping[str, pa.Field]) -> None:
        # by this name, as `compile` would take _columns for the method of sqlglot's node Columns
        self._columns_by_name = columns

    def compile(self, node: Any) -> Values:
        """Compile a node.

        Raises:
            _NeedsSparkError: Arrow may differ from Spark.
        """
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if type(node) in COMPARISONS:
            return self._comparison(node)
        if method is None or node.comments:  # a comment may be a hint
            raise _NeedsSparkError(repr(node))
        compiled: Values = method(node)
        return compiled

    def _column(self, node: exp.Column | exp.Dot) -> Values:
        """Compile a column, or a field of a struct, as in `customer.address.town`."""
        column, *fields = (part.name.lower() for part in node.parts)
        if column not in self._columns_by_name:
            raise _NeedsSparkError(repr(node))
        known = self._columns_by_name[column]
        values: Values = ColumnValues(known.name, known.type)
        for field in fields:
            kind = values.kind
            names = [field.name.lower() for field in kind] if pa.types.is_struct(kind) else []
            if names.count(field) != 1:
                raise _NeedsSparkError(repr(node))
            number = names.index(field)
            take = functools.partial(pc.struct_field, indices=[number])
            values = _apply(take, kind.field(number).type, [values])
        return values

    _dot = _column  # sqlglot's name for five parts and more

    def _paren(self, node: exp.Paren) -> Values:
        return self.compile(node.this)

    # -- literals ------------------------------------------------------------------------------

    def _literal(self, node: exp.Literal) -> Values:
        if node.is_string:
            return ConstantValues(node.this, pa.string())
        return self._number(node, node.this)

    def _neg(self, node: exp.Neg) -> Values:
        if not isinstance(node.this, exp.Literal) or node.this.is_string:
            raise _NeedsSparkError(repr(node))
        return self._number(node, f"-{node.this.this}")

    def _number(self, node: exp.Expr, text: str) -> Values:
        if "." not in text:
            return self._integer(text)
        user = node.parent
        while isinstance(user, exp.Paren):
            user = user.parent
        is_compared = type(user) in COMPARISONS or isinstance(user, exp.Between | exp.NullSafeEQ)
        digits = text.lstrip("-").replace(".", "", 1)
        if not is_compared or not digits.isdecimal() or len(digits) > 38:
            raise _NeedsSparkError(text)
        return ConstantValues(float(text), DECIMAL)

    def _integer(self, text: str) -> Values:
        if not text.lstrip("-").isdecimal():
            raise _NeedsSparkError(text)
        value = int(text)
        for kind, bits in ((pa.int32(), 31), (pa.int64(), 63)):
            if -(1 << bits) <= value < 1 << bits:
                return ConstantValues(value, kind)
        raise _NeedsSparkError(text)

    def _boolean(self, node: exp.Boolean) -> Values:
        return ConstantValues(node.this, pa.bool_())

    def _null(self, _node: exp.Null) -> Values:
        return ConstantValues(None, pa.null())

    # -- values --------------------------------------------------------------------------------

    def _trim(self, node: exp.Trim) -> Values:
        side = SIDES.get(str(node.args.get("position") or ""))
        if node.expression or node.args.get("collation") or side is None:
            raise _NeedsSparkError(repr(node))
        trim = functools.partial(side, characters=SPACE)
        return _apply(trim, pa.string(), [self._compile_as(node.this, pa.string())])

    def _lower(self, node: exp.Lower) -> Values:
        return _apply(lower, pa.string(), [self._compile_as(node.this, pa.string())])

    def _upper(self, node: exp.Upper) -> Values:
        return _apply(upper, pa.string(), [self._compile_as(node.this, pa.string())])

    def _substring(self, node: exp.Substring) -> Values:
        text = self._compile_as(node.this, pa.string())
        start, length = (_count_in(node.args.get(name)) for name in ("start", "length"))
        if start is None or (length is None and node.args.get("length") is not None):
            raise _NeedsSparkError(repr(node))
        first = max(start - 1, 0)
        stop = None if length is None else first + length
        cut = functools.partial(pc.utf8_slice_codeunits, start=first, stop=stop)
        return _apply(cut, pa.string(), [text])

    def _splitpart(self, node: exp.SplitPart) -> Values:
        text = self._compile_as(node.this, pa.string())
        mark, number = _text_in(node.args.get("delimiter")), _count_in(node.args.get("part_index"))
        if not mark or not number:
            raise _NeedsSparkError(repr(node))
        return _apply(functools.partial(split_part, mark, number), pa.string(), [text])

    def _replace(self, node: exp.Replace) -> Values:
        text = self._compile_as(node.this, pa.string())
        old, new = _text_in(node.args.get("expression")), _text_in(node.args.get("replacement"))
        if not old or new is None:
            raise _NeedsSparkError(repr(node))
        replaced = functools.partial(pc.replace_substring, pattern=old, replacement=new)
        return _apply(replaced, pa.string(), [text])

    def _concat(self, node: exp.Concat) -> Values:
        return self._joined(node.expressions)

    def _dpipe(self, node: exp.DPipe) -> Values:
        return self._joined([node.left, node.right])

    def _joined(self, nodes: Sequence[exp.Expr]) -> Values:
        return _apply(join, pa.string(), [self._as_text(self.compile(node)) for node in nodes])

    def _cast(self, node: exp.Cast) -> Values:
        value, wanted = self.compile(node.this), node.to
        kind = None if wanted.expressions else CASTS.get(wanted.this)
        if kind == pa.string():
            return self._as_text(value)
        if kind is None or value.kind not in INTEGERS or _widest([value.kind, kind]) != kind:
            raise _NeedsSparkError(repr(node))
        return _widened(value, kind)

    _trycast = _cast  # a cast that cannot fail

    def _coalesce(self, node: exp.Coalesce) -> Values:
        values = [self.compile(value) for value in (node.this, *node.expressions)]
        kind = _widest([value.kind for value in values])
        return _apply(pc.coalesce, kind, [_widened(value, kind) for value in values])

    def _nullif(self, node: exp.Nullif) -> Values:
        value = self.compile(node.this)
        if value.kind == pa.null():
            raise _NeedsSparkError(repr(node))
        equal = self._compared(pc.equal, value, self.compile(node.expression))
        return _apply(null_where, value.kind, [value, equal])

    def _case(self, node: exp.Case) -> Values:
        branches = node.args["ifs"]
        tests = [branch.this for branch in branches]
        if node.this is None:
            conditions = self._conditions(*tests)
        else:
            subject = self.compile(node.this)
            conditions = [self._compared(pc.equal, subject, self.compile(test)) for test in tests]
        results = [branch.args["true"] for branch in branches]
        return self._chosen(conditions, [*results, node.args.get("default") or exp.Null()])

    def _if(self, node: exp.If) -> Values:
        if node.args.get("false") is None:  # Spark's `if` has three arguments
            raise _NeedsSparkError(repr(node))
        results = [node.args["true"], node.args["false"]]
        return self._chosen(self._conditions(node.this), results)

    def _chosen(self, conditions: list[Values], nodes: list[exp.Expr]) -> Values:
        values = [self.compile(node) for node in nodes]
        kinds = {value.kind for value in values} - {pa.null()}
        kind = DOUBLE if kinds == {DOUBLE} else _widest([value.kind for value in values])
        operands = [*conditions, *(_widened(value, kind) for value in values)]
        return _apply(functools.partial(choose, len(conditions)), kind, operands)

    # -- conditions ----------------------------------------------------------------------------

    def _comparison(self, node: Any) -> Values:
        _refuse_other_order(node)
        left, right = self.compile(node.left), self.compile(node.right)
        return self._compared(COMPARISONS[type(node)], left, right)

    def _nullsafeeq(self, node: exp.NullSafeEQ) -> Values:
        _refuse_other_order(node)
        return self._compared(equal_or_null, self.compile(node.left), self.compile(node.right))

    def _between(self, node: exp.Between) -> Values:
        if node.args.get("symmetric"):
            raise _NeedsSparkError(repr(node))
        value = self.compile(node.this)
        bounds = [self.compile(node.args[name]) for name in ("low", "high")]
        compared = zip((pc.greater_equal, pc.less_equal), bounds, strict=True)
        parts = [self._compared(compare, value, bound) for compare, bound in compared]
        return _apply(pc.and_kleene, pa.bool_(), parts)

    def _in(self, node: exp.In) -> Values:
        if not node.expressions or set(node.args) - {"this", "expressions"}:
            raise _NeedsSparkError(repr(node))
        value = self.compile(node.this)
        others = [self.compile(expression) for expression in node.expressions]
        kind = _widest([value.kind, *(other.kind for other in others)])
        operands = [_widened(operand, kind) for operand in (value, *others)]
        return _apply(is_in, pa.bool_(), operands)

    def _is(self, node: exp.Is) -> Values:
        if not isinstance(node.expression, exp.Null):
            raise _NeedsSparkError(repr(node))
        return _apply(pc.is_null, pa.bool_(), [self.compile(node.this)])

    def _and(self, node: exp.And) -> Values:
        return _apply(pc.and_kleene, pa.bool_(), self._conditions(node.left, node.right))

    def _or(self, node: exp.Or) -> Values:
        return _apply(pc.or_kleene, pa.bool_(), self._conditions(node.left, node.right))

    def _not(self, node: exp.Not) -> Values:
        return _apply(pc.invert, pa.bool_(), self._conditions(node.this))

    # -- operands ------------------------------------------------------------------------------

    def _conditions(self, *nodes: exp.Expr) -> list[Values]:
        return [self._compile_as(node, pa.bool_()) for node in nodes]

    def _compile_as(self, node: exp.Expr, kind: pa.DataType) -> Values:
        compiled = self.compile(node)
        if compiled.kind == pa.null():
            return _widened(compiled, kind)
        if compiled.kind != kind:
            raise _NeedsSparkError(repr(node))
        return compiled

    def _as_text(self, value: Values) -> Values:
        if value.kind not in (*IN_TEXT, pa.null()):
            raise _NeedsSparkError(str(value.kind))
        return _widened(value, pa.string())

    def _compared(self, compare: Callable[..., pa.Array], left: Values, right: Values) -> Values:
        if DOUBLE in (left.kind, right.kind):
            by_floats = functools.partial(compare_floats, compare)
            return _apply(by_floats, pa.bool_(), (_as_double(left), _as_double(right)))
        kind = _widest([left.kind, right.kind])
        if kind not in ORDERED and compare not in (pc.equal, pc.not_equal, equal_or_null):
            raise _NeedsSparkError(str(kind))
        return _apply(compare, pa.bool_(), [_widened(left, kind), _widened(right, kind)])


def _refuse_other_order(node: Any) -> None:
    """Raise _NeedsSparkError for such as `a = b IN (c)`, which Spark takes from left to right."""
    # after <=> sqlglot itself writes parentheses
    right = node.right.unnest() if isinstance(node, exp.NullSafeEQ) else node.right
    if isinstance(node.left, PREDICATES) or isinstance(right, (*PREDICATES, *COMPARISONS)):
        raise _NeedsSparkError(repr(node))


def _as_double(value: Values) -> Values:
    """Return the values as Spark casts them to compare them with a DOUBLE."""
    if isinstance(value, ConstantValues) and value.kind == DECIMAL:
        return ConstantValues(value.value, DOUBLE)
    if value.kind != DOUBLE and value.kind not in TO_DOUBLE:
        raise _NeedsSparkError(str(value.kind))
    return _widened(value, DOUBLE)


def _apply(
    function: Callable[..., pa.Array], kind: pa.DataType, operands: Sequence[Values]
) -> Values:
    return FunctionValues(function, kind, tuple(operands))


def _widened(value: Values, kind: pa.DataType) -> Values:
    """Return the values in a type that holds all of them."""
    return value if value.kind == kind else _apply(functools.partial(cast, kind), kind, [value])


def _widest(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """Return the type that Spark gives to operands of these types without changing a value."""
    known = [kind for kind in kinds if kind != pa.null()]
    if known and all(kind in INTEGERS for kind in known):
        return max(known, key=INTEGERS.index)
    if not known or known[0] not in KINDS or any(kind != known[0] for kind in known):
        raise _NeedsSparkError(str(kinds))
    return known[0]


def _text_in(node: Any) -> str | None:
    """Return the value of a literal that is a text; None for every other node."""
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None


def _count_in(node: Any) -> int | None:
    """Return the value of a literal that is not negative; None for every other node."""
    if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdecimal():
        return None
    value = int(node.this)
    return value if value < 1 << 31 else None
