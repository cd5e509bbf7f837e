"""Reads the Spark DDL of the columns that a lookup returns, without Spark."""

import re

import pyarrow as pa
import sqlglot
from sqlglot import expressions as exp

from jobs.declare.answers.answer_casts import AnswerColumn
from jobs.errors import DeclarationError

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LARGEST_PRECISION = 38  # of a DECIMAL, in Spark


def read_ddl(ddl: str, where: str = "returns") -> tuple[AnswerColumn, ...]:
    """Return the columns of DDL such as "temp_c DOUBLE, visibility_m INT", which is declared in the
    field `where`.

    Raises:
        DeclarationError: The DDL is unreadable; the message shows it.
    """
    cure = 'Write Spark DDL, as in "temp_c DOUBLE, visibility_m INT".'
    try:
        # DataType.build would leave out what follows the first column that it cannot read
        columns = sqlglot.parse_one(f"STRUCT<{ddl}\n>", read="spark", into=exp.DataType).expressions
    except sqlglot.errors.SqlglotError:
        columns = []
    if not columns or not all(column.args.get("kind") for column in columns):
        raise DeclarationError(
            f"{where}: cannot read {ddl!r}: every column needs a name and a type of Spark. {cure}"
        )
    read = []
    for column in columns:
        try:
            _quoted(column.name)
            spark_type, arrow_type = _read_field(column)
        except ValueError as error:
            raise DeclarationError(f"{where}: {column.name}: {error} {cure}") from error
        read.append(AnswerColumn(column.name, spark_type, arrow_type))
    names = [column.name for column in read]
    if len({name.lower() for name in names}) < len(names):
        raise DeclarationError(
            f"{where}: {ddl!r} names a column twice; rename one of them, and not only by its case."
        )
    return tuple(read)


def _read_field(field: exp.Expr) -> tuple[str, pa.DataType]:
    """Return the type of a column or field. Raises ValueError for what no run would check."""
    if "kind" not in field.args:
        raise ValueError(f"{field.sql(dialect='spark')} in a STRUCT needs a name and a type.")
    unchecked = [
        rule.sql(dialect="spark")
        for rule in field.args.get("constraints") or ()
        if not isinstance(rule.kind, exp.CommentColumnConstraint)
    ]
    if unchecked:
        raise ValueError(
            f"{unchecked[0]} is not checked. Leave it out; required=[...] of a lookup names "
            "columns that an answer must fill."
        )
    return _read_type(field.args["kind"])


def _read_type(kind: exp.DataType) -> tuple[str, pa.DataType]:
    """Return Spark's and Arrow's type. Raises ValueError for a type that an answer cannot have."""
    match kind.this:
        case simple if simple in _BY_NAME:
            spark_type, arrow_type = _BY_NAME[simple]
            if kind.expressions:
                raise ValueError(f"the length in {kind.sql()} is not checked; write {spark_type}.")
            return spark_type, arrow_type
        case exp.DType.DECIMAL:
            sizes = [int(size.name) for size in kind.expressions] or [10]
            precision, scale = [*sizes, 0][:2]
            name = f"DECIMAL({precision},{scale})"
            if not 0 <= scale <= precision <= LARGEST_PRECISION:
                raise ValueError(
                    f"{name} has more than {LARGEST_PRECISION} digits, or fewer than its scale."
                )
            return name, pa.decimal128(precision, scale)
        case exp.DType.ARRAY if kind.expressions:
            inner, arrow = _read_type(kind.expressions[0])
            return f"ARRAY<{inner}>", pa.list_(arrow)
        case exp.DType.MAP if kind.expressions:
            key, (inner, arrow) = map(_read_type, kind.expressions)
            if key[1] != pa.string():
                raise ValueError(f"the keys of {kind.sql(dialect='spark')} must be STRING.")
            return f"MAP<STRING, {inner}>", pa.map_(pa.string(), arrow)
        case exp.DType.STRUCT if kind.expressions:
            if len({field.name.lower() for field in kind.expressions}) < len(kind.expressions):
                raise ValueError(f"{kind.sql(dialect='spark')} names a field twice.")
            fields = {field.name: _read_field(field) for field in kind.expressions}
            inner = ", ".join(f"{_quoted(name)}: {read[0]}" for name, read in fields.items())
            arrow = pa.struct([(name, read[1]) for name, read in fields.items()])
            return f"STRUCT<{inner}>", arrow
    simple_types = ", ".join(dict.fromkeys(name for name, _ in _BY_NAME.values()))
    raise ValueError(
        f"{kind.sql(dialect='spark')} is not read; the types are {simple_types}, DECIMAL(p, s), "
        "ARRAY<t>, MAP<STRING, t> and STRUCT<name: t>."
    )


def _quoted(name: str) -> str:
    """Return a name quoted for DDL. Raises ValueError for a name that DDL cannot express."""
    if not name or "`" in name:
        raise ValueError(f"{name!r} is not a name: it must not be empty or contain a backtick.")
    return name if PLAIN_NAME.fullmatch(name) else f"`{name}`"


_BY_NAME: dict[exp.DType, tuple[str, pa.DataType]] = {
    exp.DType.TINYINT: ("TINYINT", pa.int8()),
    exp.DType.SMALLINT: ("SMALLINT", pa.int16()),
    exp.DType.INT: ("INT", pa.int32()),
    exp.DType.BIGINT: ("BIGINT", pa.int64()),
    exp.DType.FLOAT: ("FLOAT", pa.float32()),
    exp.DType.DOUBLE: ("DOUBLE", pa.float64()),
    exp.DType.BOOLEAN: ("BOOLEAN", pa.bool_()),
    exp.DType.DATE: ("DATE", pa.date32()),
    **dict.fromkeys((exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR), ("STRING", pa.string())),
    **dict.fromkeys((exp.DType.BINARY, exp.DType.VARBINARY), ("BINARY", pa.binary())),
    **dict.fromkeys(
        (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ),
        ("TIMESTAMP", pa.timestamp("us", tz="UTC")),
    ),
}
