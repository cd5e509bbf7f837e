"""What was sent, as it was counted here and as the other side saw it. Real servers, a real
database.
"""

import asyncio
import contextlib
import os
import socket
import sqlite3

import pytest
from aiohttp import web

from jobs.clients import request_counter
from jobs.clients.billing_meter import Meters, metered
from jobs.clients.client import CallFailed, Throttled
from jobs.clients.registry import client_for
from jobs.clients.request_counter import RequestCounts, Unasked
from jobs.errors import TidegateError
from tidegate import Batch, HttpLookup, Pages, Price, Service, SqlLookup, lookup

HTTP = {
    "name": "place",
    "request": "GET /{q}",
    "keys": {"q": "q"},
    "returns": "lat DOUBLE",
    "timeout": 5.0,
}
BATCH = Batch(max_items=4, max_wait=0.05, item={"id": "{id}", "q": "{q}"}, match="$.id")


def counted(declared, *keys, share=2):
    """Ask for all keys at once; what was counted meanwhile."""

    async def message(caller, key):
        try:
            return await caller.call((key,))
        except (CallFailed, Throttled, TidegateError) as error:
            return error

    async def main():
        caller = client_for(declared, share)
        await caller.open()
        try:
            await asyncio.gather(*(message(caller, key) for key in keys))
        finally:
            await caller.close()

    request_counter.begin()
    asyncio.run(main())
    (counts,) = request_counter.counted().values()
    assert counts.in_flight == 0
    return counts


def over_http(url, **fields):
    return HttpLookup(
        **HTTP | {"service": Service(name="geo", url=url, max_concurrency=2)} | fields
    )


def coroutine(url, **of_service):
    service = Service(name="geo", url=url, max_concurrency=2, **of_service)
    return lookup(service=service, keys={"q": "q"}, returns="lat DOUBLE", timeout=5.0)


def test_each_sent_request_counts_whatever_its_outcome(service):
    message = {"/throttled": 429, "/broken": 500, "/unknown": 404, "/refused": 400}

    async def answer(request):
        if request.path == "/dropped":
            request.transport.close()
        await asyncio.sleep(0.05)
        return web.json_response({"lat": 1}, status=message.get(request.path, 200))

    service.answer = answer
    counts = counted(
        over_http(service.url), "fine", "throttled", "broken", "unknown", "refused", "dropped"
    )
    assert counts.sent.total() == counts.items.total() == len(service.log) == 6
    assert (counts.answered, counts.throttled) == (2, 1)
    assert counts.most_at_once == service.highest_in_flight == 2
    assert counts.seconds > 0


@pytest.mark.process
def test_a_request_without_a_connection_does_not_count_as_sent():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        counts = counted(over_http(f"http://127.0.0.1:{taken.getsockname()[1]}"), "a", "b")
    assert (counts.sent.total(), counts.items.total(), counts.most_at_once) == (0, 0, 0)


def test_the_keys_of_a_request_that_was_not_written_count_at_the_next_request():
    counts = RequestCounts(lookup="geo")
    keys = Unasked(3)
    for is_written in (False, True, True):
        request = counts.request(keys)
        request.reports_use = True
        request.leaves()
        if is_written:
            request.is_written()
        request.ends()
    assert (counts.sent.total(), counts.items.total(), counts.unknown_use) == (2, 3, 2)
    assert counts.in_flight == 0


def test_an_answer_that_throttles_counts_as_throttled_and_not_as_an_answer(service):
    counts = counted(over_http(service.url, throttled_when=["$.temp_c > 0"]), "a")
    assert (counts.sent.total(), counts.answered, counts.throttled) == (1, 0, 1)


def test_each_page_is_a_request_and_the_key_is_one_item(service):
    async def answer(request):
        page = int(request.query.get("page", 1))
        return web.json_response({"next": page + 1 if page < 3 else None, "items": [page]})

    service.answer = answer
    pages = Pages(next="$.next", parameter="page", items="$.items", max_pages=5)
    counts = counted(over_http(service.url, pages=pages), "a", "b")
    assert (
        (counts.sent.total(), counts.items.total(), counts.answered)
        == (6, 2, 6)
        == (len(service.log), 2, 6)
    )


def test_a_batch_counts_as_a_request_and_its_halves_as_repeated_requests(service):
    sizes = []

    async def answer(request):
        items = await request.json()
        sizes.append(len(items))
        if any(item["q"] == "bad" for item in items):
            return web.Response(status=400)
        return web.json_response([{"id": item["id"], "lat": 1} for item in items])

    service.answer = answer
    declared = over_http(service.url, request="POST /batch", batch=BATCH)
    counts = counted(declared, "a", "b", "c", "d", "e", "bad", "f", "g", "h")
    assert sorted(sizes) == [1, 1, 1, 2, 2, 4, 4]
    assert (counts.sent.total(), counts.items.total()) == (len(sizes), sum(sizes))
    assert (counts.answered, counts.repeated) == (4, 4)
    assert counts.most_at_once <= 2


def test_a_run_of_a_coroutine_counts_as_an_item_whatever_its_requests(service):
    @coroutine(service.url)
    async def twice(row, http):
        await http.get(f"/{row.q}/first")
        return await http.get(f"/{row.q}/second")

    counts = counted(twice, "a", "b")
    assert (counts.sent.total(), counts.items.total()) == (4, 2) == (len(service.log), 2)


@pytest.mark.process
def test_a_run_of_a_coroutine_counts_as_an_item_also_if_its_first_request_is_not_sent():
    with socket.socket() as later:
        later.bind(("127.0.0.1", 0))  # and listens only once a request was refused

        async def listen():
            async def answer(request):
                return web.json_response({})

            application = web.Application()
            application.router.add_get("/{path}", answer)
            runner = web.AppRunner(application)
            await runner.setup()
            await web.SockSite(runner, later).start()
            return runner

        @coroutine(f"http://127.0.0.1:{later.getsockname()[1]}")
        async def asks_until_it_is_heard(row, http):
            with pytest.raises(CallFailed, match="cannot connect"):
                await http.get("/first")
            runner = await listen()
            try:
                await http.get("/second")
                await http.get("/third")
            finally:
                await runner.cleanup()

        counts = counted(asks_until_it_is_heard, "a")
    assert (counts.sent.total(), counts.items.total()) == (2, 1)


def test_requests_that_follow_each_other_on_a_connection_are_not_in_flight_together(
    service,
):
    """The one has its answer, and waits for its turn to say so; the next one is on its way
    by then.
    """

    async def answer(request):
        response = web.StreamResponse()
        response.content_length = 2
        await response.prepare(request)
        # what comes with the head is read in the turn that frees the connection
        await asyncio.sleep(0.02)
        await response.write(b"{}")
        return response

    service.answer = answer

    @coroutine(service.url)
    async def one_more_each_turn(row, http):
        first = asyncio.create_task(http.get("/first"))
        more = []
        while not first.done():
            more.append(asyncio.create_task(http.get("/more")))
            await asyncio.sleep(0)
        for request in more:
            request.cancel()
        await asyncio.wait(more)

    counts = counted(one_more_each_turn, "a", share=1)
    assert counts.most_at_once == service.highest_in_flight == 1


def test_an_error_with_a_long_body_costs_what_the_end_of_the_body_reports(service):
    async def refused(_):
        answer = {"error": 20_000 * "x", "usage": {"tokens": 30}}
        return web.json_response(answer, status=400)

    service.answer = refused
    prices = [Price("2.50 USD", per="1000 tokens", at_most=100)]
    priced = Service(name="geo", url=service.url, max_concurrency=2, prices=prices)
    asked = over_http(service.url, service=priced, bill={"tokens": "$.usage.tokens"})
    counts = counted(asked, "a")
    assert {unit: days.total() for unit, days in counts.units.items()} == {"token": 30}
    assert counts.unknown_use == 0


def test_what_a_coroutine_bills_counts_whatever_became_of_its_run(service):
    message = {}

    @coroutine(service.url, prices=[Price("2.50 USD", per="1000 tokens")])
    async def billed(row, http):
        await http.get("/x")
        try:
            http.bill(**{"dear": {"dollars": 1}, "odd": {"tokens": 0.5}}.get(row.q, {"tokens": 10}))
        except ValueError as error:
            message[row.q] = str(error)
            raise
        if row.q == "fails":
            raise OSError
        return None if row.q == "misses" else {"lat": 1.0}

    counts = counted(billed, "fine", "misses", "fails", "dear", "odd")
    assert {unit: days.total() for unit, days in counts.units.items()} == {"token": 30}
    assert counts.lost == {"token": 10}
    assert message == {
        "dear": "bill(dollars=...): no price of the service is per dollar; declare one, or leave dollars out",
        "odd": "bill(tokens=0.5): it must be a whole number, from 0 to 1,000,000,000,000",
    }


def test_the_use_of_a_coroutine_is_unknown_only_if_it_sent_what_was_not_refused(service):
    async def answer(request):
        return web.json_response({}, status=statuses.get(request.path, 200))

    statuses = {"/refused": 429, "/failed": 500, "/moved": 302}

    service.answer = answer

    @coroutine(service.url, prices=[Price("2.50 USD", per="1000 tokens")])
    async def asks_first(row, http):
        if row.q != "nothing":
            await http.get(f"/{row.q}")
        raise OSError

    keys = ("nothing", "refused", "failed", "moved", "sent")
    assert [counted(asks_first, key).unknown_use for key in keys] == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("requests", "unknown"),
    [
        (("good", "bill", "good", "bill", "raise"), 0),
        (("good", "bill", "refused"), 0),
        (("good", "bill", "good", "raise"), 1),
        (("good", "bill", "lost"), 1),
        (("good", "bill", "late"), 1),
        (("lost or not", "good", "bill"), 1),
        (("lost or not", "good", "bill", "raise"), 1),
        (("both", "bill"), 1),
    ],
)
def test_the_use_of_a_coroutine_is_unknown_if_a_request_is_lost_or_unbilled(
    service, requests, unknown
):
    async def answer(request):
        if request.path == "/lost":
            request.transport.close()
        if request.path == "/late":
            await asyncio.sleep(5)
        return web.json_response({}, status=429 if request.path == "/refused" else 200)

    service.answer = answer

    async def does(step, http):
        if step == "bill":
            http.bill(tokens=3)
        elif step == "raise":
            raise OSError
        elif step == "late":
            async with asyncio.timeout(0.2):
                await http.get("/late")
        elif step == "both":
            await asyncio.gather(does("lost or not", http), does("good", http))
        elif step == "lost or not":
            with contextlib.suppress(CallFailed):
                await http.get("/lost")
        else:
            await http.get(f"/{step}")

    @coroutine(service.url, prices=[Price("2.50 USD", per="1000 tokens")])
    async def asks(row, http):
        for step in requests:
            await does(step, http)
        return {}

    assert counted(asks, "a").unknown_use == unknown


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_counts_just_before_it_is_written(service, monkeypatch, method):
    """A process that is killed in between has one request too many on its bill, not all that have a
    connection.
    """
    steps = []
    write, counted_on_disk = (
        asyncio.selector_events._SelectorSocketTransport.write,
        RequestCounts.meter,
    )

    def writes(transport, data):
        if data.startswith(method.encode()):
            steps.append("written")
        return write(transport, data)

    def counts(self, unit, day, many):
        if unit == "request":
            steps.append("counted")
        return counted_on_disk(self, unit, day, many)

    monkeypatch.setattr(asyncio.selector_events._SelectorSocketTransport, "write", writes)
    monkeypatch.setattr(RequestCounts, "meter", counts)
    body = {"body": {"q": "{q}"}} if method == "POST" else {}
    counted(over_http(service.url, request=f"{method} /{{q}}", **body), *"abcdefgh", share=8)
    assert steps == ["counted", "written"] * 8


@pytest.mark.process
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_request_leaves_once_the_meter_file_cannot_be_written(service, tmp_path, method):
    priced = Service(
        name="geo", url=service.url, max_concurrency=2, prices=[Price("1 USD", per="request")]
    )
    body = {"body": {"q": "{q}"}} if method == "POST" else {}
    meter = Meters(str(tmp_path / "bills"), {"place": ["request"]}).open()
    request_counter.begin(meter)
    caller = client_for(
        over_http(service.url, service=priced, request=f"{method} /{{q}}", **body), 2
    )

    async def message(key):
        with pytest.raises((CallFailed, TidegateError)) as error:
            await caller.call((key,))
        return error.value

    async def main():
        await caller.open()
        try:
            await caller.call(("a",))
            os.close(meter._file)
            meter._file = os.open(meter._path, os.O_RDONLY)  # to root too
            return [await message(key) for key in "bc"]
        finally:
            await caller.close()

    first, second = asyncio.run(main())
    request_counter.begin()
    assert len(service.log) == metered(tmp_path / "bills")["place"].total() == 1
    told = (
        f"{meter._path} cannot be written: Bad file descriptor. It counts what services bill, "
        "so no request leaves"
    )
    assert str(second).startswith(told)
    assert type(second) is TidegateError
    assert isinstance(first, CallFailed | TidegateError)


def test_a_request_after_the_end_of_its_task_is_not_billed_to_the_task(tmp_path):
    request_counter.begin(Meters(str(tmp_path / "bills"), {"place": ["request"]}).open())
    request_counter.counts_of("place").meter("request", 20_000, 1)
    request_counter.end()
    request_counter.counts_of("place").meter("request", 20_000, 1)
    assert metered(tmp_path / "bills") == {"place": {("request", 20_000): 1}}


def test_a_meter_file_that_cannot_be_made_is_reported_in_one_sentence(tmp_path):
    (tmp_path / "bills").touch()
    with pytest.raises(
        TidegateError,
        match=(
            r"bills/.*\.meter cannot be written: .*no request "
            r"leaves without it"
        ),
    ):
        Meters(str(tmp_path / "bills"), {"place": ["request"]}).open()


@pytest.mark.parametrize(("batch_size", "queries"), [(1, 5), (5, 1)])
def test_a_query_of_a_database_counts_as_a_request(tmp_path, batch_size, queries):
    with sqlite3.connect(tmp_path / "p.db") as database:
        database.execute("CREATE TABLE p (k TEXT, lat REAL)")
    declared = SqlLookup(
        name="p", url=f"sqlite+aiosqlite:///{tmp_path / 'p.db'}", table="p", keys={"k": "k"},
        returns="lat DOUBLE", timeout=5.0, max_concurrency=2, batch_size=batch_size,
    )  # fmt: skip
    counts = counted(declared, *"abcde")
    assert (counts.sent.total(), counts.items.total(), counts.answered) == (queries, 5, queries)
