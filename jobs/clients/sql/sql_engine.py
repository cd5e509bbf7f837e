"""Connections to a database, and the translation of SQLAlchemy's and the drivers' errors."""

import asyncio
import datetime as dt
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

import sqlalchemy as sa
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from jobs.clients.client import CallFailed, Throttled
from jobs.declare.answers.json_text import read_json
from jobs.declare.finding.extras import require_extra
from jobs.declare.sql_lookup import SqlLookup, require_known_database, shown_address, unusable_url
from jobs.declare.values.env import Env, read_from, resolve
from jobs.errors import AccessRefused, DeclarationError

ABOUT_US = ("28", "3D", "42501")  # SQLSTATE: login refused, no such database, no privilege
# connection, rollback of a deadlock, out of resources, busy, cancelled by an operator or a time
# limit, system
PASSING = ("08", "40", "53", "55", "57", "58")
# SQLSTATEs of a server that takes no connection yet, by the status of HTTP with this meaning: too
# many connections; it ends, had a crash, or starts
WAITS = {"53300": 429, **dict.fromkeys(("57P01", "57P02", "57P03"), 503)}
PAUSE = 1.0  # s; then it is asked again
VALUES = ("22", "42601")  # data; syntax, which types of extensions say of their texts
# asyncpg's; the number, the value and the reason follow
MISFIT = "invalid input for query argument $"
# SQLAlchemy's class: the statement was prepared before its table changed; the next try prepares it
VOID_PLAN = "InvalidCachedStatementError"
# asyncpg's classes (not SQLAlchemy's): the connection was closed during a call
CLOSED_DURING = ("InterfaceError", "InternalClientError")
# words of an address that SQLAlchemy hands to asyncpg.connect
ARGUMENTS = (
    "host", "port", "user", "password", "database", "passfile", "ssl", "target_session_attrs",
    "command_timeout", "statement_cache_size", "prepared_statement_cache_size",
)  # fmt: skip
INTERRUPTED_EVERY = 0.02  # s
LOCKED = 5.0  # s; SQLite's longest wait for a lock
UNDECODABLE = "Could not decode to UTF-8"  # sqlite3's message, for want of a code
SQLITE_LOCKED = (5, 6)  # busy, locked: another program writes
SQLITE_PASSING = (*SQLITE_LOCKED, 10, 14)  # and I/O, cannot open: transient


def engine_for(
    lookup: SqlLookup, connections: int | None = None, *, is_pooled: bool = False
) -> AsyncEngine:
    """Return a pool of this many connections, none open yet.

    Args:
        lookup: The lookup.
        connections: Highest number of connections; None: SQLAlchemy's default.
        is_pooled: Whether a pooler is in front of PostgreSQL. Each query is then a transaction,
            because only the messages of a transaction reach the same server.

    Raises:
        DeclarationError: The address is unusable, or its database unknown.
    """
    bound = {} if connections is None else {"pool_size": connections, "max_overflow": 0}
    # reads need no transaction; without it a call is a single round trip, and returning a
    # connection needs none
    alone: dict[str, Any] = (
        {} if is_pooled else {"pool_reset_on_return": None, "isolation_level": "AUTOCOMMIT"}
    )
    try:
        url, arguments = _for_asyncpg(sa.make_url(resolve(lookup.url)))
        require_known_database(lookup.name, url.drivername)
        arguments |= _lock_wait(url, lookup) | _statement_names(url, is_pooled=is_pooled)
        if url.get_backend_name() == "postgresql":
            require_extra("postgres", f"lookup {lookup.name}: url, {url.drivername},")
            alone["json_deserializer"] = read_json  # by default numbers of JSON lose digits
        engine = create_async_engine(url, **bound, **alone, connect_args=arguments)
    except (sa.exc.ArgumentError, ValueError) as error:  # ValueError: the port is not a number
        raise unusable_url(lookup.name, error) from None
    if engine.dialect.driver == "asyncpg":
        sa.event.listen(engine.sync_engine, "connect", _read_whole_offsets)
    return engine


def _read_whole_offsets(connection: Any, _record: object) -> None:
    """Have a `timetz` sent as text: of a binary one asyncpg drops the seconds of the offset."""
    connection.run_async(
        lambda driver: driver.set_type_codec(
            "timetz", schema="pg_catalog", encoder=str, decoder=dt.time.fromisoformat
        )
    )


def _for_asyncpg(url: sa.URL) -> tuple[sa.URL, dict[str, Any]]:
    """Return an address of PostgreSQL as SQLAlchemy needs it, and asyncpg's option with the words
    that asyncpg reads in an address only, such as sslmode. Others it gives to the server, as
    application_name.
    """
    if url.drivername in ("postgresql", "postgres"):  # as in the addresses that providers show
        url = url.set(drivername="postgresql+asyncpg")
    words = {name: url.query[name] for name in url.query if name not in ARGUMENTS}
    if not words or url.get_driver_name() != "asyncpg":
        return url, {}
    dsn = f"postgresql://?{urlencode(words, doseq=True)}"
    return url.difference_update_query(words), {"dsn": dsn}


def _lock_wait(url: sa.URL, lookup: SqlLookup) -> dict[str, Any]:
    """Limit SQLite's wait for a lock to half an attempt: no cancellation ends its thread."""
    limit = lookup.attempt_timeout or lookup.timeout
    if url.get_backend_name() != "sqlite" or limit is None or "timeout" in url.query:
        return {}
    return {"timeout": min(limit / 2, LOCKED)}


def _statement_names(
    url: sa.URL, *, is_pooled: bool, unique: Callable[[], UUID] = uuid4
) -> dict[str, Any]:
    """Return asyncpg's options for the names of prepared statements.

    No two processes use the same name, because a pooler might execute the other process's
    statement. Behind a pooler no statement is kept, because it would fill a server's memory.
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
    return {
        "statement_cache_size": 0,
        "prepared_statement_name_func": lambda: f"tidegate_{process}_{next(numbers)}",
    }


async def fitted_engine(
    engine: AsyncEngine, lookup: SqlLookup, connections: int | None = None
) -> AsyncEngine:
    """Return this pool, or a new pool if a pooler is in front of PostgreSQL."""
    if engine.dialect.driver != "asyncpg" or not await _is_pooled(engine):
        return engine
    await engine.dispose()
    return engine_for(lookup, connections, is_pooled=True)


async def _is_pooled(engine: AsyncEngine) -> bool:
    """Return whether the answering server process is not the process that the login named."""
    async with engine.connect() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        return bool(driver.get_server_pid() != await driver.fetchval("SELECT pg_backend_pid()"))


def missing_file(url: sa.URL) -> str:
    """Return SQLite's file if it is missing, as SQLite would create it; else an empty text."""
    is_file = url.get_backend_name() == "sqlite" and url.database and "uri" not in url.query
    return str(url.database) if is_file and not os.path.exists(str(url.database)) else ""  # noqa: PTH110


def require_file_here(lookup: SqlLookup, engine: AsyncEngine) -> None:
    """Raise DeclarationError if a relative path names no file where the queries run.

    Each executor has another working folder, and a missing file would look like an outage. An
    absolute path may be on a disk that comes back.
    """
    missing = missing_file(engine.url)
    if missing and not os.path.isabs(missing):  # noqa: PTH117
        raise DeclarationError(
            f"lookup {lookup.name}: {shown_address(engine.url)}: there is no file {missing} where "
            "its queries run, in "
            f"{os.getcwd()} on {socket.gethostname()}; write its whole path, as sqlite+aiosqlite:////data/planes.db."  # noqa: PTH109
        )


async def interruptibly(connection: AsyncConnection, ask: Callable[[AsyncConnection], Any]) -> Any:
    """Return the result of `ask`.

    After a cancellation, PostgreSQL stops the query itself. SQLite's thread would continue and hold
    its connection, so it is interrupted.
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
            await raw.interrupt()  # no effect on a query that has not begun, so repeat it
            with suppress(asyncio.CancelledError):
                await asyncio.wait([asking], timeout=INTERRUPTED_EVERY)
        if not asking.cancelled():
            asking.exception()  # retrieved, because no caller will


async def dispose(engine: AsyncEngine, clock: Callable[[], float] = time.monotonic) -> None:
    """Close the pool and wait for aiosqlite's threads, which otherwise print a traceback."""
    await engine.dispose()
    last = clock() + 1.0
    while any("_connection_worker_thread" in thread.name for thread in threading.enumerate()):
        if clock() > last:  # another engine of this process is working
            return
        await asyncio.sleep(0.002)


def failure(
    error: Exception, lookup: SqlLookup, engine: AsyncEngine
) -> CallFailed | Throttled | AccessRefused:
    """Translate an error of the database, its driver or SQLAlchemy, without the password."""
    state = sql_state(error)
    message = without_password(driver_message(error), engine)
    if state is not None and state.startswith(ABOUT_US):
        denied = f"{lookup.service_name} at {shown_address(engine.url)} denies access"
        secrets = read_from([lookup.url] if isinstance(lookup.url, Env) else ())
        return AccessRefused(
            f"{denied}: {message}.{secrets}", f"{denied}: SQLSTATE {state}.{secrets}"
        )
    if state in WAITS:
        return Throttled(message, PAUSE, WAITS[state])
    return CallFailed(message, passing=may_pass(error))


def is_about_a_value(error: Exception) -> bool:
    """Return whether a single key may be at fault: the driver or the database rejects a value."""
    state = sql_state(error)
    if state is not None:
        return state.startswith(VALUES)
    return _is_undecodable(error) or not isinstance(error, OperationalError | OSError)


def _is_undecodable(error: Exception) -> bool:
    """Return whether SQLite holds a text that is not UTF-8, and Python's driver refuses it."""
    return str(getattr(error, "orig", "")).startswith(UNDECODABLE)


def sql_state(error: Exception) -> str | None:
    """Return the SQLSTATE, if the database sent it; also for errors that asyncpg raises itself."""
    original = getattr(error, "orig", None) or error
    state = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    return state if isinstance(state, str) else None


def may_pass(error: Exception) -> bool:
    """Return whether an error of a database may pass, so that another attempt may succeed."""
    state = sql_state(error)
    is_void = type(getattr(error, "orig", None)).__name__ == VOID_PLAN
    if is_void or isinstance(error, OSError) or getattr(error, "connection_invalidated", False):
        return True
    if state is not None:
        return state.startswith(PASSING)
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    if isinstance(code, int):
        return code & 0xFF in SQLITE_PASSING  # the low byte is the primary code
    if _is_undecodable(error):
        return False
    return (
        isinstance(error, OperationalError | InterfaceError)
        or type(error).__name__ in CLOSED_DURING
    )


def may_recover(error: Exception, engine: AsyncEngine) -> bool:
    """Return whether a first connection may work later; a missing file of SQLite stays missing."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    is_locked = isinstance(code, int) and code & 0xFF in SQLITE_LOCKED
    return is_locked or (may_pass(error) and engine.url.get_backend_name() != "sqlite")


def driver_message(error: Exception) -> str:
    """Return a driver's message without statement, parameters (data) and SQLAlchemy's link."""
    original = getattr(error, "orig", None) or error
    text = str(original)
    if text.startswith("<class ") and ">: " in text:  # SQLAlchemy prefixes asyncpg's class
        text = text.partition(">: ")[2]
    if text.startswith(MISFIT):  # without the value, which is data
        return (
            f"key {text[len(MISFIT) :].partition(':')[0]} does not fit: "
            f"{text.rpartition(' (')[2].rstrip(')')}"
        )
    if isinstance(original, FileNotFoundError):  # of OpenSSL or a socket, which name no file
        text = f"{text}: a file that the address names, as sslrootcert, or the folder of its socket"
    return text.splitlines()[0] if text else type(original).__name__


def without_password(text: str, engine: AsyncEngine) -> str:
    for password in (engine.url.password, engine.url.query.get("password")):
        text = text.replace(str(password), "***") if password else text
    return text
