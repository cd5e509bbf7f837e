"""SqlLookup against a real PostgreSQL behind a real PgBouncer, which gives each transaction any of
its servers.
"""

import asyncio

import psycopg2
import pytest

from jobs.clients.client import CallFailed
from jobs.clients.sql.sql_client import SqlClient
from jobs.clients.sql.sql_inspection import inspect
from tests.support.transaction_pooler import pgbouncer, pooled
from tidegate import Env, SqlLookup

# without it: `apt-get install pgbouncer`
pytestmark = [pytest.mark.process, *([] if pgbouncer() else [pytest.mark.proof])]

TABLES = """
CREATE TYPE colour AS ENUM ('red', 'blue');
CREATE TABLE planes (tailnum TEXT PRIMARY KEY, seats INT, paint colour, parts INT[], doc JSONB);
INSERT INTO planes SELECT 'N' || n, n, 'red', ARRAY[n, n + 1], json_build_object('n', n) FROM generate_series(0, 999) AS n;
"""


@pytest.fixture(scope="module")
def pooler(postgres):
    assert pgbouncer() is not None, "no PgBouncer here: apt-get install pgbouncer"
    database = postgres.new_database()
    postgres.execute(TABLES, database)
    with pooled(postgres, database) as url:
        yield url


@pytest.fixture
def declare(pooler, monkeypatch):
    monkeypatch.setenv("PLANES_URL", pooler)

    def declared(**fields):
        standard = {
            "name": "plane", "url": Env("PLANES_URL"),
            "table": None if "select" in fields else "planes", "keys": {"tailnum": "tail_number"},
            "timeout": 20.0, "max_concurrency": 8,
            "returns": "seats INT, paint STRING, parts ARRAY<INT>, doc STRUCT<n: INT>",
        }  # fmt: skip
        return SqlLookup(**standard | fields)

    return declared


def expected(number):
    return (number, "red", [number, number + 1], {"n": number})


async def asked(caller, numbers):
    async def one(number):
        answer = await caller.call((f"N{number}",))
        return None if answer is None else caller.columns(answer)

    return await asyncio.gather(*map(one, numbers), return_exceptions=True)


@pytest.mark.parametrize("batch", [{}, {"batch_size": 20, "max_wait": 0.01}])
def test_a_pooler_in_transaction_mode_gives_every_key_its_own_row(declare, batch):
    """Two clients with other statements share its servers, and change them with every query."""
    select = "SELECT -seats AS seats FROM planes WHERE tailnum = :tailnum"
    others = declare(select=select, returns="seats INT")

    async def main():
        callers = [SqlClient(declare(**batch), 8), SqlClient(others, 8)]
        try:
            for caller in callers:
                await caller.open()
            return [
                await asyncio.gather(
                    *(asked(client, range(begin, begin + 40)) for client in callers)
                )
                for begin in range(0, 160, 40)
            ]
        finally:
            for caller in callers:
                await caller.close()

    for begin, (first, second) in zip(range(0, 160, 40), asyncio.run(main()), strict=True):
        assert first == [expected(number) for number in range(begin, begin + 40)]
        assert second == [(-number,) for number in range(begin, begin + 40)]


def test_an_abandoned_query_behind_a_pooler_gives_no_row_to_another_query(declare):
    select = (
        "SELECT seats FROM planes, pg_sleep(CASE WHEN seats % 5 = 0 THEN 0.6 ELSE 0 END) "
        "WHERE tailnum = :tailnum"
    )
    slow = declare(select=select, returns="seats INT", attempt_timeout=0.3)

    async def main():
        caller = SqlClient(slow, 8)
        await caller.open()
        try:
            return [await asked(caller, range(begin, begin + 8)) for begin in range(1, 33, 8)]
        finally:
            await caller.close()

    found = [answer for some in asyncio.run(main()) for answer in some]
    right = [(number,) for number in range(1, 33)]
    wrong = [
        outcome
        for outcome, own in zip(found, right, strict=True)
        if outcome != own and not isinstance(outcome, CallFailed)
    ]
    assert wrong == []
    assert sum(isinstance(outcome, tuple) for outcome in found) > 10


def test_a_table_behind_a_pooler_is_checked_as_any_other(declare):
    for _ in range(5):
        asyncio.run(inspect(declare()))


def test_servers_behind_a_pooler_keep_no_prepared_statement(declare, pooler):
    async def main():
        caller = SqlClient(declare(), 8)
        await caller.open()
        try:
            await asked(caller, range(200))
        finally:
            await caller.close()

    before = most_statements(pooler)
    asyncio.run(main())
    assert most_statements(pooler) - before <= 10  # of the first connection, which asks who answers


def most_statements(pooler):
    """How many one of the servers keeps."""
    kept, connection = [], psycopg2.connect(pooler.replace("+asyncpg", ""))
    connection.autocommit = True
    for _ in range(9):
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_prepared_statements")
            kept += cursor.fetchone()
    connection.close()
    return max(kept)
