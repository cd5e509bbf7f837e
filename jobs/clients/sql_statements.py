"""The statements of a SqlLookup: for one key, or for many keys of a table, with the key's number in each row."""

import datetime as dt
import decimal
import ipaddress
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from jobs.declare.lookup import Key
from jobs.declare.sql_lookup import SqlLookup

ROWS_PER_KEY = 3  # in a query for many keys: more mean that keys are not unique, and could fill the memory
PLAIN = (str, int, float, decimal.Decimal, dt.date, bytes, list, dict)
ADDRESSES = (ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Interface, ipaddress.IPv6Interface)
NETWORKS = (ipaddress.IPv4Network, ipaddress.IPv6Network)
TEXT = (uuid.UUID, dt.time, *ADDRESSES, *NETWORKS)  # types that become text in a STRING
TYPES_OF = sa.text(
    "SELECT attname, format_type(atttypid, -1) FROM pg_attribute "
    "WHERE attrelid = to_regclass(:table) AND attnum > 0 AND NOT attisdropped"
)  # without a length, "character" would mean one character


def one_key(lookup: SqlLookup) -> sa.Select[Any]:
    """The query for one key, with parameters key_0, key_1 and so on. It reads two rows, which suffice for an error."""
    wanted = [column.name for column in lookup.columns]
    if lookup.select is not None:
        return _of_select(lookup, wanted).limit(2)
    named = lookup.table_name
    columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in dict.fromkeys((*wanted, *lookup.keys))]
    table = sa.table(named.name, *columns, schema=named.schema)
    return (
        sa.select(*(table.c[name] for name in wanted))
        .where(*(table.c[name] == sa.bindparam(f"key_{number}") for number, name in enumerate(lookup.keys)))
        .limit(2)
    )


def _of_select(lookup: SqlLookup, wanted: Sequence[str]) -> sa.Select[Any]:
    numbers = {name: f":key_{number} " for number, name in enumerate(lookup.keys)}  # the space: x::type may follow
    statement = lookup.statement
    text = statement.pieces[0].replace(":", r"\:")
    for name, piece in zip(statement.parameters, statement.pieces[1:], strict=True):
        text += numbers[name] + piece.replace(":", r"\:")
    answer = sa.text(f"{text}\n").columns(*(sa.column(name) for name in wanted)).subquery("answer")
    return sa.select(*(answer.c[name] for name in wanted))


class ManyKeys:
    """A query for many keys of a table: a join of the table with the keys, so that the database compares them with its
    own collation, padding and types. Each row has the number of its key.
    """

    def __init__(self, lookup: SqlLookup, dialect: sa.Dialect, types: Mapping[str, str]) -> None:
        """types: of the table's columns, on PostgreSQL. Raises ValueError for a key that such a query cannot have."""
        quote = dialect.identifier_preparer.quote
        width = range(len(lookup.keys))
        self._is_postgres = dialect.name == "postgresql"
        if self._is_postgres:
            arrays = [_array_of(lookup, name, types) for name in lookup.keys]
            marks = ", ".join(f"${number + 1}::{array}" for number, array in enumerate(arrays))
            names = [f"key_{number}" for number in width]
            self._lists = f"unnest({marks}) WITH ORDINALITY AS k({', '.join(names)}, ordinal)"
        else:
            names = [f"column{number + 2}" for number in width]
            self._row = ", ?" * len(lookup.keys)
        answers = ", ".join(f"t.{quote(column.name)}" for column in lookup.columns)
        on = " AND ".join(
            f"t.{quote(name)} = k.{parameter}" for name, parameter in zip(lookup.keys, names, strict=True)
        )
        self._head = f"SELECT k.{'ordinal - 1' if self._is_postgres else 'column1'}, {answers} FROM "  # noqa: S608
        self._tail = f" JOIN {_quoted_table(lookup, quote)} AS t ON {on} LIMIT "

    def query(self, keys: Sequence[Key]) -> tuple[str, tuple[Any, ...]]:
        """The statement and its parameters for the driver; values are never in the text."""
        if self._is_postgres:
            table = self._lists
            values: tuple[Any, ...] = tuple(list(column) for column in zip(*keys, strict=True))
        else:
            table = "(VALUES " + ", ".join(f"({number}{self._row})" for number in range(len(keys))) + ") AS k"
            values = tuple(value for key in keys for value in key)
        return f"{self._head}{table}{self._tail}{ROWS_PER_KEY * len(keys)}", values


def _array_of(lookup: SqlLookup, name: str, types: Mapping[str, str]) -> str:
    type_ = types.get(name)
    if type_ is None or type_.endswith("[]"):
        what = "has no such column" if type_ is None else f"is {type_}, and a key of many is one value"
        raise ValueError(f"keys.{name}: {lookup.table} {what}")
    return f"{type_}[]"


def _quoted_table(lookup: SqlLookup, quote: Callable[[str], str]) -> str:
    named = lookup.table_name
    return quote(named.name) if named.schema is None else f"{quote(named.schema)}.{quote(named.name)}"


async def key_types(connection: AsyncConnection, lookup: SqlLookup) -> dict[str, str]:
    """PostgreSQL's types of a table's columns; other databases need none."""
    if connection.dialect.name != "postgresql" or lookup.table is None:
        return {}
    table = _quoted_table(lookup, connection.dialect.identifier_preparer.quote)
    found = await connection.execute(TYPES_OF, {"table": table})
    return dict(iter(found.tuples()))


def fitted(lookup: SqlLookup, dialect: sa.Dialect, types: Mapping[str, str]) -> list[Callable[[Any], Any]]:
    """Converters of a key's values for correct comparisons. They raise ValueError for values that cannot be
    converted.
    """
    if dialect.name == "sqlite":
        return [_for_sqlite] * len(lookup.keys)
    return [_in_utc if types.get(name) == "timestamp without time zone" else _as_it_is for name in lookup.keys]


def _as_it_is(value: Any) -> Any:
    return value


def _in_utc(value: Any) -> Any:
    """A timestamp for a column without a zone, as UTC."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    return value


def _for_sqlite(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        cure = "give the key as the text that the table holds, by date_format(...)"
        raise ValueError(f"SQLite has no timestamps; {cure}")  # noqa: TRY004  # the sentence is what is caught
    return value.isoformat() if isinstance(value, dt.date) else value


def plain(value: Any) -> Any:
    """A driver's value as an answer's. Raises ValueError for an unsupported type."""
    if value is None or isinstance(value, PLAIN):
        return value
    if isinstance(value, TEXT):
        return str(value)
    if isinstance(value, memoryview):
        return bytes(value)
    raise ValueError(f"the database's {type(value).__name__} is no type of an answer; cast it to text in a select")
