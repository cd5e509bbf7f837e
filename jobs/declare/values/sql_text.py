"""Checks SQL before anything runs: a table's name, and a SELECT with named parameters."""

import re
from dataclasses import dataclass
from itertools import pairwise

import sqlglot
from sqlglot import expressions as exp
from sqlglot.tokenizer_core import Token, TokenType

from jobs.errors import DeclarationError

DIALECTS = {
    "postgresql": "postgres",
    "postgres": "postgres",  # as providers write it
    "sqlite": "sqlite",
}
# if only the executors know the address, and so the dialect
ANY_OF = ("postgres", "sqlite")
WRITES = (exp.DML, exp.Into, exp.Command, exp.DDL, exp.Lock)
QUOTED_OR_NOT = r'"(?:[^"]|"")+"|[^".]+'
TABLE = re.compile(rf"(?:(?P<schema>{QUOTED_OR_NOT})\.)?(?P<name>{QUOTED_OR_NOT})")


@dataclass(frozen=True)
class TableName:
    schema: str | None
    name: str


def read_table(text: str) -> TableName:
    """Read `schema.table` or `table`, quoted if it has a dot. Raises DeclarationError."""
    parts = TABLE.fullmatch(text)
    if parts is None:
        raise DeclarationError(
            f'table is {text!r}; it must be table or schema.table, such as "fleet.planes".'
        )
    schema = parts["schema"]
    return TableName(None if schema is None else _unquoted(schema), _unquoted(parts["name"]))


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


@dataclass(frozen=True)
class Statement:
    """A SELECT in pieces: the texts before, between and after its parameters.

    Attributes:
        pieces: The texts.
        parameters: Names between the pieces, in order; a name may occur twice.
        columns: The columns of its rows; () with a *.
    """

    pieces: tuple[str, ...]
    parameters: tuple[str, ...]
    columns: tuple[str, ...]


def read_select(text: str, backend: str | None) -> Statement:
    """Read a SELECT with values only as :name. Raises DeclarationError with the rule.

    Args:
        text: The SQL.
        backend: SQLAlchemy's name of the database; None if the address is unknown here.
    """
    dialects = ANY_OF if backend is None else (DIALECTS.get(backend, ""),)
    problem: Exception | None = None
    for dialect in dialects:
        try:
            pieces, names = _pieces(text, dialect)
            trees = [
                tree for tree in sqlglot.parse(_joined(pieces), read=dialect) if tree is not None
            ]
        except sqlglot.errors.SqlglotError as error:
            problem = problem or error
        else:
            return Statement(tuple(pieces), tuple(names), _checked(trees, names))
    raise DeclarationError(f"select cannot be read as SQL: {text!r}.") from problem


def _joined(pieces: list[str]) -> str:
    """Return the text with generated names, because a key's name may be a keyword of SQL."""
    return pieces[0] + "".join(f":value_{number}{piece}" for number, piece in enumerate(pieces[1:]))


def _checked(trees: list[exp.Expr], names: list[str]) -> tuple[str, ...]:
    """Return the columns of the only SELECT; () for a *."""
    if len(trees) != 1:
        raise DeclarationError(f"select holds {len(trees)} statements; it must be one SELECT.")
    tree = trees[0]
    if not isinstance(tree, exp.Query) or tree.find(*WRITES):
        raise DeclarationError(
            "select must be one SELECT that changes and locks nothing; a lookup reads."
        )
    placeholders = list(tree.find_all(exp.Placeholder))
    if tree.find(exp.Parameter) or not all(isinstance(found.this, str) for found in placeholders):
        raise DeclarationError(
            "select: values stand as :name, where name is a key; not as ?, %s, $1 or @name."
        )
    if {str(found.this) for found in placeholders} != {
        f"value_{number}" for number in range(len(names))
    }:
        raise DeclarationError(
            "select: a colon in it cannot be told from a parameter. Write CAST(x AS type) for "
            "x::type, and a space after the colon of a slice."
        )
    return () if tree.is_star else tuple(tree.named_selects)


def _pieces(text: str, dialect: str) -> tuple[list[str], list[str]]:
    pieces, names, after = [], [], 0
    for start, name in _parameters(sqlglot.tokenize(text, read=dialect)):
        pieces.append(text[after:start])
        names.append(name)
        after = start + 1 + len(name)
    return [*pieces, text[after:].rstrip().rstrip(";")], names


def _parameters(tokens: list[Token]) -> list[tuple[int, str]]:
    """Return the position and name of each `:name`, a colon directly followed by a word."""
    return [
        (colon.start, word.text)
        for colon, word in pairwise(tokens)
        if colon.token_type is TokenType.COLON
        and word.start == colon.end + 1
        and word.text.isidentifier()
    ]
