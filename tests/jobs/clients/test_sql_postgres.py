"""SqlLookup against a real PostgreSQL through asyncpg: types, many keys in one query, and what goes
wrong.
"""

import asyncio
import datetime as dt
import decimal
import functools
import itertools
import os
import socket
import time

import asyncpg
import polars as pl
import psycopg2
import pytest

from jobs.clients.client import CallFailed, Throttled
from jobs.clients.exchanges import EXCHANGES
from jobs.clients.sql import sql_inspection
from jobs.clients.sql.sql_client import SqlClient
from jobs.clients.sql.sql_engine import engine_for, failure
from jobs.clients.sql.sql_inspection import inspect
from jobs.declare.answers.answer_json import dump, load
from jobs.errors import DeclarationError, RunStopped
from tidegate import Enrichment, Env, Input, Output, Retry, SqlLookup, enrich

TABLES = """
CREATE SCHEMA fleet;
CREATE TABLE fleet.planes (tailnum TEXT PRIMARY KEY, seats INT, code CHAR(5));
INSERT INTO fleet.planes SELECT 'N' || n, n, 'c' || n FROM generate_series(1, 999) AS n;
INSERT INTO fleet.planes VALUES ('n1', 4, 'C1');
CREATE TABLE twice (k BIGINT, part DATE, word TEXT);
INSERT INTO twice VALUES (1, '2013-01-10', 'one'), (2, '2013-01-10', 'two'), (2, '2013-01-10', 'again'),
                         (3, '2013-01-11', NULL);
INSERT INTO twice SELECT 9, '2013-01-10', 'many' FROM generate_series(1, 500);
CREATE TYPE colour AS ENUM ('red', 'blue');
CREATE TABLE every (
    n NUMERIC(10,2), z TIMESTAMPTZ, at TIMESTAMP, d DATE, flag BOOLEAN, bytes BYTEA, doc JSONB, list INT[],
    id UUID, real_ FLOAT4, colour colour, "group" TEXT, ip INET, clock TIME, span INT4RANGE,
    place POINT
);
INSERT INTO every VALUES
    (12.34, '2013-01-10 05:00:00-05', '2013-01-10 05:00:00', '2013-01-10', true, '\\x00ff', '{"a": 1, "b": [2.5]}',
     '{1,2,NULL}', '7b9c0f70-90a4-4d6f-8a05-2c6e3d0f0b11', 1.5, 'red', 'x', '10.0.0.1',
     '05:00', '[1,5)', '(1,2)'),
    (NULL, NULL, '2013-01-10 06:00:00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'blue', NULL, NULL, NULL, NULL, NULL);
"""
EVERY = (
    "n DECIMAL(10,2), z TIMESTAMP, at TIMESTAMP, d DATE, flag BOOLEAN, bytes BINARY, doc STRUCT<a: "
    "INT, b: ARRAY<DOUBLE>>, list ARRAY<INT>, id STRING, real_ FLOAT, colour STRING, `group` "
    "STRING, ip STRING, clock STRING"
)
FIVE = dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def database(postgres):
    name = postgres.new_database()
    postgres.execute(TABLES, name)
    return name


@pytest.fixture
def lookup(postgres, database, monkeypatch):
    def declare(url=None, **fields):
        monkeypatch.setenv(name := f"PLANES_URL_{len(os.environ)}", url or postgres.url(database))
        standard = {
            "name": "plane",
            "url": Env(name),
            "table": None if "select" in fields else "fleet.planes",
            "keys": {"tailnum": "tail_number"},
            "returns": "seats INT",
            "timeout": 20.0,
            "max_concurrency": 4,
        }
        return SqlLookup(**standard | fields)

    return declare


@pytest.fixture
def lookup_in(lookup, postgres):
    """Declares lookups in a new database with these tables."""

    def make(tables):
        database = postgres.new_database()
        postgres.execute(tables, database)
        return functools.partial(lookup, postgres.url(database))

    return make


def ask(declared, *keys, share=2, between=None):
    """What came of each key, asked all at once (or, with `between`, one after another with that in
    between).
    """

    async def message(caller, key):
        try:
            answer = await caller.call(key)
            return None if answer is None else caller.columns(answer)
        except (CallFailed, ValueError) as error:
            return error

    async def main():
        caller = SqlClient(declared, share)
        await caller.open()
        try:
            if between is None:
                return await asyncio.gather(*(message(caller, key) for key in keys))
            said_so_far = []
            for key in keys:
                said_so_far.append(await message(caller, key))
                await asyncio.to_thread(between)
            return said_so_far
        finally:
            await caller.close()

    return asyncio.run(main())


def statements_of(declared, *keys):
    """The statements that went to the database."""

    async def main():
        heard = []
        EXCHANGES.set(heard)
        caller = SqlClient(declared, 1)
        await caller.open()
        try:
            await asyncio.gather(*(caller.call(key) for key in keys))
        finally:
            await caller.close()
        return [exchange.request for exchange in heard]

    return asyncio.run(main())


@pytest.mark.parametrize("batch_size", [1, 500])
def test_a_row_is_the_answer_and_no_row_is_a_miss_in_a_table_with_a_schema(lookup, batch_size):
    assert ask(lookup(batch_size=batch_size), ("N149",), ("N0",), ("n1",)) == [(149,), None, (4,)]


@pytest.mark.parametrize("batch_size", [1, 500])
def test_each_type_of_an_answer_is_read_from_postgresql(lookup, batch_size):
    declared = lookup(table="every", keys={"at": "at"}, returns=EVERY, batch_size=batch_size)
    first, second, third = ask(
        declared, (FIVE,), (FIVE + dt.timedelta(hours=1),), (FIVE + dt.timedelta(hours=2),)
    )
    assert first == (
        decimal.Decimal("12.34"), FIVE + dt.timedelta(hours=5), FIVE, dt.date(2013, 1, 10), True,
        b"\x00\xff", {"a": 1, "b": [2.5]}, [1, 2, None], "7b9c0f70-90a4-4d6f-8a05-2c6e3d0f0b11",
        1.5, "red", "x", "10.0.0.1", "05:00:00",
    )  # fmt: skip
    assert second[0] is None
    assert second[2] == FIVE + dt.timedelta(hours=1)
    assert third is None


def test_a_stored_answer_gives_the_same_columns_as_the_call(lookup):
    async def main():
        caller = SqlClient(lookup(table="every", keys={"at": "at"}, returns=EVERY), 1)
        await caller.open()
        try:
            answers = [await caller.call((FIVE + dt.timedelta(hours=hours),)) for hours in (0, 1)]
            return [
                (caller.columns(load(dump(answer))), caller.columns(answer)) for answer in answers
            ]
        finally:
            await caller.close()

    for kept, asked in asyncio.run(main()):
        assert kept == asked


@pytest.mark.parametrize("batch_size", [1, 5])
def test_an_array_of_a_type_that_becomes_text_is_an_array_of_texts(lookup_in, batch_size):
    declare = lookup_in(
        "CREATE TABLE opening (k INT, clocks TIME[], ids UUID[], nets CIDR[]); "
        "INSERT INTO opening VALUES (1, '{08:00,NULL,17:30:00.25}', "
        "'{7b9c0f70-90a4-4d6f-8a05-2c6e3d0f0b11}', '{10.0.0.0/8}')"
    )
    declared = declare(
        table="opening",
        keys={"k": "k"},
        batch_size=batch_size,
        returns="clocks ARRAY<STRING>, ids ARRAY<STRING>, nets ARRAY<STRING>",
    )
    assert ask(declared, (1,)) == [
        (
            ["08:00:00", None, "17:30:00.250000"],
            ["7b9c0f70-90a4-4d6f-8a05-2c6e3d0f0b11"],
            ["10.0.0.0/8"],
        )
    ]


@pytest.mark.parametrize("scheme", ["postgresql+asyncpg", "postgresql", "postgres"])
def test_an_address_may_be_as_providers_of_postgresql_write_it(lookup, postgres, database, scheme):
    address = postgres.url(database).replace("postgresql+asyncpg", scheme)
    for mode in ("disable", "prefer"):
        assert ask(
            lookup(f"{address}?sslmode={mode}&ssl_min_protocol_version=TLSv1.3"), ("N149",)
        ) == [(149,)]
    for url, message in (
        (f"{address}?sslmode=require", "rejected SSL upgrade"),
        (
            f"{address}?sslmode=verify-full&sslrootcert=/no/ca.pem",
            "No such file or directory: a file that the address names",
        ),
        (f"{address}?connect_timeout=9", 'configuration parameter "connect_timeout"'),
    ):
        (failure,) = ask(lookup(url), ("N149",))
        assert message in str(failure)


def test_settings_of_an_address_are_the_settings_of_the_session(lookup, postgres, database):
    declared = lookup(
        f"{postgres.url(database)}?application_name=tidegate&options=-csearch_path%3Dfleet",
        select="SELECT seats, current_setting('application_name') AS name FROM planes "
        "WHERE tailnum = :tailnum",
        returns="seats INT, name STRING",
    )
    assert ask(declared, ("N149",)) == [(149, "tidegate")]


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_type_that_no_answer_has_is_reported_with_the_cure(lookup, batch_size):
    declared = lookup(
        table="every", keys={"at": "at"}, returns="span STRING", batch_size=batch_size
    )
    (failure,) = ask(declared, (FIVE,))
    assert str(failure) == (
        "the database's Range is not a type of an answer; cast it to text in a select"
    )
    assert not failure.passing


@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_key_matches_only_equal_values_of_a_domain(lookup_in, batch_size):
    declare = lookup_in(
        """
        CREATE DOMAIN number AS integer; CREATE DOMAIN price AS numeric(10, 2);
        CREATE DOMAIN day AS date; CREATE DOMAIN birthday AS day;
        CREATE TABLE sold (number number, price price, day birthday, at time, ip inet);
        INSERT INTO sold VALUES (7, 1.50, '2013-01-10', '05:00', '0.0.0.7');
        """
    )
    never = {"number": 7.4, "day": FIVE, "at": FIVE, "ip": 7}
    matches = {"number": 7, "price": decimal.Decimal("1.5"), "day": FIVE.date(), "ip": "0.0.0.7"}

    def asked(column, key):
        declared = declare(
            table="sold",
            keys={column: "k"},
            returns="number INT",
            batch_size=batch_size,
        )
        return ask(declared, (key,))[0]

    for column, key in never.items():
        assert "not compare" in str(asked(column, key)), column
    assert asked("price", decimal.Decimal("1.501")) is None
    assert [asked(*pair) for pair in matches.items()] == [(7,)] * 4


@pytest.mark.parametrize("batch_size", [1, 2])
def test_json_keeps_the_digits_of_numbers_and_a_repeated_member_is_an_error(
    lookup, postgres, batch_size
):
    database = postgres.new_database()
    digits = "12345678901234567890.123456789"
    postgres.execute(
        f"""
        CREATE TABLE documents (id BIGINT, doc JSON);
        INSERT INTO documents VALUES (1, '{{"a": {digits}}}'), (2, '{{"a": 1, "a": 2}}');
        CREATE TABLE binaries AS SELECT id, doc::jsonb FROM documents WHERE id = 1;
        """,
        database,
    )
    for table in ("documents", "binaries"):
        declared = lookup(
            postgres.url(database), table=table, keys={"id": "k"},
            returns="doc STRUCT<a: DECIMAL(38,9)>", batch_size=batch_size,
        )  # fmt: skip
        first, second, again = ask(declared, (1,), (2,), (1,), share=1)
        assert first == again == ({"a": decimal.Decimal(digits)},)
        assert second is None or 'member "a" twice' in str(second)
        assert (second is None) is (table == "binaries")


@pytest.mark.parametrize(
    ("column", "key"),
    [
        ("n", decimal.Decimal("12.340")),
        ("z", FIVE + dt.timedelta(hours=5)),
        ("d", dt.date(2013, 1, 10)),
        ("flag", True),
        ("bytes", b"\x00\xff"),
        ("id", "7b9c0f70-90a4-4d6f-8a05-2c6e3d0f0b11"),
        ("real_", 1.5),
        ("colour", "red"),
        ("group", "x"),
    ],
)
@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_key_may_have_each_supported_type_of_postgresql(lookup, column, key, batch_size):
    declared = lookup(
        table="every", keys={column: "k"}, returns="`group` STRING", batch_size=batch_size
    )
    assert ask(declared, (key,)) == [("x",)]


@pytest.mark.parametrize("batch_size", [1, 5])
def test_names_of_tables_and_columns_keep_their_case(lookup, postgres, database, batch_size):
    postgres.execute(
        """CREATE TABLE IF NOT EXISTS "Odd.table :x" ("a%b C" TEXT, "x{y}:z" INT, "sel""ect" INT);
           DELETE FROM "Odd.table :x"; INSERT INTO "Odd.table :x" VALUES ('k%', 1, 2)""",
        database,
    )
    declared = lookup(
        table='public."Odd.table :x"',
        keys={"a%b C": "k"},
        returns='`x{y}:z` INT, `sel"ect` INT',
        batch_size=batch_size,
    )
    assert ask(declared, ("k%",), ("k",)) == [(1, 2), None]
    asyncio.run(inspect(declared))


def test_many_keys_go_in_one_query_and_each_has_its_own_outcome(lookup):
    declared = lookup(batch_size=500)
    keys = [(f"N{number}",) for number in range(1000)]
    assert ask(declared, *keys) == [None, *((number,) for number in range(1, 1000))]
    assert len(statements_of(declared, *keys[:500])) == 1


def test_one_statement_serves_batches_of_every_size(lookup):
    one, two = statements_of(lookup(batch_size=3), ("N1",), ("N2",), ("N3",), ("N4",), ("N5",))
    assert one.partition(" LIMIT ")[0] == two.partition(" LIMIT ")[0]


def test_keys_that_the_database_considers_equal_get_the_same_row(lookup):
    """CHAR pads: the row holds 'c7   ', and both keys mean it. Compared in Python both would be misses."""
    declared = lookup(keys={"code": "code"}, returns="seats INT, code STRING", batch_size=10)
    assert ask(declared, ("c7",), ("c7 ",), ("C7",), ("c7",)) == [
        (7, "c7   "),
        (7, "c7   "),
        None,
        (7, "c7   "),
    ]


@pytest.mark.parametrize("batch_size", [1, 10])
def test_two_rows_for_a_key_are_an_error_of_that_key_only(lookup, batch_size):
    declared = lookup(
        table="twice", keys={"k": "k", "part": "part"}, returns="word STRING", batch_size=batch_size
    )
    day = dt.date(2013, 1, 10)
    one, two, null, miss = ask(
        declared, (1, day), (2, day), (3, dt.date(2013, 1, 11)), (1, dt.date(2013, 1, 11))
    )
    assert (one, null, miss) == (("one",), (None,), None)
    assert isinstance(two, CallFailed)
    assert str(two) == "twice has two or more rows for this key; a lookup gives one"
    assert not two.passing


def test_a_key_of_very_many_rows_costs_the_other_keys_nothing(lookup):
    """The query is cut, and the keys are asked one by one."""
    declared = lookup(table="twice", keys={"k": "k"}, returns="word STRING", batch_size=3)
    one, many, miss = ask(declared, (1,), (9,), (7,))
    assert (one, miss) == (("one",), None)
    assert "two or more rows" in str(many)


def test_a_value_that_the_database_cannot_take_is_the_error_of_its_own_key(lookup):
    declared = lookup(batch_size=500)
    keys = [(f"N{number}",) for number in range(1, 101)]
    answers = ask(declared, *keys[:50], ("N\0",), *keys[50:])
    assert answers[:50] + answers[51:] == [(number,) for number in range(1, 101)]
    assert isinstance(answers[50], CallFailed)
    assert not answers[50].passing


def test_a_text_that_ltree_refuses_is_an_error_of_that_key_only(lookup_in):
    declare = lookup_in(
        "CREATE TABLE words (k TSVECTOR, n INT); INSERT INTO words VALUES ('a b', 1), ('c', 2)"
    )
    declared = declare(table="words", keys={"k": "k"}, returns="n INT", batch_size=3)
    first, refused, second = ask(declared, ("a b",), ("05:00",), ("c",))
    assert (first, second) == ((1,), (2,))
    assert "wrong position info" in str(refused)


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize(
    "kind", ["time", "timetz", "interval", "bit(3)", "varbit", '"char"', "int[]", "int4range"]
)
def test_a_column_whose_driver_takes_no_text_is_refused_with_the_cure(lookup_in, kind, batch_size):
    declare = lookup_in(f"CREATE TABLE odd (k {kind}, n INT)")
    declared = declare(table="odd", keys={"k": "k"}, returns="n INT", batch_size=batch_size)
    with pytest.raises(DeclarationError, match="such as WHERE CAST"):
        asyncio.run(inspect(declared, {"k": "string"}))
    (refused,) = ask(declared, ("05:00",))
    assert "Write a select, such as WHERE CAST(k AS text) = :k." in str(refused)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_key_that_does_not_fit_its_column_is_reported_without_the_value(lookup, batch_size):
    (failure,) = ask(
        lookup(keys={"seats": "k"}, returns="code STRING", batch_size=batch_size), ("s3cret (1)",)
    )
    assert isinstance(failure, CallFailed)
    assert not failure.passing
    assert "s3cret" not in str(failure)
    assert str(failure).startswith(
        "keys.seats: the key is string, and the column seats of fleet.planes is integer; "
    )
    assert str(failure).endswith('Write "cast(k as bigint)".')


def test_a_select_gets_its_values_as_parameters_only(lookup):
    declared = lookup(
        select="SELECT code::text AS code, ':no' AS colon, seats /* :neither */ FROM fleet.planes "
        "WHERE tailnum = :tailnum::text AND (seats < :most OR :most IS NULL) -- and :that",
        keys={"tailnum": "t", "most": "m"},
        returns="seats INT, colon STRING",
    )
    injected = "N1' OR '1'='1"
    assert ask(declared, ("N1", 9), ("N10", 9), (injected, 9)) == [(1, ":no"), None, None]


@pytest.mark.parametrize(
    ("key", "kind", "message"),
    [
        ("N1", "string", 'the key is string, and the select compares :n as bigint. Write "cast(k '),
        (1, "bigint", 'the key is bigint, and the select compares :t as text. Write "cast(j '),
    ],
)
def test_a_text_for_a_number_of_a_select_is_refused_with_the_cure(lookup, key, kind, message):
    declared = lookup(
        select="SELECT seats FROM fleet.planes WHERE seats = :n AND tailnum = :t",
        keys={"n": "k", "t": "j"},
    )
    with pytest.raises(DeclarationError) as before:
        asyncio.run(inspect(declared, {"n": kind if kind == "string" else "int", "t": kind}))
    assert message in str(before.value)
    (failure,) = ask(declared, (key, key))
    assert message in str(failure)


@pytest.fixture
def in_kathmandu(monkeypatch):
    """The zone in which the driver reads a time without a zone."""
    with monkeypatch.context() as abroad:
        abroad.setenv("TZ", "Asia/Kathmandu")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_kathmandu")
@pytest.mark.parametrize(
    ("condition", "key", "came"),
    [
        ("n = :k", 1.0, (1,)),
        ("n = :k", 1.4, "the key is not a whole number"),
        ("n = :k", decimal.Decimal("1.4"), "the key is not a whole number"),
        ("n = :k", decimal.Decimal(10**37), "does not fit: value out of int"),
        ("n = :k", True, "the key is not a whole number"),
        ("n = CAST(:k AS numeric)", 1.4, None),
        ("p = :k", 1.4, (1,)),
        ("p = :k", "1.4", (1,)),
        ("p = :k", True, "the key is not a number"),
        ("f = CAST(:k AS numeric)", 1.1, (1,)),
        ("d = :k", FIVE.date(), (1,)),
        ("d = :k", FIVE, "the key is a timestamp, which the driver would cut to its date"),
        ("d = CAST(:k AS timestamp)", FIVE, None),
        ("at = :k", FIVE, (1,)),
        ("at = CAST(:k AS date)", FIVE.date(), None),
        ("z = :k", FIVE.replace(tzinfo=None), (1,)),
        ("z - INTERVAL '5 hours' = :k", FIVE.date(), (1,)),
        ("r = :k", 1.4, "the key is not a number that"),
        ("f = :k", decimal.Decimal("1.1000"), (1,)),
        ("f = :k", decimal.Decimal("1.10000000000000000001"), "the key is not a number that"),
        ("f = :k", decimal.Decimal(10**37), None),
    ],
)
def test_a_key_reaches_a_select_unchanged_by_the_driver(lookup_in, condition, key, came):
    declare = lookup_in(
        "CREATE TABLE t (n INT, d DATE, at TIMESTAMP, z TIMESTAMPTZ, r REAL, f FLOAT8, p NUMERIC); "
        "INSERT INTO t VALUES "
        "(1, '2013-01-10', '2013-01-10 05:00', '2013-01-10 05:00+00', 1.5, 1.1, 1.4)"
    )
    declared = declare(
        select=f"SELECT n FROM t WHERE {condition}",
        keys={"k": "k"},
        returns="n INT",
    )
    (answer,) = ask(declared, (key,))
    if isinstance(came, str):
        assert came in str(answer)
    else:
        assert answer == came


def test_a_select_of_two_rows_is_an_error(lookup):
    (failure,) = ask(
        lookup(
            select="SELECT word FROM twice WHERE k = :k", keys={"k": "k"}, returns="word STRING"
        ),
        (2,),
    )
    assert str(failure) == "the select has two or more rows for this key; a lookup gives one"


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_connection_closed_by_the_server_is_a_passing_failure_and_is_replaced(
    lookup, postgres, database, batch_size
):
    def end_all():
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{database}' AND pid <> pg_backend_pid()"
        )

    answers = ask(
        lookup(batch_size=batch_size), ("N1",), ("N2",), ("N3",), share=1, between=end_all
    )
    assert answers[0] == (1,)
    assert isinstance(answers[1], CallFailed)
    assert answers[1].passing
    assert ask(lookup(batch_size=batch_size), ("N3",)) == [(3,)]


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.usefixtures("project")
def test_rows_wait_where_a_database_has_no_free_connection(lookup, postgres, database, batch_size):
    postgres.execute(
        f"CREATE ROLE few{batch_size} LOGIN PASSWORD 'pw' CONNECTION LIMIT 1; "
        f"GRANT USAGE ON SCHEMA fleet TO few{batch_size}; "
        f"GRANT SELECT ON fleet.planes TO few{batch_size}",
        database,
    )
    url = f"postgresql://few{batch_size}:pw@{postgres.host}:{postgres.port}/{database}"
    plane = lookup(url=url, batch_size=batch_size, max_wait=0.0, retry=Retry(retries=0))
    planes = Enrichment(
        name="planes",
        input=Input(path="unread"),
        lookups=[plane],
        output=Output(path="unwritten"),
    )
    numbers = range(1, 3 * batch_size + 1)
    found = enrich(pl.DataFrame({"tail_number": [f"N{number}" for number in numbers]}), planes)
    assert found["seats"].to_list() == [*numbers]


@pytest.mark.parametrize("state", ["57P01", "57P02", "57P03"])
def test_a_database_that_starts_or_stops_counts_as_an_outage(lookup, state):
    error = asyncpg.exceptions.PostgresError.new({"C": state, "M": "the database system starts up"})
    raised = failure(error, declared := lookup(), engine_for(declared))
    assert isinstance(raised, Throttled)
    assert (str(raised), raised.status) == ("the database system starts up", 503)


def test_texts_in_an_array_are_not_read_as_base64_bytes(lookup):
    text, octets = (
        lookup(
            select=f"SELECT {array} AS parts WHERE :k > 0", keys={"k": "k"},
            returns="parts ARRAY<BINARY>",
        )
        for array in ("ARRAY['beef', NULL]", "ARRAY['\\xbeef'::bytea, NULL]")
    )  # fmt: skip
    (error,) = ask(text, (1,))
    assert "parts: expected BINARY, got the text 'beef'; give its bytes in a select" in str(error)
    assert ask(octets, (1,)) == [([b"\xbe\xef", None],)]


def test_a_whole_numeric_is_an_integer(lookup):
    select = "SELECT CAST(7 AS numeric(10,0)) AS n, 8.00 AS m WHERE :k > 0"
    declared = lookup(select=select, keys={"k": "k"}, returns="n BIGINT, m INT")
    assert ask(declared, (1,)) == [(7, 8)]


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_time_with_a_zone_keeps_the_seconds_of_its_offset(lookup_in, batch_size):
    declare = lookup_in(
        "CREATE TABLE zones (k TEXT, clock TIMETZ, clocks TIMETZ[]); INSERT INTO zones VALUES "
        "('a', '05:00:00.25+01:02:03', '{05:00:00+01, 05:00:00-01:02:03}')"
    )
    declared = declare(
        table="zones",
        keys={"k": "k"},
        batch_size=batch_size,
        returns="clock STRING, clocks ARRAY<STRING>",
    )
    assert ask(declared, ("a",)) == [
        ("05:00:00.250000+01:02:03", ["05:00:00+01:00", "05:00:00-01:02:03"])
    ]


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_query_with_an_outdated_plan_is_a_passing_failure(lookup, postgres, batch_size):
    database = postgres.new_database()
    postgres.execute("CREATE TABLE valid (k INT, v INT); INSERT INTO valid VALUES (1, 2)", database)
    kinds = itertools.cycle(("bigint", "int"))

    def change():
        postgres.execute(f"ALTER TABLE valid ALTER COLUMN v TYPE {next(kinds)}", database)

    declared = lookup(
        postgres.url(database), table="valid", keys={"k": "k"}, returns="v INT",
        batch_size=batch_size,
    )  # fmt: skip
    first, second, third = ask(declared, (1,), (1,), (1,), share=1, between=change)
    assert first == (2,)
    assert isinstance(second, CallFailed)
    assert second.passing
    assert third == (2,)


ASLEEP = "SELECT 1 AS seats, pg_sleep(20) FROM fleet.planes WHERE tailnum = :tailnum"
SLEEPING = (
    "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(20)%' AND pid <> "
    "pg_backend_pid()"
)


def test_a_query_cancelled_by_the_server_is_a_passing_failure(lookup, postgres, wait_for):
    def end_it():
        wait_for(lambda: postgres.execute(SLEEPING) == [(1,)])
        postgres.execute(f"SELECT pg_terminate_backend(pid) {SLEEPING.partition('count(*)')[2]}")

    async def main():
        caller = SqlClient(lookup(select=ASLEEP), 1)
        await caller.open()
        try:
            call = asyncio.create_task(caller.call(("N1",)))
            await asyncio.to_thread(end_it)
            with pytest.raises(CallFailed) as failed:
                await call
            return failed.value
        finally:
            await caller.close()

    failure = asyncio.run(main())
    assert failure.passing
    assert "connection was closed" in str(failure)


def test_a_query_over_its_time_limit_is_ended_at_the_server_too(lookup, postgres, wait_for):
    (failure,) = ask(
        lookup(
            select="SELECT 1 AS seats, pg_sleep(20) FROM fleet.planes WHERE tailnum = :tailnum",
            attempt_timeout=0.2,
        ),
        ("N1",),
    )
    assert failure.passing
    assert str(failure) == "no answer within 0.2 s"
    wait_for(lambda: postgres.execute(SLEEPING) == [(0,)])


def test_a_statement_timeout_of_the_server_is_a_passing_failure(lookup, postgres, database):
    postgres.execute(
        "CREATE ROLE hasty LOGIN PASSWORD 'h'; ALTER ROLE hasty SET statement_timeout = '50ms'"
    )
    url = f"postgresql+asyncpg://hasty:h@{postgres.host}:{postgres.port}/{database}"
    (failure,) = ask(
        lookup(url=url, select="SELECT 1 AS seats, pg_sleep(20) WHERE :tailnum <> ''"), ("N1",)
    )
    assert failure.passing
    assert str(failure) == "canceling statement due to statement timeout"


def test_a_refusal_of_the_database_stops_the_run_in_one_sentence(lookup, postgres, database):
    postgres.execute("CREATE ROLE weak LOGIN PASSWORD 'w'")
    address = f"{postgres.host}:{postgres.port}/{database}"
    for url, message in (
        (
            postgres.url(database, password="Zq9-secret"),
            'password authentication failed for user "tester"',
        ),
        (
            f"postgresql+asyncpg://tester@{address}?password=Zq9-secret",
            "password authentication failed for user",
        ),
        (postgres.url("nowhere", password=postgres.password), 'database "nowhere" does not exist'),
        (f"postgresql+asyncpg://weak:w@{address}", "permission denied for schema fleet"),
    ):
        with pytest.raises(RunStopped) as stopped:
            ask(lookup(url=url), ("N1",))
        assert message in str(stopped.value)
        assert "\n" not in str(stopped.value)
        assert "Zq9-secret" not in str(stopped.value)
        assert postgres.password not in str(stopped.value)


def test_an_unreachable_server_is_a_passing_failure(lookup):
    (failure,) = ask(lookup(url="postgresql+asyncpg://me:pw@127.0.0.1:1/db"), ("N1",))
    assert failure.passing


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"table": "planes"}, "has no table 'planes'"),
        ({"table": "fleet.boats"}, "has no table 'fleet.boats'"),
        (
            {"table": "every", "keys": {"place": "k"}, "returns": "n INT"},
            "every: the database refuses the query: operator does not exist: point",
        ),
        ({"table": "locked"}, "locked: the database refuses the query: permission denied"),
        (
            {"returns": "wings INT"},
            "no column 'wings' in table fleet.planes. It has: tailnum, seats, code.",
        ),
        (
            {"select": "SELECT seats FROM boats WHERE tailnum = :tailnum"},
            'the select: the database refuses the query: relation "boats"',
        ),
        (
            {
                "select": "SELECT * FROM fleet.planes WHERE tailnum = :tailnum",
                "returns": "wings INT",
            },
            "wings does not",
        ),
    ],
)
def test_a_missing_table_or_column_is_reported_before_spark_starts(
    lookup, postgres, fields, message
):
    database = postgres.new_database()
    reader = f"reader_{database}"
    postgres.execute(
        f"""{TABLES} CREATE TABLE locked (tailnum TEXT, seats INT);
        CREATE ROLE {reader} LOGIN PASSWORD '{postgres.password}'; GRANT USAGE ON SCHEMA fleet TO {reader};
        GRANT SELECT ON fleet.planes, twice, every TO {reader}; GRANT SELECT (tailnum) ON locked TO {reader};""",
        database,
    )
    url = postgres.url(database).replace(f"{postgres.user}:", f"{reader}:")
    with pytest.raises(DeclarationError) as error:
        asyncio.run(inspect(lookup(url, **fields)))
    assert message in str(error.value)


def test_a_matching_table_passes_the_inspection(lookup):
    asyncio.run(inspect(lookup()))
    # a type of PostgreSQL's own
    asyncio.run(inspect(lookup(table="every", keys={"n": "n"}, returns="place STRING")))
    asyncio.run(inspect(lookup(select="SELECT seats FROM fleet.planes WHERE tailnum = :tailnum")))


def test_a_server_that_is_down_before_the_run_is_reported_as_an_outage(lookup):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(RunStopped) as stop:
        asyncio.run(
            inspect(lookup(url=f"postgresql+asyncpg://tester:Zq9-secret@127.0.0.1:{port}/fleet"))
        )
    assert str(stop.value).startswith(
        "service plane database: postgresql+asyncpg://tester:***@127.0.0.1:"
    )
    assert "cannot be reached: " in str(stop.value)
    assert "Zq9-secret" not in str(stop.value)


def test_the_inspection_of_a_locked_table_ends_at_its_time_limit(
    lookup, postgres, database, monkeypatch
):
    monkeypatch.setattr(sql_inspection, "INSPECTED_WITHIN", 1.0)
    holder = psycopg2.connect(postgres.url(database, driver="postgresql"))
    try:
        holder.cursor().execute("LOCK TABLE fleet.planes IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(RunStopped, match="no answer within 1 s; a table may be locked"):
            asyncio.run(asyncio.wait_for(inspect(lookup()), 20))
    finally:
        holder.close()


def test_a_wrong_password_is_one_sentence_before_spark_starts(lookup, postgres, database):
    with pytest.raises(DeclarationError) as error:
        asyncio.run(inspect(lookup(url=postgres.url(database, password="Zq9-secret"))))
    assert 'password authentication failed for user "tester".' in str(error.value)
    assert "Zq9-secret" not in str(error.value)
    assert "\n" not in str(error.value)


INFINITE = """
CREATE TABLE valid (k INT, day DATE, at TIMESTAMPTZ, days DATE[]);
INSERT INTO valid VALUES
    (1, '9999-12-31', '9999-12-31 23:59:59.999999Z', '{9999-12-31}'),
    (2, 'infinity', '2013-01-10 00:00Z', NULL), (3, '2013-01-10', '-infinity', NULL), (4, NULL, NULL, '{infinity}');
"""


@pytest.mark.parametrize(
    "fields",
    [
        {"table": "valid"},
        {"table": "valid", "batch_size": 9},
        {"select": "SELECT * FROM valid WHERE k = :k"},
    ],
)
def test_an_infinite_date_or_time_is_an_error_of_its_row_and_the_year_9999_is_not(
    lookup_in, fields
):
    declare = lookup_in(INFINITE)
    returns = "day DATE, at TIMESTAMP, days ARRAY<DATE>"
    declared = declare(keys={"k": "k"}, returns=returns, **fields)
    last, *infinite = ask(declared, (1,), (2,), (3,), (4,))
    day = dt.date(9999, 12, 31)
    assert last == (day, dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC), [day])
    assert [str(failure) for failure in infinite] == [
        f"{name} is infinite in the database, which no date or time can be"
        for name in ("day", "at", "days")
    ]
    assert not any(failure.passing for failure in infinite)


@pytest.mark.parametrize("batch_size", [1, 9])
def test_the_text_infinity_in_json_is_not_an_infinite_time(lookup_in, batch_size):
    declare = lookup_in(
        """
        CREATE TABLE hotels (k INT, doc JSONB);
        INSERT INTO hotels VALUES
            (1, '{"name": "infinity pool", "at": "2013-01-10"}'), (2, '{"name": "b", "at": "infinity"}')
        """
    )
    declared = declare(
        table="hotels",
        keys={"k": "k"},
        batch_size=batch_size,
        returns="doc STRUCT<name: STRING, at: TIMESTAMP>",
    )
    pool, infinite = ask(declared, (1,), (2,))
    at = dt.datetime(2013, 1, 10, tzinfo=dt.UTC)
    assert pool == ({"name": "infinity pool", "at": at},)
    assert "got 'infinity'" in str(infinite)
