"""Connections to a database, and the translation of SQLAlchemy's and the drivers' errors."""

import asyncio
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from jobs.clients.client import CallFailed
from jobs.declare.sql_lookup import SqlLookup, shown_address
from jobs.declare.values.env import resolve
from jobs.errors import AccessRefused, DeclarationError

ABOUT_US = ("28", "3D", "42501")  # SQLSTATE: login refused, no such database, no privilege
# connection, rollback of a deadlock, out of resources, busy, cancelled by an operator or a time limit, system
PASSING = ("08", "40", "53", "55", "57", "58")
MISFIT = "invalid input for query argument $"  # asyncpg: then the number, the value, and why
# addresses that SQLAlchemy rejects; the last one has a port that is not a number
USELESS = (
    sa.exc.ArgumentError, sa.exc.InvalidRequestError, sa.exc.NoSuchModuleError, ModuleNotFoundError, ValueError,
)  # fmt: skip
INTERRUPTED_EVERY = 0.02  # s
LOCKED = 5.0  # s that SQLite waits for a lock itself
SQLITE_PASSING = (5, 6, 10, 14)  # busy, locked, I/O, cannot open: transient


def engine_for(lookup: SqlLookup, connections: int | None = None, *, is_pooled: bool = False) -> AsyncEngine:
    """A pool of this many connections, none open yet. Raises DeclarationError for an unusable address.

    is_pooled: A pooler stands before PostgreSQL, so that each query is a transaction: only then do the messages of a
    query reach the same server.
    """
    bound = {} if connections is None else {"pool_size": connections, "max_overflow": 0}
    # reads need no transaction; without one a call is one round trip, and returning a connection none
    alone: dict[str, Any] = {} if is_pooled else {"pool_reset_on_return": None, "isolation_level": "AUTOCOMMIT"}
    try:
        url = sa.make_url(resolve(lookup.url))
        arguments = _waiting(url, lookup) | _statements(url, is_pooled=is_pooled)
        return create_async_engine(url, **bound, **alone, connect_args=arguments)
    except USELESS as error:
        why = type(error).__name__  # the message may contain the address, and so a password
        raise DeclarationError(
            f"lookup {lookup.name}: url is not one that SQLAlchemy can use with asyncio ({why}). "
            "Write it as sqlite+aiosqlite:///planes.db."
        ) from None


def _waiting(url: sa.URL, lookup: SqlLookup) -> dict[str, Any]:
    """SQLite's thread waits for a lock despite a cancellation, and closing waits for the thread: so half an attempt."""
    limit = lookup.attempt_timeout or lookup.timeout
    if url.get_backend_name() != "sqlite" or limit is None or "timeout" in url.query:
        return {}
    return {"timeout": min(limit / 2, LOCKED)}


def _statements(url: sa.URL, *, is_pooled: bool, unique: Callable[[], UUID] = uuid4) -> dict[str, Any]:
    """How asyncpg names the statements that it prepares: never as another process does, whose statement a pooler might
    execute. Behind a pooler none is kept, as a server's memory would fill with them.
    """
    if url.get_driver_name() != "asyncpg":
        return {}
    if is_pooled:
        return {
            "statement_cache_size": 0,
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": str,  # without a name
        }
    process, numbers = unique().hex, itertools.count()
    return {"statement_cache_size": 0, "prepared_statement_name_func": lambda: f"tidegate_{process}_{next(numbers)}"}


async def fitted_engine(engine: AsyncEngine, lookup: SqlLookup, connections: int | None = None) -> AsyncEngine:
    """This pool, or another in its place if a pooler stands before PostgreSQL. Raises what a connection raises."""
    if engine.dialect.driver != "asyncpg" or not await _is_pooled(engine):
        return engine
    await engine.dispose()
    return engine_for(lookup, connections, is_pooled=True)


async def _is_pooled(engine: AsyncEngine) -> bool:
    """Whether another process answers than the one that the login named."""
    async with engine.connect() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        return bool(driver.get_server_pid() != await driver.fetchval("SELECT pg_backend_pid()"))


def missing_file(url: sa.URL) -> str:
    """SQLite's file if it does not exist here, where SQLite would create an empty one; else empty."""
    is_file = url.get_backend_name() == "sqlite" and url.database and "uri" not in url.query
    return str(url.database) if is_file and not os.path.exists(str(url.database)) else ""  # noqa: PTH110


def require_file_here(lookup: SqlLookup, engine: AsyncEngine) -> None:
    """Raise DeclarationError if a relative path names no file where the queries run, which would look like an outage:
    each executor has a folder of its own. A whole path may be one of a disk that comes back.
    """
    missing = missing_file(engine.url)
    if missing and not os.path.isabs(missing):  # noqa: PTH117
        raise DeclarationError(
            f"lookup {lookup.name}: {shown_address(engine.url)}: there is no file {missing} where its queries run, in "
            f"{os.getcwd()} on {socket.gethostname()}; write its whole path, as sqlite+aiosqlite:////data/planes.db."  # noqa: PTH109
        )


async def left_at_once(connection: AsyncConnection, ask: Callable[[AsyncConnection], Any]) -> Any:
    """The result of `ask`. After a cancellation PostgreSQL stops the query itself; SQLite's thread would continue and
    hold its connection, so it is interrupted.
    """
    if connection.dialect.name != "sqlite":
        return await ask(connection)
    raw = (await connection.get_raw_connection()).driver_connection
    assert raw is not None
    asking = asyncio.ensure_future(ask(connection))
    try:
        return await asyncio.shield(asking)
    finally:
        while not asking.done():
            await raw.interrupt()  # it has no effect on a query that has not begun, so repeat it
            with suppress(asyncio.CancelledError):
                await asyncio.wait([asking], timeout=INTERRUPTED_EVERY)
        if not asking.cancelled():
            asking.exception()  # retrieved, because no caller will


async def dispose(engine: AsyncEngine, clock: Callable[[], float] = time.monotonic) -> None:
    """Close the pool and wait for aiosqlite's threads, which print a traceback if they find their loop closed."""
    await engine.dispose()
    last = clock() + 1.0
    while any("_connection_worker_thread" in thread.name for thread in threading.enumerate()):
        if clock() > last:  # another engine of this process is working
            return
        await asyncio.sleep(0.002)


def failure(error: Exception, lookup: SqlLookup, engine: AsyncEngine) -> CallFailed | AccessRefused:
    """Translate an error of the database, its driver or SQLAlchemy, without the password."""
    state = sql_state(error)
    message = without_password(one_line(error), engine)
    if state is not None and state.startswith(ABOUT_US):
        return AccessRefused(f"{lookup.service_name} at {shown_address(engine.url)} denies access: {message}.")
    return CallFailed(message, passing=may_pass(error))


def is_about_a_value(error: Exception) -> bool:
    """Whether one key of many may be at fault: a value that the driver or the database rejects."""
    state = sql_state(error)
    return state.startswith("22") if state is not None else not isinstance(error, OperationalError | OSError)


def sql_state(error: Exception) -> str | None:
    """The SQLSTATE, if the database sent one; also of asyncpg's own errors."""
    original = getattr(error, "orig", None) or error
    state = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    return state if isinstance(state, str) else None


def may_pass(error: Exception) -> bool:
    state = sql_state(error)
    if isinstance(error, OSError) or getattr(error, "connection_invalidated", False):
        return True
    if state is not None:
        return state.startswith(PASSING)
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    if isinstance(code, int):
        return code & 0xFF in SQLITE_PASSING  # the low byte is the primary code
    # asyncpg's InterfaceError (not SQLAlchemy's): the connection was closed during a call
    return isinstance(error, OperationalError | InterfaceError) or type(error).__name__ == "InterfaceError"


def one_line(error: Exception) -> str:
    """A driver's message without the statement, its parameters (which are data) and SQLAlchemy's link."""
    original = getattr(error, "orig", None) or error
    text = str(original)
    if text.startswith("<class ") and ">: " in text:  # SQLAlchemy prefixes asyncpg's class
        text = text.partition(">: ")[2]
    if text.startswith(MISFIT):  # without the value, which is data
        return f"key {text[len(MISFIT) :].partition(':')[0]} does not fit: {text.rpartition(' (')[2].rstrip(')')}"
    return text.splitlines()[0] if text else type(original).__name__


def without_password(text: str, engine: AsyncEngine) -> str:
    for password in (engine.url.password, engine.url.query.get("password")):
        text = text.replace(str(password), "***") if password else text
    return text
