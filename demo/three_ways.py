"""A lookup per record in a real database, three ways: in sequence, by threads, asynchronously.

    python -m demo.three_ways
    python -m demo.three_ways --postgres postgresql://me:secret@127.0.0.1/test

Prints the time of each way and a picture of the calls in flight over time. The asynchronous way is
the operator of asyncio_core, which Spark tasks run too. Each lookup waits in the database: in
PostgreSQL by pg_sleep, in SQLite, which has no such function, by a function of ours.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from asyncio_core import AsyncFunction, StreamRecord, ordered_wait

RECORDS, AT_ONCE = 60, 12
COLUMNS = 60  # of the picture: the time of the slowest way
LEVELS = " ▁▂▃▄▅▆▇█"
LIMIT = 30.0  # s for a lookup
NAMES = sa.table("three_ways", sa.column("id", sa.Integer), sa.column("name", sa.Text))
CREATE = "CREATE TABLE IF NOT EXISTS three_ways (id INTEGER PRIMARY KEY, name TEXT)"
Calls = list[tuple[float, float]]  # start and end of each, s


@dataclass(frozen=True)
class Database:
    """A real database. drivers: the blocking driver, and the asynchronous driver. pause: SQL that
    waits for :ms milliseconds.
    """

    title: str
    url: str
    drivers: tuple[str, str]
    pause: str

    @property
    def question(self) -> sa.TextClause:
        return sa.text(f"SELECT {self.pause}, name FROM three_ways WHERE id = :id")  # noqa: S608  # ours

    def engine(self, connections: int = 1) -> sa.Engine:
        engine = sa.create_engine(self._url(0), pool_size=connections, isolation_level="AUTOCOMMIT")
        _with_pause(engine)
        for one in [engine.connect() for _ in range(connections)]:
            one.close()
        return engine

    async def async_engine(self, connections: int) -> AsyncEngine:
        engine = create_async_engine(
            self._url(1), pool_size=connections, isolation_level="AUTOCOMMIT"
        )
        _with_pause(engine.sync_engine)
        for one in [await engine.connect() for _ in range(connections)]:
            await one.close()
        return engine

    def _url(self, driver: int) -> sa.URL:
        url = sa.make_url(self.url)
        return url.set(drivername=f"{url.get_backend_name()}+{self.drivers[driver]}")

    def fill(self, names: Sequence[str]) -> None:
        with self.engine().begin() as connection:
            connection.exec_driver_sql(CREATE)
            connection.execute(sa.delete(NAMES))
            connection.execute(
                sa.insert(NAMES), [{"id": id_, "name": name} for id_, name in enumerate(names)]
            )


def sqlite_file(path: Path) -> Database:
    title = "SQLite (a library: its asynchronous driver has a thread for each connection)"
    return Database(title, f"sqlite:///{path}", ("pysqlite", "aiosqlite"), "pause(:ms)")


def postgres(url: str) -> Database:
    return Database(
        "PostgreSQL", url, ("psycopg2", "asyncpg"), "pg_sleep(CAST(:ms AS float8) / 1000)"
    )


def _with_pause(engine: sa.Engine) -> None:
    """Gives SQLite's connections the function that PostgreSQL has."""

    def add(connection: Any, _record: Any) -> None:
        connection.create_function("pause", 1, lambda ms: time.sleep(ms / 1000))

    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", add)


def parameters(record: int) -> dict[str, int]:
    """Returns the parameters of the query for a record; the database takes 10, 20 or 30 ms."""
    return {"id": record, "ms": 10 * (record % 3 + 1)}


@dataclass(frozen=True)
class Way:
    title: str
    names: list[str]
    calls: Calls
    seconds: float

    @property
    def most_in_flight(self) -> int:
        return max(in_flight(self.calls, start) for start, _ in self.calls)


def in_flight(calls: Calls, moment: float) -> int:
    return sum(start <= moment < end for start, end in calls)


def one_by_one(database: Database, records: int) -> Way:
    """Makes each call after the call before it."""
    calls: Calls = []
    engine = database.engine()
    began = time.monotonic()
    names = [_ask_name(engine, database, record, calls) for record in range(records)]
    return Way("one by one", names, calls, time.monotonic() - began)


def by_threads(database: Database, records: int, at_once: int) -> Way:
    calls: Calls = []
    engine = database.engine(at_once)
    with ThreadPoolExecutor(at_once) as pool:
        began = time.monotonic()
        names = list(
            pool.map(lambda record: _ask_name(engine, database, record, calls), range(records))
        )
        return Way(f"{at_once} threads", names, calls, time.monotonic() - began)


def _ask_name(engine: sa.Engine, database: Database, record: int, calls: Calls) -> str:
    with engine.connect() as connection:
        start = time.monotonic()
        name = connection.execute(database.question, parameters(record)).one().name
        calls.append((start, time.monotonic()))
    return str(name)


class NameLookup(AsyncFunction[int, str]):
    def __init__(self, database: Database, connections: int, calls: Calls) -> None:
        self._database, self._connections, self._calls = database, connections, calls
        self._engine: AsyncEngine

    async def open(self, _context: object) -> None:
        self._engine = await self._database.async_engine(self._connections)

    async def close(self) -> None:
        await self._engine.dispose()

    async def async_invoke(self, value: int) -> list[str]:
        connection: AsyncConnection
        async with self._engine.connect() as connection:
            start = time.monotonic()
            found = await connection.execute(self._database.question, parameters(value))
            self._calls.append((start, time.monotonic()))
            return [str(found.one().name)]


async def asynchronously(database: Database, records: int, at_once: int) -> Way:
    calls: Calls = []
    lookup = NameLookup(database, at_once, calls)
    given = (StreamRecord(record) for record in range(records))
    answers = ordered_wait(given, lookup, timeout=LIMIT, capacity=16 * at_once, concurrency=at_once)
    names = [cast("StreamRecord", answer).value async for answer in answers]
    ended = max(end for _, end in calls)
    return Way("asynchronous", names, calls, ended - min(start for start, _ in calls))


def pictures(ways: Sequence[Way], columns: int = COLUMNS) -> Iterator[str]:
    longest = max(way.seconds for way in ways)
    highest = max(way.most_in_flight for way in ways)
    for way in ways:
        began = min(start for start, _ in way.calls)
        width = max(1, round(columns * way.seconds / longest))
        heights = [
            in_flight(way.calls, began + (at + 0.5) * longest / columns) for at in range(width)
        ]
        drawn = "".join(LEVELS[-(-height * (len(LEVELS) - 1) // highest)] for height in heights)
        yield (
            f"  {way.title:14}{way.seconds:6.2f} s   up to {way.most_in_flight:2} in flight  "
            f"|{drawn:{columns}}|"
        )


def compare(database: Database, records: int = RECORDS, at_once: int = AT_ONCE) -> list[Way]:
    return [
        one_by_one(database, records),
        by_threads(database, records, at_once),
        asyncio.run(asynchronously(database, records, at_once)),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="three_ways", description="A lookup for each record, three ways."
    )
    parser.add_argument(
        "--postgres",
        metavar="URL",
        help="a PostgreSQL to ask too; the table three_ways is made there",
    )
    options = parser.parse_args(arguments)
    names = [f"name {number}" for number in range(RECORDS)]
    waits = sum(parameters(record)["ms"] for record in range(RECORDS)) / 1000
    print(
        f"{RECORDS} records, a lookup of 10 to 30 ms for each, {waits:.2f} s together; "
        f"{AT_ONCE} "
        "at once may run.\n"
    )
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        databases = [sqlite_file(Path(folder, "names.db"))]
        databases += [postgres(options.postgres)] if options.postgres else []
        for database in databases:
            database.fill(names)
            print(database.title)
            ways = compare(database)
            print("\n".join(pictures(ways)), end="\n\n", flush=True)
            if any(way.names != names for way in ways):
                print("The names are not those of the records.", file=sys.stderr)
                return 1
    if not options.postgres:
        print("PostgreSQL too: --postgres postgresql://user:password@host/database")
    return 0


if __name__ == "__main__":
    sys.exit(main())
