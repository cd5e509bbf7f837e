"""Decides which keys may be compared with a database's column, so that only equal values match.

Databases and their drivers convert silently: SQLite takes the text "007" for the integer 7, asyncpg
a timestamp for its date. So a key whose type is not the column's is refused: before the run if its
type is known, else per row.
"""

import datetime as dt
import decimal
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from jobs.clients.sql.sql_statements import one_key, quoted_table
from jobs.declare.sql_lookup import SqlLookup

# converts a key's value for the driver; ValueError if it cannot be compared
Fit = Callable[[Any], Any]

# kinds of columns -> kinds of keys that are compared with them; the first is Spark's name
KEYS_OF = {
    "whole": ("bigint",),
    "exact": ("decimal", "bigint"),
    "single": ("float", "double", "bigint"),
    "double": ("double", "float", "bigint"),
    "text": ("string",),
    "bytes": ("binary",),
    "boolean": ("boolean",),
    "date": ("date",),
    "timestamp": ("timestamp",),
    "other": ("string",),  # as uuid, inet or an enumeration
}
# SQLite has five storage classes: dates are text there, and a boolean is 0 or 1
SQLITE_KEYS_OF = KEYS_OF | {
    "whole": ("bigint", "boolean", "double", "float"),
    "exact": ("double", "float", "bigint"),
    "double": ("double", "float", "bigint"),
    "text": ("string", "date"),
    "boolean": ("boolean", "bigint"),
    "date": ("string", "date"),
}
NOT_IN_SQLITE = {
    "timestamp": (
        "SQLite has no timestamps; give the key as the text that the table holds, by "
        "date_format(...)"
    ),
    "decimal": (
        "SQLite has no decimals; give the key as the number or text that the table holds, "
        "by cast(...)"
    ),
}
POSTGRES_KINDS = {
    **dict.fromkeys(("smallint", "integer", "bigint", "oid"), "whole"),
    "numeric": "exact",
    "real": "single",
    "double precision": "double",
    **dict.fromkeys(("text", "character varying", "bpchar", "name"), "text"),
    "bytea": "bytes",
    "boolean": "boolean",
    "date": "date",
    **dict.fromkeys(("timestamp without time zone", "timestamp with time zone"), "timestamp"),
}
# ends of the names of types for which asyncpg takes no text
NO_KEYS = ("time zone", "interval", '"bit"', "bit varying", '"char"', "range", "[]")
# parts of a declared type, in order of precedence: SQLite's rules of affinity, then names of its
# types
SQLITE_KINDS = (
    ("INT", "whole"), ("CHAR", "text"), ("CLOB", "text"), ("TEXT", "text"), ("REAL", "double"),
    ("FLOA", "double"), ("DOUB", "double"), ("BOOL", "boolean"), ("DATE", "date"), ("TIME", "date"),
    ("NUM", "exact"), ("DEC", "exact"),
)  # fmt: skip
TYPES_OF = sa.text(
    "WITH RECURSIVE types AS ("
    "SELECT attname, atttypid AS type FROM pg_attribute "
    "WHERE attrelid = to_regclass(:table) AND attnum > 0 AND NOT attisdropped "
    "UNION ALL SELECT attname, typbasetype FROM types JOIN pg_type ON oid = type "
    "WHERE typtype = 'd') "  # a domain; drivers and casts know only the type below it
    "SELECT attname, format_type(type, -1) FROM types JOIN pg_type ON oid = type "
    "WHERE typtype <> 'd'"
)  # without a length, "character" would mean one character
WITHOUT_ZONE, WITH_ZONE = "timestamp without time zone", "timestamp with time zone"
# types of a select's parameters for which asyncpg changes or refuses a value, as 1.4 to 1 for an
# integer, and to 1.399999999999999911... for a numeric: its name -> PostgreSQL's
PARAMETERS = {
    "text": "text", "varchar": "text", "bpchar": "bpchar",
    **dict.fromkeys(("int2", "int4", "int8", "oid"), "bigint"),
    "numeric": "numeric", "float4": "real", "float8": "double precision", "date": "date",
    "timestamp": WITHOUT_ZONE, "timestamptz": WITH_ZONE,
}  # fmt: skip
ENDLESS = (dt.date.min, dt.date.max)  # asyncpg sends them as -infinity and infinity


def kind_of_value(value: Any) -> str | None:
    """Return the Spark type of a key's value, as in KEYS_OF; None if the driver decides."""
    for kinds, name in (
        (bool, "boolean"), (int, "bigint"), (float, "double"), (decimal.Decimal, "decimal"),
        (str, "string"), (bytes, "binary"), (dt.datetime, "timestamp"), (dt.date, "date"),
    ):  # fmt: skip
        if isinstance(value, kinds):
            return name
    return None


class ColumnTypes:
    """The types of a table's columns, or of a select's keys, by name; may be empty."""

    def __init__(self, lookup: SqlLookup, dialect: str, types: Mapping[str, str]) -> None:
        self._lookup = lookup
        self._dialect = dialect
        self.types = types

    @classmethod
    async def read(cls, connection: AsyncConnection, lookup: SqlLookup) -> "ColumnTypes":
        """Read the types of the lookup's table, or on PostgreSQL of its select's keys."""
        dialect = connection.dialect.name
        types: dict[str, str] = {}
        if lookup.table is not None and dialect == "postgresql":
            table = quoted_table(lookup, connection.dialect.identifier_preparer.quote)
            found = await connection.execute(TYPES_OF, {"table": table})
            types = dict(iter(found.tuples()))
        elif dialect == "postgresql":
            types = await _types_of_select(connection, lookup)
        elif lookup.table is not None:
            named = lookup.table_name
            pragma = sa.text("SELECT name, type FROM pragma_table_xinfo(:table, :schema)")
            found = await connection.execute(
                pragma, {"table": named.name, "schema": named.schema or "main"}
            )
            types = dict(iter(found.tuples()))
        return cls(lookup, dialect, types)

    def _kind(self, column: str) -> str | None:
        name = self.types.get(column, "")
        if self._dialect == "postgresql":
            return POSTGRES_KINDS.get(name, "other") if name else None
        return next((kind for part, kind in SQLITE_KINDS if part in name.upper()), None)

    def refusal(self, column: str, key: str | None) -> str | None:
        """Return why a key of this Spark type cannot be compared; None if it can, or if unknown."""
        if self._dialect == "sqlite" and key in NOT_IN_SQLITE:
            return f"keys.{column}: {NOT_IN_SQLITE[key]}"
        kind = self._kind(column)
        if kind == "other" and self.types[column].endswith(NO_KEYS):
            return (
                f"keys.{column}: the column {column} of {self._lookup.table} is "
                f"{self.types[column]}, which the driver does not compare with text. "
                f"Write a select, such as WHERE CAST({column} AS text) = :{column}."
            )
        if kind is None or key is None or self._is_comparable(kind, key):
            return None
        if self._lookup.table is None:
            why = f"the select compares :{column} as {self.types[column]}"
        else:
            why = (
                f"the column {column} of {self._lookup.table} is {self.types[column]}; they are "
                "not compared, because a database would match values that differ"
            )
        name = self._kinds_of_keys[kind][0].replace("decimal", "decimal(38, 10)")
        return (
            f"keys.{column}: the key is {key}, and {why}. "
            f'Write "cast({self._lookup.keys[column]} as {name})".'
        )

    def _is_comparable(self, kind: str, key: str) -> bool:
        # the database compares: its driver sends a text as it is, and reads a text for a numeric
        if self._lookup.table is None:
            return kind == "exact" or (kind == "text") == (key == "string")
        return key in self._kinds_of_keys[kind]

    @property
    def _kinds_of_keys(self) -> Mapping[str, tuple[str, ...]]:
        return SQLITE_KEYS_OF if self._dialect == "sqlite" else KEYS_OF

    def fits(self) -> list[Fit]:
        """Return a converter for each part of the key."""
        return [self._fit(column) for column in self._lookup.keys]

    def _fit(self, column: str) -> Fit:
        convert: Fit = _for_sqlite if self._dialect == "sqlite" else _as_it_is
        if self._dialect == "postgresql":
            convert = self._for_postgres(column)

        def fit(value: Any) -> Any:
            if isinstance(value, float) and math.isnan(value):
                raise ValueError(f"keys.{column}: NaN equals no value, so it cannot be a key")
            if refused := self.refusal(column, kind_of_value(value)):
                raise ValueError(refused)
            return convert(value)

        return fit

    def _for_postgres(self, column: str) -> Fit:
        zone = {WITHOUT_ZONE: _in_utc_without_zone, WITH_ZONE: _in_utc}.get(
            self.types.get(column, "")
        )
        if zone is not None:
            return zone
        kinds = {
            "whole": _whole, "exact": _exact, "single": _single, "double": _double,
            "date": _finite_date,
        }  # fmt: skip
        return kinds.get(self._kind(column) or "", _as_it_is)


async def _types_of_select(connection: AsyncConnection, lookup: SqlLookup) -> dict[str, str]:
    compiled: Any = one_key(lookup, connection.dialect.name).compile(dialect=connection.dialect)
    driver: Any = (await connection.get_raw_connection()).driver_connection
    prepared = await driver.prepare(str(compiled), name="")
    keys = {f"key_{number}": name for number, name in enumerate(lookup.keys)}
    pairs = zip(compiled.positiontup, prepared.get_parameters(), strict=True)
    return {
        keys[name]: PARAMETERS[type_.name]
        for name, type_ in pairs
        if name in keys and type_.name in PARAMETERS
    }


def _as_it_is(value: Any) -> Any:
    return value


def _for_sqlite(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.date) else value


def _whole(value: Any) -> Any:
    is_number = isinstance(value, float | decimal.Decimal)
    if isinstance(value, bool) or (
        is_number and not (math.isfinite(value) and value == int(value))
    ):
        raise ValueError(
            "the key is not a whole number, and the driver would make it one; write "
            "CAST(:name AS numeric) in the select"
        )
    return value


def _exact(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("the key is not a number, and the driver would make it one")  # noqa: TRY004
    return decimal.Decimal(repr(value)) if isinstance(value, float) else value


def _double(value: Any) -> Any:
    is_digits = isinstance(value, decimal.Decimal)
    if is_digits and decimal.Decimal(repr(float(value))) == value:  # no double is 0.1
        return value
    if (is_digits or isinstance(value, int)) and float(value) != value:
        raise ValueError("the key is not a number that the column, a double, can hold")
    return value


def _single(value: Any) -> Any:
    try:
        (held,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        held = None
    if held != value:
        raise ValueError("the key is not a number that the column, a real, can hold")
    return value


def _finite_date(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        raise ValueError(  # noqa: TRY004  # an error of the row, as the others
            "the key is a timestamp, which the driver would cut to its date; write "
            "CAST(:name AS timestamp) in the select"
        )
    if value in ENDLESS:
        raise ValueError("PostgreSQL's driver takes this date for infinity; it cannot be a key")
    return value


def _in_utc(value: Any) -> Any:
    """Return a timestamp, or a date's midnight, in UTC; without a zone it is UTC already."""
    if not isinstance(value, dt.date):
        return value
    if not isinstance(value, dt.datetime):  # the driver would take midnight in the machine's zone
        value = dt.datetime.combine(value, dt.time())
    value = value.astimezone(dt.UTC) if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
    if value.replace(tzinfo=None) in (dt.datetime.min, dt.datetime.max):  # noqa: DTZ901
        raise ValueError("PostgreSQL's driver takes this time for infinity; it cannot be a key")
    return value


def _in_utc_without_zone(value: Any) -> Any:
    return _in_utc(value).replace(tzinfo=None) if isinstance(value, dt.date) else value
