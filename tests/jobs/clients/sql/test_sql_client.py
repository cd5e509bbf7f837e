"""SqlLookup against a real SQLite file through aiosqlite."""

import asyncio
import contextlib
import datetime as dt
import decimal
import errno
import sqlite3
import threading
import time
from pathlib import Path

import asyncpg
import pytest
import sqlalchemy as sa

from jobs.clients.client import CallFailed
from jobs.clients.sql.sql_client import SqlClient
from jobs.clients.sql.sql_engine import may_pass
from tidegate import DeclarationError, Env, SqlLookup

EVERY_COLUMN = (
    "n BIGINT, x DOUBLE, t STRING, b BINARY, d DATE, at TIMESTAMP, flag BOOLEAN, price DECIMAL(8,2)"
)


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "planes.db"
    with sqlite3.connect(path) as planes:
        planes.executescript("""
            CREATE TABLE planes (tailnum TEXT, maker TEXT, seats INTEGER);
            INSERT INTO planes VALUES ('N1', 'BOEING', 149), ('N2', NULL, NULL), ('N3', 'AIRBUS', 'many'),
                                      ('N4', 'EMBRAER', 55), ('N4', 'EMBRAER', 55), ('O''N;--', 'CESSNA', 4);
            CREATE TABLE every (k INTEGER, l TEXT, n, x, t, b, d, at, flag, price);
            INSERT INTO every VALUES
                (1, 'a', 7, 2.5, 'text', x'00ff', '2013-01-10', '2013-01-10 05:00:00', 1, 12.34),
                (2, 'a', 7.0, 2, '', x'', '2013-01-10', '2013-01-10T05:00:00+02:00', 0, '12.34'),
                (3, 'a', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
        """)
    planes.close()
    return path


def lookup(database, **fields):
    standard = {
        "name": "plane",
        "url": f"sqlite+aiosqlite:///{database}",
        "table": "planes",
        "keys": {"tailnum": "tail_number"},
        "returns": "maker STRING, seats INT",
        "timeout": 5.0,
        "max_concurrency": 4,
    }
    return SqlLookup(**standard | fields)


async def opened(declared, share=2):
    caller = SqlClient(declared, share)
    await caller.open()
    return caller


async def message(caller, *key):
    try:
        answer = await caller.call(key)
        return None if answer is None else caller.columns(answer)
    except (CallFailed, ValueError) as error:
        return error


def ask(declared, *keys):
    async def main():
        caller = await opened(declared)
        try:
            return await asyncio.gather(*(message(caller, *key) for key in keys))
        finally:
            await caller.close()

    return asyncio.run(main())


def test_many_keys_go_in_one_query_and_each_has_its_own_outcome(database):
    keys = ("N1", "N9", "N4", "O'N;--", "N1", "N2")
    boeing, miss, twice, cessna, needs_retry, nulls = ask(
        lookup(database, batch_size=10), *((key,) for key in keys)
    )
    assert (boeing, miss, cessna, needs_retry, nulls) == (
        ("BOEING", 149),
        None,
        ("CESSNA", 4),
        ("BOEING", 149),
        (None, None),
    )
    assert str(twice) == "planes has two or more rows for this key; a lookup gives one"


def test_keys_of_a_batch_are_compared_as_a_single_key_is(tmp_path):
    """By the column's own collation: keys that the table takes for equal each get the row."""
    with sqlite3.connect(tmp_path / "odd.db") as odd:
        odd.executescript("""
            CREATE TABLE odd (word TEXT COLLATE NOCASE, number NUMERIC, "a b" TEXT);
            INSERT INTO odd VALUES ('Abc', 7, 'one'), ('7', '8', 'two');
        """)
    odd.close()
    for key, values in (
        ("word", ["abc", "ABC", "Abc", "abd", "7"]),
        ("number", [7, 7.0, 8, 8.0, 9]),
    ):
        one, many = (
            lookup(
                tmp_path / "odd.db",
                table="odd",
                keys={key: "k"},
                returns="`a b` STRING",
                batch_size=size,
            )
            for size in (1, 10)
        )
        answers = ask(one, *((value,) for value in values))
        assert len([answer for answer in answers if answer is not None]) == 4
        assert ask(many, *((value,) for value in values)) == answers


def test_a_row_beyond_the_limit_of_a_query_is_found_where_another_key_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "twice.db") as twice:
        twice.execute("CREATE TABLE twice (x DOUBLE, word TEXT)")
        twice.executemany("INSERT INTO twice VALUES (?, ?)", [(1.0, "again")] * 6 + [(2.0, "two")])
    twice.close()
    declared = lookup(
        tmp_path / "twice.db", table="twice", keys={"x": "x"}, returns="word STRING", batch_size=10
    )
    refused, again, two = ask(declared, (float("nan"),), (1.0,), (2.0,))
    assert str(refused) == "keys.x: NaN equals no value, so it cannot be a key"
    assert str(again) == "twice has two or more rows for this key; a lookup gives one"
    assert two == ("two",)


def test_a_value_that_the_driver_refuses_is_the_error_of_its_own_key(database):
    answers = ask(lookup(database, batch_size=10), ("N1",), (decimal.Decimal("1.5"),), ("N2",))
    assert (answers[0], answers[2]) == (("BOEING", 149), (None, None))
    assert isinstance(answers[1], CallFailed)
    assert not answers[1].passing


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_text_that_is_not_utf8_is_an_error_of_its_row(database, batch_size):
    with contextlib.closing(sqlite3.connect(database)) as planes, planes:
        planes.execute("INSERT INTO planes VALUES ('N9', CAST(x'636166e9' AS TEXT), 1)")
    answers = ask(lookup(database, batch_size=batch_size), ("N1",), ("N9",), ("N2",))
    assert (answers[0], answers[2]) == (("BOEING", 149), (None, None))
    assert "Could not decode to UTF-8 column 'maker'" in str(answers[1])
    assert not answers[1].passing


@pytest.mark.parametrize("batch_size", [1, 5])
def test_sqlite_refuses_a_timestamp_as_key_rather_than_a_silent_miss(database, batch_size):
    declared = lookup(
        database, table="every", keys={"at": "at"}, returns="n INT", batch_size=batch_size
    )
    (failure,) = ask(declared, (dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC),))
    assert "SQLite has no timestamps; give the key as the text that the table holds" in str(failure)
    declared = lookup(
        database, table="every", keys={"d": "d", "k": "k"}, returns="n INT", batch_size=batch_size
    )
    assert ask(declared, (dt.date(2013, 1, 10), 1)) == [(7,)]


def test_a_select_of_sqlite_refuses_a_timestamp_as_key_too(database):
    declared = lookup(
        database, table=None, select="SELECT n FROM every WHERE at = :at", keys={"at": "at"},
        returns="n INT",
    )  # fmt: skip
    (failure,) = ask(declared, (dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC),))
    assert "SQLite has no timestamps" in str(failure)


def test_a_declared_select_gets_its_keys_as_parameters(database):
    declared = lookup(
        database,
        table=None,
        select=(
            "SELECT upper(maker) || ':x' AS maker, seats FROM planes WHERE tailnum = :tailnum "
            "-- done"
        ),
    )
    assert ask(declared, ("N1",), ("N1' OR '1'='1",)) == [("BOEING:x", 149), None]


def test_json_that_a_database_keeps_as_text_is_read_where_an_answer_has_that_type(tmp_path):
    with sqlite3.connect(tmp_path / "odd.db") as odd:
        odd.executescript(
            """CREATE TABLE docs (k, doc); INSERT INTO docs VALUES (1, '{"a": [1, 2]}'), (2, 'no')"""
        )
    odd.close()
    for kind, read in (
        ("STRUCT<a: ARRAY<INT>>", {"a": [1, 2]}),
        ("MAP<STRING, ARRAY<INT>>", [("a", [1, 2])]),
    ):
        declared = lookup(tmp_path / "odd.db", table="docs", keys={"k": "k"}, returns=f"doc {kind}")
        good, bad = ask(declared, (1,), (2,))
        assert good == (read,)
        assert str(bad) == f"doc: expected {kind.partition('<')[0]}, got 'no'"


def slow(database, seconds):
    """An SQL expression that keeps SQLite busy; how long it takes is not asserted, only that it is
    not at once.
    """
    steps = int(seconds * 3_000_000)
    return (
        f"(WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < {steps}) "
        "SELECT count(*) FROM c)"
    )


def test_a_row_is_the_answer_and_a_missing_row_is_a_miss(database):
    assert ask(lookup(database), ("N1",), ("N2",), ("N9",)) == [("BOEING", 149), (None, None), None]


def test_a_key_is_never_read_as_sql(database):
    assert ask(lookup(database), ("O'N;--",), ("N1' OR '1'='1",)) == [("CESSNA", 4), None]


def test_two_rows_for_one_key_are_an_error_that_says_so(database):
    (failure,) = ask(lookup(database), ("N4",))
    assert isinstance(failure, CallFailed)
    assert not failure.passing
    assert str(failure) == "planes has two or more rows for this key; a lookup gives one"


def test_a_value_that_does_not_fit_is_named_with_its_column(database):
    (wrong,) = ask(lookup(database), ("N3",))
    assert str(wrong) == "seats: expected INT, got 'many'"


def test_a_text_is_not_read_as_base64_bytes(database):
    made = lookup(
        database,
        table=None,
        select="SELECT 'beef' AS b WHERE :k > 0",
        keys={"k": "k"},
        returns="b BINARY",
    )
    (error,) = ask(made, (1,))
    assert "b: expected BINARY, got the text 'beef'; give its bytes in a select" in str(error)


def test_several_key_columns_select_a_row(database):
    declared = lookup(database, table="every", keys={"k": "k", "l": "l"}, returns="n INT")
    assert ask(declared, (1, "a"), (1, "b")) == [(7,), None]


def test_every_type_that_sqlite_stores_in_its_own_way_is_read(database):
    declared = lookup(database, table="every", keys={"k": "k"}, returns=EVERY_COLUMN)
    day, price = dt.date(2013, 1, 10), decimal.Decimal("12.34")
    at = dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC)
    assert ask(declared, (1,), (2,), (3,)) == [
        (7, 2.5, "text", b"\x00\xff", day, at, True, price),
        (7, 2.0, "", b"", day, at - dt.timedelta(hours=2), False, price),
        (None,) * 8,
    ]


def test_a_column_may_be_both_key_and_answer(database):
    assert ask(lookup(database, returns="tailnum STRING"), ("N1",)) == [("N1",)]


def test_names_may_be_keywords_of_sql(tmp_path):
    with sqlite3.connect(tmp_path / "odd.db") as odd:
        odd.executescript(
            'CREATE TABLE "order" ("select" TEXT, "group" INTEGER); INSERT INTO "order" VALUES '
            "('a', 1)"
        )
    odd.close()
    declared = lookup(
        tmp_path / "odd.db", table="order", keys={"select": "s"}, returns="`group` INT"
    )
    assert ask(declared, ("a",)) == [(1,)]


@pytest.mark.parametrize("fields", [{"table": "plains"}, {"returns": "model STRING"}])
def test_a_missing_table_or_column_is_a_failed_call_without_the_statement(database, fields):
    (failure,) = ask(lookup(database, **fields), ("N1",))
    assert isinstance(failure, CallFailed)
    assert "no such" in str(failure)
    assert "SELECT" not in str(failure)
    assert "N1" not in str(failure)


def test_a_key_of_a_type_that_the_driver_refuses_is_a_final_failure(database):
    (failure,) = ask(lookup(database), (decimal.Decimal("1.5"),))
    assert isinstance(failure, CallFailed)
    assert not failure.passing


def test_a_timeout_of_the_operating_system_is_reported_with_its_message(database):
    def give_up(*_statement):
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    sa.event.listen(sa.Engine, "before_cursor_execute", give_up)
    try:
        (failed,) = ask(lookup(database, timeout=None), ("N1",))
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", give_up)
    assert (str(failed), failed.passing) == ("[Errno 110] Connection timed out", True)


@pytest.mark.parametrize("kind", [asyncpg.InterfaceError, asyncpg.InternalClientError])
def test_a_connection_that_the_driver_lost_in_a_call_is_a_passing_failure(kind):
    assert may_pass(kind("cannot switch to state 12; another operation (2) is in progress"))


def test_a_database_that_cannot_be_opened_is_a_passing_failure(tmp_path):
    (failure,) = ask(lookup(tmp_path / "no" / "such.db"), ("N1",))
    assert isinstance(failure, CallFailed)
    assert failure.passing
    assert str(failure) == "unable to open database file"


def test_a_relative_file_that_is_not_where_the_queries_run_is_named_with_the_folder(
    database, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert ask(lookup("planes.db"), ("N1",)) == [("BOEING", 149)]
    (tmp_path / "of_executor").mkdir()
    monkeypatch.chdir(tmp_path / "of_executor")
    with pytest.raises(
        DeclarationError,
        match=f"no file planes.db where its queries run, in {Path.cwd()} on .* whole path",
    ):
        ask(lookup("planes.db"), ("N1",))
    assert list(Path.cwd().iterdir()) == []


def test_the_address_is_read_from_the_environment_when_the_pool_opens(database, monkeypatch):
    declared = lookup(database, url=Env("PLANES_URL"))
    monkeypatch.delenv("PLANES_URL", raising=False)
    with pytest.raises(DeclarationError, match="PLANES_URL is not set"):
        ask(declared, ("N1",))
    monkeypatch.setenv("PLANES_URL", f"sqlite+aiosqlite:///{database}")
    assert ask(declared, ("N1",)) == [("BOEING", 149)]


@pytest.mark.parametrize(
    "address",
    [
        "me:Zq9@h/db",
        "me@h/db?password=Zq9",
        "me:p@Zq9@h/db",
        "me:p@x/Zq9@h/db",
        "me:Zq9@h:1/db?sslpassword=Zq9",
    ],
)
def test_a_password_is_masked_anywhere_in_the_shown_address(database, monkeypatch, address):
    monkeypatch.setenv("PLANES_URL", f"postgresql+asyncpg://{address}")
    seen = lookup(database, url=Env("PLANES_URL")).address
    assert "Zq9" not in seen
    assert seen.startswith("postgresql+asyncpg://me")
    assert seen.endswith("/db")


def test_a_port_that_is_not_a_number_is_refused(database, monkeypatch):
    monkeypatch.setenv("PLANES_URL", "postgresql+asyncpg://me:Zq9@h:port/db")
    with pytest.raises(
        DeclarationError,
        match=(
            r"url is not one that SQLAlchemy can use with "
            r"asyncio \(ValueError\)"
        ),
    ):
        ask(lookup(database, url=Env("PLANES_URL")), ("N1",))


@pytest.mark.parametrize("share", [1, 3])
def test_connections_never_exceed_the_share(database, share):
    with sqlite3.connect(database) as planes:
        planes.execute(
            f"CREATE VIEW busy AS SELECT tailnum, maker, {slow(database, 0.02)} AS "
            "seats FROM planes"
        )
    planes.close()

    async def main():
        caller = await opened(lookup(database, table="busy"), share)
        held = []
        sa.event.listen(
            caller._engine.sync_engine,
            "checkout",
            lambda *_: held.append(caller._engine.pool.checkedout()),
        )
        try:
            await asyncio.gather(*(caller.call(("N1",)) for _ in range(12)))
            return held, caller._engine.pool.size() + caller._engine.pool.overflow()
        finally:
            await caller.close()

    held, connections = asyncio.run(main())
    assert len(held) == 12
    assert max(held) == share
    assert connections == share


def test_a_cancelled_call_leaves_the_pool_usable(database):
    with sqlite3.connect(database) as planes:
        planes.execute(
            f"CREATE VIEW busy AS SELECT tailnum, maker, {slow(database, 0.2)} AS seats FROM planes"
        )
    planes.close()

    async def main():
        caller = await opened(lookup(database, table="busy"), 2)
        calm = await opened(lookup(database), 2)
        slow_select = caller._select
        try:
            for _ in range(3):
                caller._select = slow_select
                calls = [asyncio.create_task(caller.call(("N1",))) for _ in range(2)]
                while caller._engine.pool.checkedout() < 2:  # noqa: ASYNC110 - the pool has no event
                    await asyncio.sleep(0)
                for call in calls:
                    call.cancel()
                ended = await asyncio.gather(*calls, return_exceptions=True)
                assert all(isinstance(end, asyncio.CancelledError) for end in ended)
                caller._select = calm._select
                assert [(await caller.call(("N1",)))["seats"] for _ in range(4)] == [149] * 4
                assert caller._engine.pool.checkedout() == 0
        finally:
            await caller.close()
            await calm.close()

    asyncio.run(main())


def test_a_locked_database_is_a_passing_failure_and_does_not_delay_closing(
    database,
):
    holder = sqlite3.connect(database, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    started = time.monotonic()
    (failure,) = ask(lookup(database, attempt_timeout=2.0), ("N1",))
    holder.close()
    assert str(failure) == "database is locked"
    assert failure.passing
    assert time.monotonic() - started < 4.0


ENDLESS = """
    CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1e12)
    SELECT 'a' AS k, max(i) AS v FROM n;
"""


@pytest.mark.slow
def test_an_abandoned_query_ends_in_the_database_and_frees_its_connection(database):
    with contextlib.closing(sqlite3.connect(database)) as planes:
        planes.executescript(ENDLESS)
    unless_n1 = (
        "SELECT maker, seats FROM planes WHERE tailnum = :k AND (:k <> 'N1' OR (SELECT v "
        "FROM endless) > 0)"
    )
    declared = lookup(
        database, table=None, select=unless_n1, keys={"k": "tail_number"}, attempt_timeout=1.0
    )

    async def main():
        caller = await opened(declared, share=1)
        try:
            return [await message(caller, key) for key in ("N1", "O'N;--")]
        finally:
            await caller.close()

    failed, answer = asyncio.run(main())
    assert str(failed) == "no answer within 1.0 s"
    assert answer == ("CESSNA", 4)


def test_closing_leaves_no_thread_even_of_a_failed_connection(database, tmp_path):
    before = set(threading.enumerate())
    ask(lookup(database), ("N1",), ("N2",))
    ask(lookup(tmp_path / "no" / "such.db"), ("N1",))
    assert set(threading.enumerate()) - before == set()


def test_closing_a_client_that_was_never_opened_does_nothing(database):
    asyncio.run(SqlClient(lookup(database), 1).close())
