"""The Spark SQL of a key, read without Spark."""

import sqlglot
from sqlglot import expressions as exp

from jobs.errors import DeclarationError


def columns_in(where: str, expression: str) -> set[str]:
    """The columns that a Spark SQL expression reads. Raises DeclarationError for an unreadable expression."""
    try:
        tree = sqlglot.parse_one(expression, read="spark")
    except sqlglot.errors.SqlglotError as error:
        raise DeclarationError(f"{where}: cannot read {expression!r} as a Spark SQL expression.") from error
    if not isinstance(tree, exp.Expression) or isinstance(tree, exp.Alias | exp.Query | exp.Command | exp.Block):
        raise DeclarationError(f"{where}: {expression!r} is not one Spark SQL expression without an alias.")
    if tree.find(exp.UDTF):
        raise DeclarationError(
            f"{where}: {expression!r} makes any number of rows from one; a key is one value, as in element_at(tags, 1)."
        )
    if tree.find(exp.Window, exp.AggFunc, exp.Star):
        raise DeclarationError(f"{where}: {expression!r} reads other rows; a key may read only its own row.")
    return {column.parts[0].name for column in tree.find_all(exp.Column)}


def named_column(expression: str) -> str | None:
    """The column of a Spark SQL expression that is only a column name; None for any other, such as a field of a
    struct.
    """
    tree = sqlglot.parse_one(expression, read="spark")
    return tree.name if isinstance(tree, exp.Column) and len(tree.parts) == 1 else None
