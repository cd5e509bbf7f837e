"""SQL in a declaration, checked before anything runs: a table's name, and a SELECT with named parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import sqlglot
from sqlglot import expressions as exp
from sqlglot.tokenizer_core import Token, TokenType

from jobs.errors import DeclarationError

DIALECTS = {"postgresql": "postgres", "sqlite": "sqlite", "mysql": "mysql", "mariadb": "mysql", "oracle": "oracle"}
ANY_OF = ("postgres", "mysql", "sqlite")  # when the address, and so the dialect, is known on the executors only
WRITES = (exp.DML, exp.Into, exp.Command, exp.DDL, exp.Lock)
QUOTED_OR_NOT = r'"(?:[^"]|"")+"|[^".]+'
TABLE = re.compile(rf"(?:(?P<schema>{QUOTED_OR_NOT})\.)?(?P<name>{QUOTED_OR_NOT})")


@dataclass(frozen=True)
class TableName:
    schema: str | None
    name: str


def read_table(text: str) -> TableName:
    """`schema.table` or `table`; a name that holds a dot stands in double quotes. Raises DeclarationError."""
    parts = TABLE.fullmatch(text)
    if parts is None:
        raise DeclarationError(f'table is {text!r}; it must be table or schema.table, as "fleet.planes".')
    schema = parts["schema"]
    return TableName(None if schema is None else _unquoted(schema), _unquoted(parts["name"]))


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


@dataclass(frozen=True)
class Statement:
    """A SELECT in pieces: what stands before, between and after its parameters. columns: of its rows; () with a *."""

    pieces: tuple[str, ...]
    parameters: tuple[str, ...]  # between the pieces, in order; one may come twice
    columns: tuple[str, ...]


def read_select(text: str, backend: str | None) -> Statement:
    """One SELECT, with values as :name only. Raises DeclarationError naming the rule.

    backend: SQLAlchemy's name of the database; None when the address is not known here.
    """
    dialects = ANY_OF if backend is None else (DIALECTS.get(backend, ""),)
    tree, tokens = _parsed(text, dialects)
    if not isinstance(tree, exp.Query) or tree.find(*WRITES):
        raise DeclarationError("select must be one SELECT that changes and locks nothing; a lookup reads.")
    placeholders = list(tree.find_all(exp.Placeholder))
    if tree.find(exp.Parameter) or not all(isinstance(found.this, str) for found in placeholders):
        raise DeclarationError("select: values stand as :name, where name is a key; not as ?, %s, $1 or @name.")
    found = _parameters(tokens)
    if sorted(name for _, name in found) != sorted(str(placeholder.this) for placeholder in placeholders):
        raise DeclarationError(
            "select: a colon in it cannot be told from a parameter. Write CAST(x AS type) for x::type, and a space "
            "after the colon of a slice."
        )
    pieces, after = [], 0
    for start, name in found:
        pieces.append(text[after:start])
        after = start + 1 + len(name)
    columns = () if tree.is_star else tuple(tree.named_selects)
    return Statement((*pieces, text[after:].rstrip().rstrip(";")), tuple(name for _, name in found), columns)


def _parsed(text: str, dialects: tuple[str, ...]) -> tuple[exp.Expr, list[Token]]:
    problem: Exception | None = None
    for dialect in dialects:
        try:
            trees = [tree for tree in sqlglot.parse(text, read=dialect) if tree is not None]
            tokens = sqlglot.tokenize(text, read=dialect)
        except sqlglot.errors.SqlglotError as error:
            problem = problem or error
        else:
            if len(trees) != 1:
                raise DeclarationError(f"select holds {len(trees)} statements; it must be one SELECT.")
            return trees[0], tokens
    raise DeclarationError(f"select cannot be read as SQL: {text!r}.") from problem


def _parameters(tokens: list[Token]) -> list[tuple[int, str]]:
    """Where each `:name` starts, and its name: a colon with a word right behind it."""
    return [
        (colon.start, word.text)
        for colon, word in pairwise(tokens)
        if colon.token_type is TokenType.COLON and word.start == colon.end + 1 and word.text.isidentifier()
    ]
