"""The books of all services lie in a file of this machine or in PostgreSQL, whole, whoever writes at once."""

import asyncio
import sqlite3

import pytest

from jobs.errors import DeclarationError
from jobs.limits.lease_book import Claim, Limit
from jobs.limits.store import StoreLost
from jobs.limits.store_url import open_store


@pytest.fixture(params=["file", "postgresql"])
def url(request, tmp_path):
    if request.param == "file":
        return f"file://{tmp_path}/limits.sqlite"
    server = request.getfixturevalue("postgres")
    return f"postgresql://{server.user}:{server.password}@{server.host}:{server.port}/{server.new_database()}"


def beat(owner, wants=10):
    return lambda book, now: book.heartbeat(owner, {"calls": Claim(Limit(10), wants, wants)}, now=now, ttl=60)


@pytest.mark.process
def test_steps_of_many_at_once_are_taken_one_by_one_and_none_is_lost(url):
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


@pytest.mark.process
def test_what_one_tells_another_hears(url):
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


def test_the_books_of_an_earlier_start_of_the_machine_are_forgotten(tmp_path):
    url = f"file://{tmp_path}/limits.sqlite"

    async def main():
        store = open_store(url)
        await store.step("geo", beat("dead"))
        with sqlite3.connect(tmp_path / "limits.sqlite") as connection:
            connection.execute("UPDATE books SET boot = 'another'")
        connection.close()
        before, _ = await store.books()
        answer = await store.step("geo", beat("a"))
        await store.close()
        return before, answer.shares["calls"].has

    assert asyncio.run(main()) == ({}, 10)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql://nobody:secret@127.0.0.1:9/none", r"the store of the limits is not reached \(ConnectionRefusedE"),
        ("file:///proc/none/limits.sqlite", "the file of the limits cannot be used"),
    ],
)
def test_a_store_that_is_not_reached_is_lost_and_no_password_is_shown(url, sentence):
    async def main():
        store = open_store(url, patience=1.0)
        await store.step("geo", beat("a"))

    with pytest.raises(StoreLost, match=sentence) as lost:
        asyncio.run(main())
    assert "secret" not in str(lost.value)


@pytest.mark.parametrize("url", ["mysql://somewhere/limits", "limits.sqlite", "file://host/limits", "postgresql:///x"])
def test_an_address_of_another_kind_is_refused(url):
    with pytest.raises(DeclarationError, match="it must be postgresql://user@host/database, or file:///path"):
        open_store(url)


@pytest.mark.parametrize("address", ["postgresql://u:SECRET@db.example:port/x", "postgresql://u:SECRET@[::1/x"])
def test_an_address_that_is_none_is_refused_without_its_password(address):
    with pytest.raises(DeclarationError, match="is no address: its host or its port is none") as refused:
        open_store(address)
    assert "SECRET" not in str(refused.value)
