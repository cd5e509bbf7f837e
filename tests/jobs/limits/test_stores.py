"""The books of all services lie in a file of this machine or in PostgreSQL, whole, whoever writes
at once.
"""

import asyncio
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import DeclarationError, RunStopped, TidegateError
from jobs.limits import file_store
from jobs.limits.lease_book import Claim, Limit
from jobs.limits.postgres_store import SCHEMA_LOCK
from jobs.limits.store import BookCorrupt, StoreLost, book_in
from jobs.limits.store_url import LIMITS_URL, STATE_HOME, limits_url, open_store
from jobs.run.coordinator.run_leases import RunLeases, check_limits
from tests.support.transaction_pooler import pgbouncer, pooled
from tidegate import HttpLookup, Service


@pytest.fixture(params=["file", "postgresql"])
def url(request, tmp_path):
    if request.param == "file":
        return f"file://{tmp_path}/limits.sqlite"
    server = request.getfixturevalue("postgres")
    return f"postgresql://{server.user}:{server.password}@{server.host}:{server.port}/{server.new_database()}"


def beat(owner, wants=10):
    return lambda book, now: book.heartbeat(
        owner, {"calls": Claim(Limit(10), wants, wants)}, now=now, ttl=60
    )


@pytest.mark.process
def test_concurrent_steps_are_applied_one_by_one_and_none_is_lost(url):
    async def main():
        stores = [open_store(url) for _ in range(5)]

        async def one(number):
            return await stores[number % 5].step("geo", beat(f"run-{number}", wants=1))

        answers = await asyncio.gather(*map(one, range(25)))
        books, now = await stores[0].books()
        for store in stores:
            await store.close()
        return [answer.shares["calls"].has for answer in answers], books["geo"], now

    given, book, now = asyncio.run(main())
    assert sum(given) == book.held("calls") == 10
    assert len(book.rows(now)) == 25
    assert {round(row["expires_in_s"]) for row in book.rows(now)} <= {58, 59, 60}


AT_ONCE = """
import asyncio, contextlib, locale, sys
from jobs.limits.file_store import FileStore

if not locale.setlocale(locale.LC_CTYPE).startswith("tr_TR"):
    sys.exit("no Turkish")
first, second = (FileStore(sys.argv[1], patience=1.0) for _ in range(2))
decisions = []

def decide(book, now):
    decisions.append(now)
    if len(decisions) == 1:  # another run decides meanwhile
        with contextlib.suppress(StopIteration):
            second.step("geo", lambda book, now: None).send(None)

asyncio.run(first.step("geo", decide))
print(len(decisions))
"""


@pytest.mark.process
def test_a_conflicting_step_is_repeated_also_in_a_turkish_locale(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", AT_ONCE, tmp_path / "limits.sqlite"],
        env=os.environ | {"LC_ALL": "tr_TR.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "no Turkish" in ended.stderr:
        pytest.skip("this machine has no Turkish locale")
    assert ended.stdout == "2\n", ended.stderr


@pytest.mark.process
def test_a_change_told_to_a_store_reaches_its_listeners(url):
    async def main():
        here, there = open_store(url), open_store(url)
        await here.step("geo", beat("a"))
        heard = asyncio.create_task(anext(there.changes()))
        while not heard.done():
            await asyncio.sleep(0.05)
            await here.tell("geo")
        await here.close()
        await there.close()
        return heard.result()

    assert asyncio.run(asyncio.wait_for(main(), 10)) == "geo"


def test_the_books_of_an_earlier_start_of_the_machine_lose_their_leases(tmp_path):
    url = f"file://{tmp_path}/limits.sqlite"

    async def main():
        await stepped(tmp_path / "limits.sqlite", boot="earlier")
        store = open_store(url)
        books, now = await store.books()
        answer = await store.step("geo", beat("b"))
        await store.close()
        return books["geo"].rows(now), answer.shares["calls"].has

    assert asyncio.run(main()) == ([], 10)


def test_a_machine_that_uses_the_file_of_another_machine_is_refused(tmp_path):
    async def main():
        here, there = (open_store(f"file://{tmp_path}/limits.sqlite") for _ in range(2))
        there._boot = "of another machine"

        async def beats():
            while True:
                await here.step("geo", beat("a"))
                await asyncio.sleep(0.1)

        beating = asyncio.create_task(beats())
        await asyncio.sleep(0.2)
        with pytest.raises(
            BookCorrupt,
            match=(
                r"limits.sqlite, is written by another machine too. "
                r"A file is for the"
            ),
        ):
            await there.books()
        assert not beating.done()
        beating.cancel()
        await there.step("geo", beat("b"))  # one that has begun before the other was at work
        with pytest.raises(BookCorrupt, match="is written by another machine too"):
            await here.step("geo", beat("a"))
        await here.close()
        await there.close()

    asyncio.run(main())


def test_runs_that_begin_together_after_a_restart_take_over_the_books_once(tmp_path, monkeypatch):
    monkeypatch.setattr(file_store, "WRITTEN_WITHIN", 0.2)

    async def main():
        before, one, other = (open_store(f"file://{tmp_path}/limits.sqlite") for _ in range(3))
        before._boot = "earlier"
        await before.step("geo", beat("a"))
        await before.close()

        async def later():
            await asyncio.sleep(0.1)
            return await other.books()

        found = await asyncio.gather(one.books(), later())
        await one.close()
        await other.close()
        return [[*books] for books, _ in found]

    assert asyncio.run(main()) == [["geo"], ["geo"]]


def test_check_refuses_a_corrupt_book_of_an_earlier_start(tmp_path, monkeypatch):
    path = tmp_path / "limits.sqlite"
    monkeypatch.setenv(LIMITS_URL, f"file://{path}")
    monkeypatch.setattr(file_store, "WRITTEN_WITHIN", 0.0)
    asyncio.run(stepped(path, boot="earlier"))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE books SET book = '{'")
    connection.close()
    with pytest.raises(DeclarationError, match=r"the book of the limits of geo in .* is corrupt"):
        check_limits([GEO], ())


def test_a_power_cut_leaves_a_complete_file_of_limits(tmp_path):
    async def main():
        store = open_store(f"file://{tmp_path}/limits.sqlite")
        await store.step("geo", beat("a"))
        found = [
            store._connected().execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous")
        ]
        await store.close()
        return found

    assert asyncio.run(main()) == ["wal", 1]  # NORMAL


@pytest.mark.process
@pytest.mark.parametrize("rights", ["", "SELECT", "SELECT, UPDATE"])
def test_a_database_role_that_cannot_write_the_books_is_refused_before_spark_starts(
    postgres, monkeypatch, rights
):
    database, role = postgres.new_database(), f"reader_{len(rights)}"
    address = f"{postgres.host}:{postgres.port}/{database}"

    async def main():
        owner = open_store(f"postgresql://{postgres.user}:{postgres.password}@{address}")
        await owner.step("geo", beat("a"))
        await owner._on_connection(lambda connection: connection.execute(
            f"CREATE ROLE {role} LOGIN PASSWORD 'SECRET'; GRANT USAGE ON SCHEMA tidegate TO {role};"
            + (f"GRANT {rights} ON tidegate.limit_books TO {role}" if rights else "")
        ))  # fmt: skip
        await owner.close()

    asyncio.run(main())
    monkeypatch.setenv(LIMITS_URL, f"postgresql://{role}:SECRET@{address}")
    refused = (
        r"the store of the limits cannot be written \(InsufficientPrivilegeError\): the role needs "
        r"SELECT, INSERT and "
        r"UPDATE on tidegate\.limit_books, and no call may start without it"
    )
    with pytest.raises(RunStopped, match=refused):
        check_limits([GEO], ())
    leases = RunLeases(open_store(os.environ[LIMITS_URL]), "a run")
    with pytest.raises(RunStopped, match=refused):
        leases.check()
    leases.close()


@pytest.mark.process
def test_a_connection_that_ends_within_a_query_is_a_lost_store_and_replaced(postgres):
    async def ends(_connection):
        raise asyncpg.InternalClientError(
            "cannot switch to state 12; another operation is in progress"
        )

    async def main():
        address = f"{postgres.host}:{postgres.port}/{postgres.new_database()}"
        store = open_store(f"postgresql://{postgres.user}:{postgres.password}@{address}")
        with pytest.raises(StoreLost, match="does not answer"):
            await store._on_connection(ends)
        await store.step("geo", beat("a"))
        await store.close()

    asyncio.run(main())


@pytest.mark.process
def test_a_failed_connection_is_closed_and_a_stopped_run_blocks_no_other(postgres):
    database, role = postgres.new_database(), "creates_nothing"
    address = f"{postgres.host}:{postgres.port}/{database}"

    async def main():
        url = f"postgresql://{postgres.user}:{postgres.password}@{address}"
        admin = await asyncpg.connect(url)
        await admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'SECRET'")
        refused = open_store(f"postgresql://{role}:SECRET@{address}", patience=5.0)
        failures = []
        for _ in range(3):
            with pytest.raises(StoreLost) as lost:
                await refused.step("geo", beat("a"))
            failures.append(lost)  # whose traceback would keep a connection alive
        count = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1"
        for _ in range(50):  # the server notices the end soon
            left = await admin.fetchval(count, role)
            if not left:
                break
            await asyncio.sleep(0.1)
        store = open_store(url, patience=5.0)
        await store.step("geo", beat("a"))
        async with admin.transaction():  # a run that is stopped while it creates the table
            await admin.execute("SELECT pg_advisory_xact_lock($1)", SCHEMA_LOCK)
            another = open_store(url, patience=1.0)
            await another.step("geo", beat("b"))
        for opened in (store, another):
            await opened.close()
        await admin.close()
        return left

    assert asyncio.run(main()) == 0


def test_a_file_that_was_locked_when_it_was_opened_is_prepared_later(tmp_path):
    path = tmp_path / "limits.sqlite"

    async def main():
        store = open_store(f"file://{path}", patience=0.1)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StoreLost, match="locked"):
                await store.step("geo", beat("a"))
        await store.step("geo", beat("a"))
        await store.close()

    asyncio.run(main())


@pytest.mark.process if pgbouncer() else pytest.mark.proof
def test_a_pooler_that_changes_servers_is_named_as_the_cause(postgres):
    async def main(url):
        stores = [open_store(url) for _ in range(4)]
        try:
            for _ in range(20):
                await asyncio.gather(
                    *(store.step(f"service-{n}", beat("a")) for n, store in enumerate(stores))
                )
        finally:
            for store in stores:
                await store.close()

    with (
        pooled(postgres, postgres.new_database()) as url,
        pytest.raises(StoreLost, match=r"PgBouncer in transaction mode .*: name the address of"),
    ):
        asyncio.run(main(url.replace("+asyncpg", "")))


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (
            "postgresql://nobody:secret@127.0.0.1:9/none",
            (
                r"the store of the limits cannot be reached "
                r"\(ConnectionRefusedE"
            ),
        ),
        (
            "file:///proc/none/limits.sqlite",
            "the file of the limits, /proc/none/limits.sqlite, cannot be used",
        ),
    ],
)
def test_an_unreachable_store_is_reported_without_its_password(url, sentence):
    async def main():
        store = open_store(url, patience=1.0)
        await store.step("geo", beat("a"))

    with pytest.raises(StoreLost, match=sentence) as lost:
        asyncio.run(main())
    assert "secret" not in str(lost.value)


@pytest.mark.parametrize(
    "url", ["mysql://somewhere/limits", "limits.sqlite", "file://host/limits", "postgresql:///x"]
)
def test_a_store_address_of_an_unknown_kind_is_refused(url):
    with pytest.raises(
        DeclarationError, match="another form than postgresql://user@host/database, file:///path"
    ):
        open_store(url)


@pytest.mark.parametrize(
    "address", ["postgresql://u:SECRET@db.example:port/x", "postgresql://u:SECRET@[::1/x"]
)
def test_a_malformed_store_address_is_refused_without_its_password(address):
    with pytest.raises(
        DeclarationError, match="is not an address: its host or its port is invalid"
    ) as refused:
        open_store(address)
    assert "SECRET" not in str(refused.value)


PIECES = [
    "postgresql",
    "postgres",
    "file",
    "mysql",
    ":",
    "//",
    "/",
    "@",
    "?",
    "#",
    "[",
    "]",
    "u",
    "h",
    "%",
]
PARTS = st.lists(st.sampled_from(PIECES), max_size=6)


@given(before=PARTS, after=PARTS)
def test_no_error_quotes_a_password_of_a_store_address(before, after):
    with suppress(DeclarationError):
        open_store("".join([*before, "SECRET", *after]))
        return
    with pytest.raises(DeclarationError) as refused:
        open_store("".join([*before, "SECRET", *after]))
    assert "SECRET" not in str(refused.value)


@pytest.mark.process
@pytest.mark.parametrize(
    "address", ["h:1,u:SECRET@i:2/x", "u:SECRET@127.0.0.1:9/x?sslmode=SECRET", "u:SECRET@h%zz/x"]
)
def test_a_store_address_refused_by_the_driver_is_reported_without_its_password(address):
    async def main():
        await open_store(f"postgresql://{address}", patience=2.0).step("geo", beat("a"))

    with pytest.raises(TidegateError) as refused:
        asyncio.run(main())
    assert "SECRET" not in str(refused.value)


NAMES = (
    "owners",
    "cooling",
    "pause",
    "parts",
    "limit",
    "amount",
    "window",
    "expires",
    "since",
    "name",
    "a",
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
)


@given(text=JSON.map(json.dumps) | st.text(max_size=20))
def test_a_corrupt_book_is_one_error_that_names_its_place(text):
    with suppress(BookCorrupt):
        book = book_in(text, "geo", "/limits.sqlite")
        book.heartbeat("a", {"calls": Claim(Limit(10), 0, 1)}, now=1.0, ttl=1.0)
        book.rows(2.0)
        return
    with pytest.raises(
        BookCorrupt,
        match=(
            r"^the book of the limits of geo in /limits\.sqlite is "
            r"corrupt"
        ),
    ):
        book_in(text, "geo", "/limits.sqlite")


@pytest.mark.parametrize("text", ["null", "[]", "0", '""', "[[]]"])
def test_a_text_that_is_not_a_json_object_is_a_corrupt_book(text):
    with pytest.raises(BookCorrupt):
        book_in(text, "geo", "/limits.sqlite")


GEO = HttpLookup(
    name="geo", service=Service(name="geo", url="http://a", max_concurrency=2), request="GET /{k}",
    keys={"k": "k"}, returns="x BIGINT", timeout=5.0,
)  # fmt: skip


def test_run_and_check_refuse_a_corrupt_book_alike_and_name_the_file(tmp_path, monkeypatch):
    monkeypatch.delenv(LIMITS_URL)
    monkeypatch.setenv(STATE_HOME, str(tmp_path))
    path = Path(limits_url().removeprefix("file://"))
    check_limits([GEO], ())
    asyncio.run(stepped(path))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE books SET book = '{'")
    connection.close()
    corrupt = (
        rf"the book of the limits of geo in {path} is corrupt \(JSONDecodeError: .*\). "
        r"Remove it once no run is"
    )
    with pytest.raises(DeclarationError, match=corrupt):
        check_limits([GEO], ())
    leases = RunLeases(open_store(f"file://{path}"), "a run")
    with pytest.raises(DeclarationError, match=corrupt):
        leases.check()
    leases.close()
    path.write_text("no database at all, but as long as a page of one " * 100)
    with pytest.raises(
        DeclarationError,
        match=(
            rf"the file of the limits, {path}, is corrupt "
            r"\(file is not a datab"
        ),
    ):
        check_limits([GEO], ())


def test_run_and_check_refuse_a_file_of_limits_that_they_cannot_write(tmp_path, monkeypatch):
    path = tmp_path / "limits.sqlite"
    monkeypatch.setenv(LIMITS_URL, f"file://{path}")
    asyncio.run(stepped(path))
    # as a file of another user, to root too: a version of the format that is only read
    with path.open("r+b") as file:
        file.seek(18)
        file.write(b"\3")
    refused = (
        rf"the file of the limits, {path}, cannot be used \(attempt to write a readonly "
        r"database\)"
    )
    with pytest.raises(RunStopped, match=refused):
        check_limits([GEO], ())
    leases = RunLeases(open_store(f"file://{path}"), "a run")
    with pytest.raises(RunStopped, match=refused):
        leases.check()
    leases.close()


def test_a_full_disk_is_reported_and_the_file_of_limits_stays_complete(tmp_path, monkeypatch):
    path = tmp_path / "limits.sqlite"
    monkeypatch.setenv(LIMITS_URL, f"file://{path}")

    async def filled():
        store = open_store(f"file://{path}")
        try:
            for number in range(1000):
                await store.step("geo", beat(f"run {number}", wants=1))
        finally:
            await store.close()

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StoreLost) as lost:
            asyncio.run(filled())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    sentence = f"the file of the limits, {path}, cannot be used ("
    assert str(lost.value).startswith(sentence)
    assert "\n" not in str(lost.value)
    check_limits([GEO], ())
    asyncio.run(stepped(path))


@pytest.mark.process
def test_a_forked_process_ends_though_it_has_no_thread_of_the_leases(tmp_path):
    leases = RunLeases(open_store(f"file://{tmp_path}/limits.sqlite"), "a run")
    leases.check()
    if (child := os.fork()) == 0:
        signal.alarm(10)
        leases.close()  # as at the end of a process
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    leases.close()


async def stepped(path, boot=None):
    store = open_store(f"file://{path}")
    store._boot = boot or store._boot
    await store.step("geo", beat("a"))
    await store.close()
