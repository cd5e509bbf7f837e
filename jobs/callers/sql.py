"""SqlLookup on an executor: SQLAlchemy's asyncio engine in, rows or our own errors out."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from jobs.callers.caller import CallFailed, Key
from jobs.environment import resolve
from jobs.lookups.answer_types import cast_all

if TYPE_CHECKING:
    from jobs.lookups import SqlLookup


class SqlCaller:
    """One pool of connections for a partition, as many as it may have calls in flight."""

    def __init__(self, lookup: SqlLookup, share: int) -> None:
        self._lookup = lookup
        self._share = share
        self._engine: AsyncEngine | None = None
        self._columns = lookup.columns
        self._names = tuple(lookup.keys)
        table = sa.table(lookup.table, *(sa.column(name) for name in {*self._names, *(c.name for c in self._columns)}))
        self._select = (
            sa.select(*(table.c[column.name] for column in self._columns))
            .where(*(table.c[name] == sa.bindparam(f"key_{name}") for name in self._names))
            .limit(2)
        )

    async def open(self) -> None:
        # reads need no transaction: without one a call is one round trip, and giving a connection back is none
        self._engine = create_async_engine(
            resolve(self._lookup.url),
            pool_size=self._share,
            max_overflow=0,
            pool_reset_on_return=None,
            isolation_level="AUTOCOMMIT",
        )

    async def close(self) -> None:
        if self._engine is not None:
            await dispose(self._engine)

    async def call(self, key: Key) -> Any | None:
        assert self._engine is not None
        parameters = {f"key_{name}": value for name, value in zip(self._names, key, strict=True)}
        try:
            async with self._engine.connect() as connection:
                rows = (await connection.execute(self._select, parameters)).fetchall()
        except (OperationalError, InterfaceError, OSError) as error:
            raise CallFailed(one_line(error), passing=True) from error
        except SQLAlchemyError as error:
            raise CallFailed(one_line(error), passing=False) from error
        if len(rows) > 1:
            raise CallFailed(
                f"{self._lookup.table} has two or more rows for this key; a lookup gives one", passing=False
            )
        return rows[0] if rows else None

    def columns(self, answer: Any) -> tuple[Any, ...]:
        typed = zip(answer, self._columns, strict=True)
        values = (as_boolean(value) if column.spark_type == "BOOLEAN" else value for value, column in typed)
        return cast_all(self._columns, values)

    def fallback(self, key: Key) -> None:  # noqa: ARG002  # a table has nothing to fall back on
        return None


async def dispose(engine: AsyncEngine) -> None:
    """Close the pool, and let aiosqlite's threads end: one that finds its loop closed prints a traceback."""
    await engine.dispose()
    last = time.monotonic() + 1.0
    while any("_connection_worker_thread" in thread.name for thread in threading.enumerate()):
        if time.monotonic() > last:  # another engine of this process, at work
            return
        await asyncio.sleep(0.002)


def as_boolean(value: Any) -> Any:
    """SQLite and MySQL have no BOOLEAN and store 0 and 1."""
    return bool(value) if value in (0, 1) else value


def one_line(error: Exception) -> str:
    """A driver's message without the statement, its parameters (they are data) and the link that SQLAlchemy adds."""
    original = getattr(error, "orig", None) or error
    return str(original).splitlines()[0] if str(original) else type(original).__name__
