"""Reads the Spark SQL of a key without Spark."""

import functools
from collections.abc import Mapping

import pyarrow as pa
import sqlglot
from sqlglot import expressions as exp
from sqlglot.tokenizer_core import TokenType

from jobs.errors import DeclarationError


@functools.lru_cache(maxsize=1024)  # a day asks a hundred times for those of its few keys
def columns_in(where: str, expression: str) -> frozenset[str]:
    """Return the columns that a Spark SQL expression reads. Raises DeclarationError."""
    try:
        tree = sqlglot.parse_one(expression, read="spark")
    except sqlglot.errors.SqlglotError as error:
        raise DeclarationError(
            f"{where}: cannot read {expression!r} as a Spark SQL expression."
        ) from error
    kinds = [token.token_type for token in sqlglot.tokenize(expression, read="spark")]
    if kinds.count(TokenType.L_PAREN) != kinds.count(TokenType.R_PAREN):  # as in `trim(a`
        raise DeclarationError(
            f"{where}: cannot read {expression!r} as a Spark SQL expression: a parenthesis is "
            "missing."
        )
    is_statement = isinstance(tree, exp.Alias | exp.Query | exp.Command | exp.Block)
    if not isinstance(tree, exp.Expression) or is_statement or TokenType.SEMICOLON in kinds:
        raise DeclarationError(
            f"{where}: {expression!r} is not one Spark SQL expression without an alias."
        )
    if tree.find(exp.UDTF):
        raise DeclarationError(
            f"{where}: {expression!r} makes any number of rows from one; a key is one value, as in "
            "element_at(tags, 1)."
        )
    if tree.find(exp.Window, exp.AggFunc, exp.Star):
        raise DeclarationError(
            f"{where}: {expression!r} reads other rows; a key may read only its own row."
        )
    return frozenset(column.parts[0].name for column in tree.find_all(exp.Column))


def spark_type(kind: pa.DataType) -> str | None:
    """Return Spark's name of a column's type, if a key may be compared with a database's column.

    All whole numbers are bigint, all decimals decimal; for any other type the result is None.
    """
    if pa.types.is_dictionary(kind):
        return spark_type(kind.value_type)
    tests = (
        (pa.types.is_boolean, "boolean"), (pa.types.is_integer, "bigint"),
        (pa.types.is_float32, "float"), (pa.types.is_float64, "double"),
        (pa.types.is_decimal, "decimal"), (pa.types.is_string, "string"),
        (pa.types.is_large_string, "string"), (pa.types.is_binary, "binary"),
        (pa.types.is_date, "date"), (pa.types.is_timestamp, "timestamp"),
    )  # fmt: skip
    return next((name for is_kind, name in tests if is_kind(kind)), None)


def key_type(expression: str, columns: Mapping[str, str | None]) -> str | None:
    """Return the type of a key as `spark_type` names it, if it is known without Spark; else None.

    Args:
        expression: The key's Spark SQL.
        columns: The input's columns, by their names in lower case, with their types.
    """
    tree = sqlglot.parse_one(expression, read="spark")
    while isinstance(tree, exp.Paren):
        tree = tree.this
    if isinstance(tree, exp.Column) and len(tree.parts) == 1:
        return columns.get(tree.name.lower())
    if isinstance(tree, exp.Trim | exp.Lower | exp.Upper):
        return "string"
    if isinstance(tree, exp.Cast):
        return _CASTS.get(tree.to.this.name.lower())
    return None


_CASTS = {
    "text": "string", "varchar": "string", "char": "string", "tinyint": "bigint",
    "smallint": "bigint", "int": "bigint", "bigint": "bigint", "float": "float", "double": "double",
    "decimal": "decimal", "boolean": "boolean", "binary": "binary", "date": "date",
    "timestamp": "timestamp", "timestamptz": "timestamp", "timestampltz": "timestamp",
    "timestampntz": "timestamp",
}  # fmt: skip


def named_column(expression: str) -> str | None:
    """Return the column of a Spark SQL expression that is only a column name.

    None for any other expression, such as a field of a struct.
    """
    tree = sqlglot.parse_one(expression, read="spark")
    return tree.name if isinstance(tree, exp.Column) and len(tree.parts) == 1 else None
