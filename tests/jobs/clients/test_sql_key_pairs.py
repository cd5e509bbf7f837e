"""Every type of key against every type of column, on SQLite and PostgreSQL: two values match where
Python says so.
"""

import asyncio
import datetime as dt
import decimal
import random
import sqlite3
import struct

import psycopg2
import pytest

from jobs.clients.client import CallFailed
from jobs.clients.sql.sql_client import SqlClient
from jobs.clients.sql.sql_inspection import inspect
from jobs.errors import DeclarationError
from tidegate import Env, SqlLookup

D, UTC = decimal.Decimal, dt.UTC
SINGLE = 0.10000000149011612  # 0.1 in a float of 32 bits
WHOLE = [0, 1, 7, -7, 2**31 - 1, 2**53, 2**53 + 1]
TEXTS = [
    "007",
    "7.0",
    "1e0",
    "7",
    "1",
    " 7",
    "7 ",
    "0",
    "true",
    "t",
    "abc",
    "ABC",
    "",
    "2013-01-10",
    "é",
    "e\u0301",
]
DATES = [dt.date(2013, 1, 10), dt.date(1, 1, 1), dt.date(9999, 12, 30), dt.date(9999, 12, 31)]
ZONED = [
    dt.datetime(2013, 1, 10, tzinfo=UTC), dt.datetime(2013, 1, 10, 5, tzinfo=UTC),
    dt.datetime(2013, 1, 10, 5, 0, 0, 1, tzinfo=UTC), dt.datetime(1, 1, 1, 0, 0, 1, tzinfo=UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]  # fmt: skip
TIMES = [time.replace(tzinfo=None) for time in ZONED]
DOUBLES = [0.0, 1.0, 7.0, 7.5, 0.1, float(2**53), 1e300]
BYTES = [b"", b"7", b"007", b"\x00", b"abc"]
DECIMALS = [D("0.1"), D("7.5"), D("12345678901234567.89")]
VALUES = {  # by Spark's type of the key
    "boolean": [True, False],
    "bigint": WHOLE,
    "double": [*DOUBLES, -0.0, float("inf"), float("nan"), SINGLE],
    "decimal": [*DECIMALS, D("7"), D("7.00"), D("1E+3")],
    "string": TEXTS,
    "binary": BYTES,
    "date": DATES,
    "timestamp": [*ZONED, *TIMES[:2]],
}
NUMBERS = [*WHOLE, 7.5, 0.1, SINGLE, 1e300]
SQLITE = {
    "INTEGER": [*NUMBERS, *TEXTS], "BIGINT": WHOLE, "REAL": NUMBERS, "DOUBLE PRECISION": NUMBERS,
    "NUMERIC": [*NUMBERS, *TEXTS], "DECIMAL(10,2)": NUMBERS, "TEXT": [*TEXTS, *WHOLE],
    "VARCHAR(20)": TEXTS, "BLOB": [*BYTES, "7", 7], "": [7, "7", b"7", 7.5], "STRING": [*TEXTS, 7],
    "BOOLEAN": [0, 1], "DATE": ["2013-01-10", "0001-01-01"], "DATETIME": ["2013-01-10 05:00:00"],
}  # fmt: skip
POSTGRES = {
    "smallint": [0, 1, 7, -7], "integer": WHOLE[:5], "bigint": WHOLE,
    "numeric": [*WHOLE, *DECIMALS], "real": DOUBLES[:5], "double precision": DOUBLES, "text": TEXTS,
    "varchar(20)": TEXTS, "char(12)": ["007", "7.0", "1e0", "abc", "2013-01-10"],
    "boolean": [True, False], "bytea": BYTES, "date": DATES, "timestamp": TIMES,
    "timestamptz": ZONED, "uuid": ["7b9c0f70-90a4-4d6f-8a05-2c6e3d0f0b11"],
    "of_date": DATES, "of_integer": WHOLE[:5], "of_numeric": DECIMALS[:2], "of_real": DOUBLES[:5],
    "of_of_timestamp": TIMES, "oid": [0, 1, 7], "time": ["05:00", "00:00"], "inet": ["0.0.0.7"],
}  # fmt: skip
DOMAINS = """
CREATE DOMAIN of_date AS date; CREATE DOMAIN of_integer AS integer; CREATE DOMAIN of_real AS real;
CREATE DOMAIN of_numeric AS numeric(19, 2); CREATE DOMAIN of_timestamp AS timestamp;
CREATE DOMAIN of_of_timestamp AS of_timestamp;
"""
LEFT_TO_THE_DRIVER = ("uuid", "time", "inet", "", "BLOB", "STRING")


def equal(key, value, column):
    """Whether Python takes both for equal. Blanks at the end of a char(n) do not count; SQLite's
    dates are text.
    """
    if column.startswith("char("):
        return isinstance(key, str) and key.rstrip(" ") == value.rstrip(" ")
    if isinstance(key, dt.datetime) or isinstance(value, dt.datetime):
        both = isinstance(key, dt.datetime) and isinstance(value, dt.datetime)
        return both and key.replace(tzinfo=UTC) == value.replace(tzinfo=UTC)
    if isinstance(key, dt.date) and isinstance(value, str):
        return key.isoformat() == value
    return key == value  # not so for NaN


def ask(declared, keys):
    async def one(caller, key):
        try:
            answer = await caller.call((key,))
            return None if answer is None else answer["n"]
        except CallFailed as failed:
            return failed

    async def main():
        caller = SqlClient(declared, 2)
        await caller.open()
        try:
            return await asyncio.gather(*(one(caller, key) for key in keys))
        finally:
            await caller.close()

    return asyncio.run(main())


def lookup(url, table, size):
    return SqlLookup(
        name="pair", url=url, table=table, keys={"k": "k"}, returns="n INT", timeout=60.0,
        max_concurrency=2, batch_size=size,
    )  # fmt: skip


def judged(declared, column, stored, keys):
    """What came of each key: its row, no row, or an error; asserted against Python. stored: (k, n)
    of each row.
    """
    came = ask(declared, keys)
    for key, answer in zip(keys, came, strict=True):
        wanted = [number for value, number in stored if equal(key, value, column)]
        if not isinstance(answer, CallFailed):
            assert [answer] == (wanted or [None]), (column, key, answer, wanted)
    return came


def kind(outcome):
    return CallFailed if isinstance(outcome, CallFailed) else outcome


def assert_checked(declared, column, came, *, whole):
    """What `check` refuses fails for every key, and of what it lets pass some key fails only by its
    own value.
    """
    for kind in VALUES if whole else random.Random(column).sample([*VALUES], 2):
        failed = [isinstance(came[repr(key)], CallFailed) for key in VALUES[kind]]
        refused = False
        try:
            asyncio.run(inspect(declared, {"k": kind}))
        except DeclarationError:
            refused = True
        assert all(failed) is refused or column in LEFT_TO_THE_DRIVER, (column, kind)


def assert_pairs(declare, tables, read, *, whole):
    hits = refused = 0
    keys = [key for values in VALUES.values() for key in values]
    random.Random(12).shuffle(keys)
    for column in tables if whole else random.Random(7).sample([*tables], 5):
        stored = read(column)
        alone, together = (judged(declare(column, size), column, stored, keys) for size in (1, 20))
        assert [kind(outcome) for outcome in alone] == [kind(outcome) for outcome in together], (
            column
        )
        assert_checked(
            declare(column, 1), column, dict(zip(map(repr, keys), alone, strict=True)), whole=whole
        )
        hits += sum(isinstance(outcome, int) for outcome in alone)
        refused += sum(isinstance(outcome, CallFailed) for outcome in alone)
    assert hits > 12
    assert refused > 60


WHOLE_OR_SHARE = [False, pytest.param(True, marks=pytest.mark.proof)]


@pytest.mark.parametrize("whole", WHOLE_OR_SHARE)
def test_keys_of_sqlite_match_only_equal_values(tmp_path, whole):
    path = tmp_path / "pairs.db"
    names = {column: f"t{number}" for number, column in enumerate(SQLITE)}
    with sqlite3.connect(path) as database:
        for column, values in SQLITE.items():
            database.execute(f"CREATE TABLE {names[column]} (k {column}, n INTEGER)")
            database.execute(f"CREATE INDEX i{names[column]} ON {names[column]} (k)")
            for number, value in enumerate(values):
                there = database.execute(f"SELECT k FROM {names[column]}").fetchall()
                database.execute(f"INSERT INTO {names[column]} VALUES (?, ?)", (value, number))
                (kept,) = database.execute(
                    f"SELECT k FROM {names[column]} WHERE n = ?", (number,)
                ).fetchone()
                if any(
                    kept == value for (value,) in there
                ):  # a key of two rows is an error of its own
                    database.execute(f"DELETE FROM {names[column]} WHERE n = ?", (number,))

    def read(column):
        with sqlite3.connect(path) as database:
            return database.execute(f"SELECT k, n FROM {names[column]}").fetchall()

    assert_pairs(
        lambda column, size: lookup(f"sqlite+aiosqlite:///{path}", names[column], size),
        SQLITE,
        read,
        whole=whole,
    )


@pytest.mark.proof
@pytest.mark.parametrize("whole", WHOLE_OR_SHARE)
def test_keys_of_postgresql_match_only_equal_values(postgres, monkeypatch, whole):
    database = postgres.new_database()
    monkeypatch.setenv("PAIRS_URL", postgres.url(database))
    names = {column: f"t{number}" for number, column in enumerate(POSTGRES)}
    connection = psycopg2.connect(
        host=postgres.host,
        port=postgres.port,
        user=postgres.user,
        password=postgres.password,
        dbname=database,
    )
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(DOMAINS)
            for column, values in POSTGRES.items():
                cursor.execute(f"CREATE TABLE {names[column]} (k {column} UNIQUE, n INTEGER)")
                for number, value in enumerate(values):
                    cursor.execute(
                        f"INSERT INTO {names[column]} VALUES (%s::{column}, %s)", (value, number)
                    )
                if column in ("date", "timestamp", "timestamptz", "of_date", "of_of_timestamp"):
                    cursor.execute(
                        f"INSERT INTO {names[column]} VALUES ('infinity', 100), ('-infinity', 101)"
                    )
    finally:
        connection.close()

    def read(column):
        if column in ("real", "of_real"):
            return [
                (struct.unpack("f", struct.pack("f", value))[0], n)
                for n, value in enumerate(POSTGRES[column])
            ]
        return [(value, number) for number, value in enumerate(POSTGRES[column])]

    assert_pairs(
        lambda column, size: lookup(Env("PAIRS_URL"), names[column], size),
        POSTGRES,
        read,
        whole=whole,
    )
