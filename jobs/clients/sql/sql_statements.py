"""Builds the statements of a SqlLookup: for one key, or for many keys of a table."""

import datetime as dt
import decimal
import ipaddress
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from jobs.declare.lookup import Key
from jobs.declare.sql_lookup import SqlLookup

# LIMIT of a query for many keys; a query that reaches it is repeated key by key (SqlClient)
ROWS_PER_KEY = 3
PLAIN = (str, int, float, decimal.Decimal, dt.date, bytes, dict)
TEXT = (  # types that become text in a STRING; an interface of ipaddress is an address
    uuid.UUID, dt.time, ipaddress.IPv4Address, ipaddress.IPv6Address,
    ipaddress.IPv4Network, ipaddress.IPv6Network,
)  # fmt: skip
NUMBERS = "('integer', 'real')"  # SQLite's storage classes of numbers
INFINITE = "infinite"  # infinite_0, ...: whether a time is PostgreSQL's infinity


def one_key(lookup: SqlLookup, dialect: str) -> sa.Select[Any]:
    """Return the query for a key in SQLAlchemy's dialect of this name, with parameters key_0, key_1
    and so on.

    It reads two rows, enough to detect a duplicate. A row has the answer's columns, then a flag for
    each of `columns_of_times`.
    """
    wanted = [column.name for column in lookup.columns]
    if lookup.select is not None:
        answer = _select_columns(lookup, wanted)
        columns = answer.c
        return sa.select(
            *(columns[name] for name in wanted), *_flags(lookup, dialect, columns)
        ).limit(2)
    named = lookup.table_name
    names: list[sa.ColumnClause[Any]] = [
        sa.column(name) for name in dict.fromkeys((*wanted, *lookup.keys))
    ]
    table = sa.table(named.name, *names, schema=named.schema)
    pairs: list[tuple[Any, Any]] = [
        (table.c[name], sa.bindparam(f"key_{number}")) for number, name in enumerate(lookup.keys)
    ]
    conditions: list[Any] = [column == value for column, value in pairs]
    if dialect == "sqlite":
        conditions += [_same_storage_class(column, value) for column, value in pairs]
    return (
        sa.select(*(table.c[name] for name in wanted), *_flags(lookup, dialect, table.c))
        .where(*conditions)
        .limit(2)
    )


def _same_storage_class(column: Any, value: Any) -> Any:
    """Return SQL that is true if both are numbers, texts or bytes: SQLite's `=` makes "007" 7."""
    of_column, of_value = sa.func.typeof(column), sa.func.typeof(value)
    numbers: Any = sa.literal_column(NUMBERS)
    return sa.or_(
        of_column == of_value, sa.and_(of_column.op("IN")(numbers), of_value.op("IN")(numbers))
    )


def columns_of_times(lookup: SqlLookup, dialect: str) -> list[str]:
    """Return columns in which PostgreSQL may have an infinite time, read as the year 9999.

    A STRUCT or MAP comes from JSON, in which a time is text.
    """
    if dialect != "postgresql":
        return []
    return [column.name for column in lookup.columns if pa.types.is_temporal(column.item_type)]


def _flags(lookup: SqlLookup, dialect: str, columns: Any) -> list[Any]:
    """Return SQL flags: whether the value of each of `columns_of_times` is infinite."""
    names = columns_of_times(lookup, dialect)
    return [
        sa.cast(columns[name], sa.Text).like("%infinity%").label(f"{INFINITE}_{number}")
        for number, name in enumerate(names)
    ]


def _select_columns(lookup: SqlLookup, wanted: Sequence[str]) -> sa.Subquery:
    # the space ends the name, as x::type may follow
    numbers = {name: f":key_{number} " for number, name in enumerate(lookup.keys)}
    statement = lookup.statement
    text = statement.pieces[0].replace(":", r"\:")
    for name, piece in zip(statement.parameters, statement.pieces[1:], strict=True):
        text += numbers[name] + piece.replace(":", r"\:")
    return sa.text(f"{text}\n").columns(*(sa.column(name) for name in wanted)).subquery("answer")


class ManyKeys:
    """A query for many keys of a table, as a join of the table with the keys.

    In a join the database compares keys by its collation, padding and types. Each row has the
    number of its key.
    """

    def __init__(self, lookup: SqlLookup, dialect: sa.Dialect, types: Mapping[str, str]) -> None:
        """Prepare the query, on PostgreSQL with the types of the table's columns.

        Raises:
            ValueError: A key has a type that such a query does not support.
        """
        quote = dialect.identifier_preparer.quote
        numbers = range(len(lookup.keys))
        self._is_postgres = dialect.name == "postgresql"
        if self._is_postgres:
            arrays = [_array_type(lookup, name, types) for name in lookup.keys]
            marks = ", ".join(f"${number + 1}::{array}" for number, array in enumerate(arrays))
            names = [f"key_{number}" for number in numbers]
            self._lists = f"unnest({marks}) WITH ORDINALITY AS k({', '.join(names)}, ordinal)"
        else:
            # as SQLite names the columns of VALUES; column1 is the key's number
            names = [f"column{number + 2}" for number in numbers]
            self._row = ", ?" * len(lookup.keys)
        answers = [f"t.{quote(column.name)}" for column in lookup.columns]
        answers += [
            f"CAST(t.{quote(name)} AS TEXT) LIKE '%infinity%'"
            for name in columns_of_times(lookup, dialect.name)
        ]
        pairs = [
            (f"t.{quote(name)}", f"k.{parameter}")
            for name, parameter in zip(lookup.keys, names, strict=True)
        ]
        conditions = [f"{column} = {value}" for column, value in pairs]
        if not self._is_postgres:
            conditions += [_same_storage_class_in_text(column, value) for column, value in pairs]
        on = " AND ".join(conditions)
        place = "k.ordinal - 1" if self._is_postgres else "k.column1"
        self._head = f"SELECT {place}, {', '.join(answers)} FROM "  # noqa: S608
        self._tail = f" JOIN {quoted_table(lookup, quote)} AS t ON {on} LIMIT "

    def query(self, keys: Sequence[Key]) -> tuple[str, tuple[Any, ...]]:
        """Return the statement and its parameters for the driver; values are never in the text."""
        if self._is_postgres:
            table = self._lists
            values: tuple[Any, ...] = tuple(list(column) for column in zip(*keys, strict=True))
        else:
            rows = ", ".join(f"({number}{self._row})" for number in range(len(keys)))
            table = f"(VALUES {rows}) AS k"
            values = tuple(value for key in keys for value in key)
        return f"{self._head}{table}{self._tail}{ROWS_PER_KEY * len(keys)}", values


def _same_storage_class_in_text(column: str, value: str) -> str:
    """Return the same SQL as `_same_storage_class`, as text."""
    return (
        f"(typeof({column}) = typeof({value}) OR (typeof({column}) IN {NUMBERS} AND "
        f"typeof({value}) IN {NUMBERS}))"
    )


def _array_type(lookup: SqlLookup, name: str, types: Mapping[str, str]) -> str:
    type_ = types.get(name)
    if type_ is None:
        raise ValueError(f"keys.{name}: {lookup.table} has no such column")
    return f"{type_}[]"


def quoted_table(lookup: SqlLookup, quote: Callable[[str], str]) -> str:
    named = lookup.table_name
    return (
        quote(named.name) if named.schema is None else f"{quote(named.schema)}.{quote(named.name)}"
    )


def plain(value: Any) -> Any:
    """Return a driver's value as an answer's value. Raises ValueError for an unsupported type."""
    if isinstance(value, list):
        return [plain(element) for element in value]
    if value is None or isinstance(value, PLAIN):
        return value
    if isinstance(value, TEXT):
        return str(value)
    if isinstance(value, memoryview):
        return bytes(value)
    raise ValueError(
        f"the database's {type(value).__name__} is not a type of an answer; cast it to "
        "text in a select"
    )
