"""One lookup for each record against a real database, three ways: one by one, with a pool of threads, asynchronously.

python -m demo.three_ways
python -m demo.three_ways --postgres postgresql://me:secret@127.0.0.1/test

Prints the time of each way and a picture of the calls in flight over time. The asynchronous way is the operator of
asyncio_core, which Spark tasks run too. Each lookup waits in the database: SQLite's by a function of ours, as it has
none, PostgreSQL's by pg_sleep.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from asyncio_core import AsyncFunction, StreamRecord, ordered_wait

RECORDS, AT_ONCE = 60, 12
COLUMNS = 60  # of the picture: the time of the slowest way
LEVELS = " ▁▂▃▄▅▆▇█"
LIMIT = 30.0  # s for one lookup
CREATE = "CREATE TABLE IF NOT EXISTS three_ways (id INTEGER PRIMARY KEY, name TEXT)"
Ask = Callable[[int], str]
Calls = list[tuple[float, float]]  # start and end of each, s


class Connection(Protocol):
    """An asynchronous connection."""

    async def name_of(self, record: int) -> str: ...


class Database(Protocol):
    """A real database, asked in both ways."""

    title: str

    def connect(self) -> contextlib.AbstractContextManager[Ask]:
        """A connection that is waited for."""

    def connect_async(self) -> contextlib.AbstractAsyncContextManager[Connection]:
        """One that waits beside others."""


def pause_ms(record: int) -> int:
    """How long the database takes for a record: 10, 20 or 30 ms."""
    return 10 * (record % 3 + 1)


@dataclass(frozen=True)
class SQLite:
    path: Path
    title = "SQLite (a library: its asynchronous driver has a thread for each connection)"
    question = "SELECT pause(?), name FROM three_ways WHERE id = ?"

    def fill(self, names: Sequence[str]) -> None:
        with contextlib.closing(sqlite3.connect(self.path)) as database, database:
            database.execute(CREATE)
            database.executemany("INSERT INTO three_ways VALUES (?, ?)", enumerate(names))

    @contextlib.contextmanager
    def connect(self) -> Iterator[Ask]:
        with contextlib.closing(sqlite3.connect(self.path, check_same_thread=False)) as database:
            database.create_function("pause", 1, _pause)

            def ask(record: int) -> str:
                return str(database.execute(self.question, (pause_ms(record), record)).fetchone()[1])

            yield ask

    @contextlib.asynccontextmanager
    async def connect_async(self) -> AsyncIterator[Connection]:
        import aiosqlite

        question = self.question
        async with aiosqlite.connect(self.path) as database:
            await database.create_function("pause", 1, _pause)

            class One:
                async def name_of(self, record: int) -> str:
                    async with database.execute(question, (pause_ms(record), record)) as rows:
                        return str(cast("Any", await rows.fetchone())[1])

            yield One()


@dataclass(frozen=True)
class Postgres:
    url: str
    title = "PostgreSQL"

    def _open(self) -> contextlib.closing[Any]:
        import psycopg2  # type: ignore[import-untyped]

        return contextlib.closing(psycopg2.connect(self.url))

    def fill(self, names: Sequence[str]) -> None:
        with self._open() as database, database, database.cursor() as cursor:
            cursor.execute(CREATE)
            cursor.execute("DELETE FROM three_ways")
            cursor.executemany("INSERT INTO three_ways VALUES (%s, %s)", list(enumerate(names)))

    @contextlib.contextmanager
    def connect(self) -> Iterator[Ask]:
        with self._open() as database, database.cursor() as cursor:

            def ask(record: int) -> str:
                question = "SELECT pg_sleep(%s), name FROM three_ways WHERE id = %s"
                cursor.execute(question, (pause_ms(record) / 1000, record))
                return str(cursor.fetchone()[1])

            yield ask

    @contextlib.asynccontextmanager
    async def connect_async(self) -> AsyncIterator[Connection]:
        import asyncpg

        database = await asyncpg.connect(self.url)

        class One:
            async def name_of(self, record: int) -> str:
                question = "SELECT pg_sleep($1), name FROM three_ways WHERE id = $2"
                return str((await database.fetchrow(question, pause_ms(record) / 1000, record))[1])

        try:
            yield One()
        finally:
            await database.close()


def _pause(milliseconds: int) -> int:
    time.sleep(milliseconds / 1000)
    return milliseconds


@dataclass(frozen=True)
class Way:
    """What came of one way: names in the order of the records, start and end of every call in s, the whole time."""

    title: str
    names: list[str]
    calls: Calls
    seconds: float

    @property
    def most_in_flight(self) -> int:
        """At one moment."""
        return max(in_flight(self.calls, start) for start, _ in self.calls)


def in_flight(calls: Calls, moment: float) -> int:
    """Calls under way."""
    return sum(start <= moment < end for start, end in calls)


def one_by_one(database: Database, records: int) -> Way:
    """Each call waits for the one before."""
    calls: Calls = []
    with database.connect() as ask:
        began = time.monotonic()
        names = [_timed(ask, record, calls) for record in range(records)]
        return Way("one by one", names, calls, time.monotonic() - began)


def by_threads(database: Database, records: int, at_once: int) -> Way:
    """Each of so many threads has a connection and waits for its call."""
    calls: Calls = []
    with contextlib.ExitStack() as connected, ThreadPoolExecutor(at_once) as pool:
        free = [connected.enter_context(database.connect()) for _ in range(at_once)]

        def ask(record: int) -> str:
            own = free.pop()  # there is one for each thread
            try:
                return _timed(own, record, calls)
            finally:
                free.append(own)

        began = time.monotonic()
        names = list(pool.map(ask, range(records)))
        return Way(f"{at_once} threads", names, calls, time.monotonic() - began)


def _timed(ask: Ask, record: int, calls: Calls) -> str:
    start = time.monotonic()
    name = ask(record)
    calls.append((start, time.monotonic()))
    return name


class NameLookup(AsyncFunction[int, str]):
    """The lookup as an asynchronous function, with so many connections."""

    def __init__(self, database: Database, connections: int, calls: Calls) -> None:
        self._database, self._count, self._calls = database, connections, calls
        self._free: list[Connection] = []
        self._connected = contextlib.AsyncExitStack()

    async def open(self, _context: object) -> None:
        opening = (self._connected.enter_async_context(self._database.connect_async()) for _ in range(self._count))
        self._free = [await one for one in opening]

    async def close(self) -> None:
        await self._connected.aclose()

    async def async_invoke(self, value: int) -> list[str]:
        connection = self._free.pop()  # there is one for each call that may be in flight
        start = time.monotonic()
        try:
            return [await connection.name_of(value)]
        finally:
            self._calls.append((start, time.monotonic()))
            self._free.append(connection)


async def asynchronously(database: Database, records: int, at_once: int) -> Way:
    """One thread starts so many calls and takes the answers as they come, in the order of the records."""
    calls: Calls = []
    lookup = NameLookup(database, at_once, calls)
    given = (StreamRecord(record) for record in range(records))
    answers = ordered_wait(given, lookup, timeout=LIMIT, capacity=16 * at_once, concurrency=at_once)
    names = [cast("StreamRecord", answer).value async for answer in answers]
    ended = max(end for _, end in calls)
    return Way("asynchronous", names, calls, ended - min(start for start, _ in calls))


def pictures(ways: Sequence[Way], columns: int = COLUMNS) -> Iterator[str]:
    """A line for each way: its time, and the calls in flight over the time of the slowest one."""
    longest = max(way.seconds for way in ways)
    highest = max(way.most_in_flight for way in ways)
    for way in ways:
        began = min(start for start, _ in way.calls)
        width = max(1, round(columns * way.seconds / longest))
        heights = [in_flight(way.calls, began + (at + 0.5) * longest / columns) for at in range(width)]
        drawn = "".join(LEVELS[-(-height * (len(LEVELS) - 1) // highest)] for height in heights)
        yield f"  {way.title:14}{way.seconds:6.2f} s   up to {way.most_in_flight:2} in flight  |{drawn:{columns}}|"


def compare(database: Database, records: int = RECORDS, at_once: int = AT_ONCE) -> list[Way]:
    """The three ways, one after the other."""
    return [
        one_by_one(database, records),
        by_threads(database, records, at_once),
        asyncio.run(asynchronously(database, records, at_once)),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison on each database that there is."""
    parser = argparse.ArgumentParser(prog="three_ways", description="A lookup for each record, three ways.")
    parser.add_argument("--postgres", metavar="URL", help="a PostgreSQL to ask too; the table three_ways is made there")
    options = parser.parse_args(arguments)
    names = [f"name {number}" for number in range(RECORDS)]
    waits = sum(map(pause_ms, range(RECORDS))) / 1000
    print(f"{RECORDS} records, a lookup of 10 to 30 ms for each, {waits:.2f} s together; {AT_ONCE} at once may run.\n")
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        databases: list[SQLite | Postgres] = [SQLite(Path(folder, "names.db"))]
        databases += [Postgres(options.postgres)] if options.postgres else []
        for database in databases:
            database.fill(names)
            print(database.title)
            ways = compare(database)
            print("\n".join(pictures(ways)), end="\n\n", flush=True)
            if any(way.names != names for way in ways):
                print("The names are not those of the records.", file=sys.stderr)
                return 1
    if not options.postgres:
        print(f"PostgreSQL too: --postgres {urlsplit('postgresql://user:password@host/database').geturl()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
