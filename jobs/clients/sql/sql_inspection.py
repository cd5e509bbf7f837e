"""Checks a database against a SqlLookup before Spark starts, without a call for a row."""

import asyncio
import warnings
from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from jobs.clients.sql.sql_engine import (
    dispose,
    driver_message,
    engine_for,
    fitted_engine,
    may_recover,
    missing_file,
    without_password,
)
from jobs.clients.sql.sql_keys import ColumnTypes
from jobs.clients.sql.sql_statements import one_key
from jobs.declare.sql_lookup import SqlLookup, shown_address
from jobs.errors import DeclarationError, RunStopped

INSPECTED_WITHIN = 30.0  # s; a query waits for a lock, as of ALTER TABLE, without an end


async def inspect(lookup: SqlLookup, key_types: Mapping[str, str | None] | None = None) -> None:
    """Check that the database accepts the login, has the table or select, and can compare the keys.

    Args:
        lookup: The lookup.
        key_types: Spark's types of the keys by name, if known here.

    Raises:
        DeclarationError: The database does not fit the lookup; without the password.
        RunStopped: The server is down.
    """
    engine = engine_for(lookup)
    try:
        _require_file(lookup, engine)
        try:
            async with asyncio.timeout(INSPECTED_WITHIN):
                engine = await fitted_engine(engine, lookup)
                async with engine.connect() as connection:
                    if lookup.table is not None:
                        await _find_columns(lookup, connection, engine)
                    await _try_query(lookup, connection, engine)
                    await _compare_types(lookup, connection, key_types or {})
        except DeclarationError:
            raise
        except Exception as error:
            shown = shown_address(engine.url)
            message = without_password(driver_message(error), engine)
            if isinstance(error, TimeoutError):
                message = f"no answer within {INSPECTED_WITHIN:.0f} s; a table may be locked"
            if may_recover(error, engine):
                raise RunStopped(
                    f"service {lookup.service_name}: {shown} cannot be reached: {message}."
                ) from error
            raise DeclarationError(
                f"lookup {lookup.name}: {shown} cannot be reached: {message}."
            ) from error
    finally:
        await dispose(engine)


def _require_file(lookup: SqlLookup, engine: AsyncEngine) -> None:
    """Check that the file exists, because SQLite would create an empty file."""
    if missing := missing_file(engine.url):
        shown = shown_address(engine.url)
        raise DeclarationError(
            f"lookup {lookup.name}: {shown}: there is no file {missing}. Nothing was called."
        )


async def _try_query(lookup: SqlLookup, connection: AsyncConnection, engine: AsyncEngine) -> None:
    """Run the query with null keys and no rows: the database validates it, and the privileges."""
    nothing = {f"key_{number}": None for number in range(len(lookup.keys))}
    try:
        await connection.execute(one_key(lookup, engine.dialect.name).limit(0), nothing)
    except sa.exc.DBAPIError as error:
        if may_recover(error, engine):
            raise
        message = without_password(driver_message(error), engine)
        raise DeclarationError(
            f"lookup {lookup.name}: {lookup.asked}: the database refuses the query: {message}."
        ) from error


async def _compare_types(
    lookup: SqlLookup, connection: AsyncConnection, keys: Mapping[str, str | None]
) -> None:
    """Raise DeclarationError for keys that the run would refuse in every row."""
    types = await ColumnTypes.read(connection, lookup)
    refused = (types.refusal(name, keys.get(name)) for name in lookup.keys)
    DeclarationError.raise_for(filter(None, refused), f"lookup {lookup.name}")


async def _find_columns(
    lookup: SqlLookup, connection: AsyncConnection, engine: AsyncEngine
) -> None:
    named = lookup.table_name

    def find(connection: sa.Connection) -> list[str] | None:
        inspector = sa.inspect(connection)
        if not inspector.has_table(named.name, schema=named.schema):
            return None
        with warnings.catch_warnings():
            # about unknown types, such as those of PostGIS
            warnings.simplefilter("ignore", sa.exc.SAWarning)
            return [
                column["name"] for column in inspector.get_columns(named.name, schema=named.schema)
            ]

    columns = await connection.run_sync(find)
    if columns is None:
        raise DeclarationError(
            f"lookup {lookup.name}: {shown_address(engine.url)} has no table {lookup.table!r}."
        )
    for wanted in (*lookup.keys, *(column.name for column in lookup.columns)):
        if wanted not in columns:
            raise DeclarationError(
                f"lookup {lookup.name}: no column {wanted!r} in table {lookup.table}. It has: "
                f"{', '.join(columns) or 'none'}."
            )
