"""A store in PostgreSQL: a small table with a row per service; NOTIFY tells of closed gates.

A step reads a row and writes it unless it changed meanwhile. It holds no lock in between, so a run
that is stopped there does not block others.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from jobs.limits.lease_book import LeaseBook
from jobs.limits.store import StoreLost, book_in

if TYPE_CHECKING:
    import asyncpg

Found = TypeVar("Found")
CHANNEL = "tidegate_gates"
# key of an advisory lock, because two runs that create the schema at once would collide
SCHEMA_LOCK = 7_414_733
SCHEMA = """
CREATE SCHEMA IF NOT EXISTS tidegate;
CREATE TABLE IF NOT EXISTS tidegate.limit_books
    (service text PRIMARY KEY, version bigint NOT NULL, book text NOT NULL);
"""
TABLE = "tidegate.limit_books"
FIND = "SELECT to_regclass('tidegate.limit_books')"
TIME = "extract(epoch FROM clock_timestamp())::float8 AS now"
SELECT = f"""
SELECT {TIME}, version, book
FROM (SELECT) AS nothing LEFT JOIN tidegate.limit_books ON service = $1
"""  # noqa: S608  # a constant
UPDATE = """
INSERT INTO tidegate.limit_books (service, version, book) VALUES ($1, 1, $3)
ON CONFLICT (service) DO UPDATE SET version = limit_books.version + 1, book = $3
WHERE limit_books.version = $2
RETURNING version
"""
NO_CHANGE = """
INSERT INTO tidegate.limit_books (service, version, book) SELECT '', 0, '' WHERE false
ON CONFLICT (service) DO UPDATE SET version = limit_books.version, book = limit_books.book
"""
RETRY_WITHIN = 0.01  # s; the longest wait before a retry after a concurrent change


class PostgresStore:
    """A LimitStore in a PostgreSQL database, which uses the clock of the server.

    Args:
        url: The database.
        patience: Longest wait for an answer in seconds.
    """

    def __init__(self, url: str, *, patience: float) -> None:
        self._url = url
        self._patience = patience
        self._connection: asyncpg.Connection | None = None
        self._random = random.Random()
        self._one_at_a_time = asyncio.Lock()  # a connection serves one statement at a time

    async def step(self, service: str, decide: Callable[[LeaseBook, float], Found]) -> Found:

        async def do(connection: asyncpg.Connection) -> Found:
            while True:
                row = await connection.fetchrow(SELECT, service)
                book = book_in(row["book"], service, TABLE)
                found = decide(book, row["now"])
                if await connection.fetchval(
                    UPDATE, service, row["version"], json.dumps(book.state())
                ):
                    return found
                await asyncio.sleep(self._random.uniform(0, RETRY_WITHIN))

        return await self._on_connection(do)

    async def books(self) -> tuple[dict[str, LeaseBook], float]:

        async def do(connection: asyncpg.Connection) -> tuple[dict[str, LeaseBook], float]:
            rows = await connection.fetch(
                "SELECT service, book FROM tidegate.limit_books ORDER BY service"
            )
            now = await connection.fetchval(f"SELECT {TIME}")
            return {
                row["service"]: book_in(row["book"], row["service"], TABLE) for row in rows
            }, now

        return await self._on_connection(do)

    async def changes(self) -> AsyncIterator[str]:
        """See LimitStore. Uses a separate connection and raises StoreLost when it ends."""
        heard: asyncio.Queue[str | None] = asyncio.Queue()
        connection = await self._connect()
        try:
            connection.add_termination_listener(lambda _connection: heard.put_nowait(None))
            await connection.add_listener(
                CHANNEL, lambda _c, _pid, _channel, payload: heard.put_nowait(payload)
            )
            while (service := await heard.get()) is not None:
                yield service
        finally:
            connection.terminate()
        raise StoreLost("the connection to the store of the limits ended")

    async def tell(self, service: str) -> None:
        await self._on_connection(
            lambda connection: connection.execute("SELECT pg_notify($1, $2)", CHANNEL, service)
        )

    async def check(self) -> None:
        """See LimitStore. A statement that changes no row needs the same rights."""
        await self._on_connection(lambda connection: connection.execute(NO_CHANGE))

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _on_connection(self, do: Callable[[asyncpg.Connection], Awaitable[Found]]) -> Found:
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(self._patience):
                    if self._connection is None or self._connection.is_closed():
                        self._connection = await self._connect()
                    return await do(self._connection)
            except _failures() as error:
                await self.close()
                raise _lost("does not answer", error) from error

    async def _connect(self) -> asyncpg.Connection:
        import asyncpg

        try:
            async with asyncio.timeout(self._patience):
                connection = await asyncpg.connect(self._url)
                try:
                    await _require_table(connection)
                except BaseException:
                    connection.terminate()
                    raise
        except _failures(ValueError) as error:
            raise _lost("cannot be reached", error) from error
        return connection


async def _require_table(connection: asyncpg.Connection) -> None:
    """Create the table if it is missing; only then another run's lock is waited for."""
    if not await connection.fetchval(FIND):
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", SCHEMA_LOCK)
            if not await connection.fetchval(FIND):  # no other run has created it meanwhile
                await connection.execute(SCHEMA)


def _failures(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the errors of a server or a connection that fails, and these."""
    import asyncpg

    # the third if the server closes the connection at a certain moment of a query
    failures = asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError
    return *failures, *more


def _lost(state: str, error: Exception) -> StoreLost:
    """Return the error without the driver's text, which may contain an address or a password."""
    import asyncpg

    cure = ""
    mixed = asyncpg.InvalidSQLStatementNameError | asyncpg.DuplicatePreparedStatementError
    if isinstance(error, asyncpg.InsufficientPrivilegeError | asyncpg.ReadOnlySQLTransactionError):
        state, cure = "cannot be written", f": the role needs SELECT, INSERT and UPDATE on {TABLE}"
    if isinstance(error, mixed):
        state = "is behind a pooler that changes servers, as PgBouncer in transaction mode"
        cure = ": name the address of PostgreSQL itself"
    return StoreLost(f"the store of the limits {state} ({type(error).__name__}){cure}")
