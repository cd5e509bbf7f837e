"""A query that is left, at whatever moment: its late rows are never those of the next query on the
same connection.
"""

import asyncio
import random
import sqlite3

import pytest

from jobs.clients.client import CallFailed
from jobs.clients.sql.sql_client import SqlClient
from tidegate import Env, SqlLookup

ROWS = 400
SLOW = "CASE WHEN k % 3 = 0 THEN pg_sleep(random() * 0.01) END"


@pytest.fixture
def sqlite(tmp_path):
    path = tmp_path / "numbers.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE numbers (k INTEGER PRIMARY KEY, twice INTEGER, filler TEXT)"
        )
        connection.executemany(
            "INSERT INTO numbers VALUES (?, ?, '')", [(k, 2 * k) for k in range(ROWS)]
        )
    connection.close()
    return f"sqlite+aiosqlite:///{path}"


@pytest.fixture
def postgresql(postgres):
    name = postgres.new_database()
    postgres.execute(
        f"CREATE TABLE raw AS SELECT k, 2 * k AS twice FROM generate_series(0, {ROWS - 1}) AS k;"
        f"CREATE VIEW numbers AS SELECT k, twice, ({SLOW})::text AS filler FROM raw",
        name,
    )
    return postgres.url(name)


@pytest.mark.proof
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("batch_size", [pytest.param(1, marks=pytest.mark.proof), 7])
@pytest.mark.process
def test_an_abandoned_query_gives_no_row_to_the_next_query(
    request, monkeypatch, database, batch_size
):
    monkeypatch.setenv("NUMBERS", request.getfixturevalue(database))
    batches = {"batch_size": batch_size, "max_wait": 0.001} if batch_size > 1 else {}
    lookup = SqlLookup(
        name="number", url=Env("NUMBERS"), table="numbers", keys={"k": "k"},
        returns="twice BIGINT, filler STRING", timeout=20.0, max_concurrency=3, **batches,
    )  # fmt: skip
    draw = random.Random(7)

    async def call(caller, key):
        try:
            async with asyncio.timeout(draw.choice((None, draw.random() ** 3 * 0.02))):
                return caller.columns(await caller.call((key,)))[0]
        except (TimeoutError, CallFailed):
            return None

    async def main():
        caller = SqlClient(lookup, 3)
        await caller.open()
        found = {}
        workers = iter(range(ROWS))

        async def work():
            for key in workers:
                found[key] = await call(caller, key)

        try:
            await asyncio.gather(*(work() for _ in range(12)))
        finally:
            await caller.close()
        return found

    found = asyncio.run(main())
    answered = {key: twice for key, twice in found.items() if twice is not None}
    assert ROWS / 4 < len(answered) < ROWS
    assert answered == {key: 2 * key for key in answered}
