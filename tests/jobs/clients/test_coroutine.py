"""@lookup: a coroutine of the user's own against a real HTTP service that does what a test
scripts.
"""

import asyncio
import contextlib
import datetime as dt
import importlib
import pickle
import subprocess
import sys
from decimal import Decimal

import pytest
from aiohttp import web
from pyspark import cloudpickle

from jobs.clients.client import CallFailed, Throttled, Unclear
from jobs.clients.http.refusals import StatusFailed
from jobs.clients.registry import client_for
from jobs.declare.answers.answer_json import dump, load
from jobs.declare.coroutine_lookup import CoroutineLookup
from jobs.declare.coroutine_lookup import declared as by_name
from jobs.errors import AccessRefused, DeclarationError, TidegateError
from tidegate import (
    ApiKey,
    Bearer,
    Enrichment,
    Env,
    Http,
    HttpLookup,
    Input,
    Output,
    Retry,
    Row,
    Service,
    lookup,
)


def declared(
    url="http://127.0.0.1:1", *, auth=None, returns="label STRING, score DOUBLE", **fields
):
    """A decorator with the standard declaration."""
    service = Service(name="llm", url=url, max_concurrency=4, auth=auth)
    standard = {"keys": {"text": "trim(review)"}, "returns": returns, "timeout": 5.0}
    return lookup(service=service, **standard | fields)


def ask(asked, *keys):
    """What comes of each key, one after the other: the columns, None, or the error."""

    async def message(caller, key):
        try:
            answer = await caller.call(key)
            return None if answer is None else caller.columns(answer)
        except (CallFailed, Throttled, TidegateError, ValueError) as error:
            return error

    async def main():
        caller = client_for(asked, 2)
        await caller.open()
        try:
            return [await message(caller, key) for key in keys]
        finally:
            await caller.close()

    return asyncio.run(main())


@declared()
async def importable(row: Row, http: Http) -> dict | None:
    """Found by its name, as this module can be imported."""
    return {"label": row.text}


def test_a_decorated_coroutine_is_a_lookup_with_the_name_of_the_coroutine(service):
    @declared(service.url, version=3)
    async def sentiment(row: Row, http: Http) -> dict | None:
        return {"label": row.text}

    assert isinstance(sentiment, CoroutineLookup)
    assert (sentiment.name, sentiment.version, sentiment.concurrency) == ("sentiment", 3, 4)
    assert declared(name="other")(sentiment.function).name == "other"


def test_a_dict_is_an_answer_none_is_a_miss_and_any_other_result_an_error(service):
    given = {
        "dict": {"label": "good", "score": 1},
        "none": None,
        "list": [{"label": "a"}],
        "text": "good",
        "empty": {},
    }

    @declared(service.url)
    async def sentiment(row, http):
        return given[row.text]

    answers = ask(sentiment, *((name,) for name in given))
    assert answers[:2] == [("good", 1.0), None]
    assert str(answers[2]) == "the function gave list; it must give a dict, or None for a miss"
    assert str(answers[3]) == "the function gave str; it must give a dict, or None for a miss"
    assert not answers[2].passing
    assert answers[4] == (None, None)


def test_an_answer_that_does_not_fit_is_named_with_its_column(service):
    @declared(service.url)
    async def sentiment(row, http):
        return {"score": "high"}

    (wrong,) = ask(sentiment, ("a",))
    assert str(wrong) == "score: expected DOUBLE, got 'high'"


def test_a_stored_answer_gives_the_same_columns_as_the_call(service):
    @declared(
        service.url,
        returns="price DECIMAL(8,2), day DATE, at TIMESTAMP, tags ARRAY<STRING>, raw BINARY",
    )
    async def sentiment(row, http):
        at = dt.datetime(2013, 1, 10, 5, tzinfo=dt.UTC)
        return {
            "price": Decimal("1.50"),
            "day": at.date(),
            "at": at,
            "tags": ("a", "b"),
            "raw": b"\x00",
        }

    async def main():
        caller = client_for(sentiment, 1)
        await caller.open()
        try:
            answer = await caller.call(("a",))
            return caller.columns(load(dump(answer))), caller.columns(answer)
        finally:
            await caller.close()

    kept, asked = asyncio.run(main())
    assert kept == asked
    assert asked[0] == Decimal("1.50")


def test_requests_of_a_coroutine_carry_the_authentication_and_return_json(service, monkeypatch):
    monkeypatch.setenv("LLM_KEY", "s3cr3t-Zq9")
    seen = []

    async def chat(request):
        seen.append(
            (
                request.method,
                request.raw_path,
                request.headers.get("X-Api-Key"),
                await request.text(),
            )
        )
        return web.json_response({"label": "good", "usage": {"total_tokens": 7}})

    service.answer = chat

    @declared(f"{service.url}/api/", auth=ApiKey(Env("LLM_KEY")))
    async def sentiment(row, http):
        await http.get(
            "/v1/models/a b",
            params={"at": dt.date(2013, 1, 10), "q": "x&y=/z", "n": 3, "tag": ["a", 2]},
        )
        answer = await http.post("/v1/chat", json={"input": row.text, "price": Decimal("1.50")})
        return {"label": answer["label"], "score": answer["usage"]["total_tokens"]}

    assert ask(sentiment, ("hej",)) == [("good", 7.0)]
    assert seen == [
        (
            "GET",
            "/api/v1/models/a%20b?at=2013-01-10&q=x%26y%3D/z&n=3&tag=a&tag=2",
            "s3cr3t-Zq9",
            "",
        ),
        ("POST", "/api/v1/chat", "s3cr3t-Zq9", '{"input":"hej","price":1.50}'),
    ]


def test_a_compressed_answer_is_read_for_each_http_method(service):
    async def packed(request):
        response = web.json_response({"label": "good"})
        response.enable_compression(force=web.ContentCoding.gzip)
        return response

    service.answer = packed

    @declared(service.url)
    async def sentiment(row, http):
        answers = [await http.get("/v1"), await http.post("/v1"), await http.put("/v1", json={})]
        (label,) = {answer["label"] for answer in answers}
        return {"label": label, "score": 1.0}

    assert ask(sentiment, ("a",)) == [("good", 1.0)]


@pytest.mark.parametrize(
    "path", ["v1", "http://elsewhere/v1", "/v1?a=b", "/v1#a", "//elsewhere/v1"]
)
def test_a_path_that_could_leave_the_service_or_its_parameters_is_refused(service, path):
    @declared(service.url)
    async def sentiment(row, http):
        return await http.get(path)

    (refused,) = ask(sentiment, ("a",))
    wrong = (
        "leads to another address"
        if path.startswith("//")
        else "it must start with / and hold no ? and no #"
    )
    assert wrong in str(refused)
    assert service.log == []


def test_a_parameter_that_is_none_or_an_empty_list_is_refused(service):
    @declared(service.url)
    async def sentiment(row, http):
        return await http.get("/v1", params={"n": None, "m": 1, "o": ["a", None], "p": []})

    (refused,) = ask(sentiment, ("a",))
    assert str(refused).startswith(
        "ValueError: params: n, o, p is None, has None or is an empty list, which a query "
        "cannot express: leave it out ("
    )
    assert service.log == []


def test_a_404_is_none_for_get_and_an_error_for_post_unless_declared(service):
    async def gone(request):
        return web.json_response({}, status=404)

    service.answer = gone

    @declared(service.url)
    async def sentiment(row, http):
        if row.text == "get":
            return await http.get("/a")
        if row.text == "get, an error":
            return await http.get("/a", miss=())
        return await http.post("/a", json={}, miss=(404,) if "none" in row.text else ())

    get, strict, post, post_none = ask(
        sentiment, ("get",), ("get, an error",), ("post",), ("post, none",)
    )
    assert (get, post_none) == (None, None)
    assert str(strict) == str(post) == "404 Not Found"
    assert not post.passing


def test_passing_failures_are_retried_and_a_bug_of_the_function_is_not(service):
    async def broken(request):
        return web.json_response({}, status=500)

    service.answer = broken

    @declared(service.url)
    async def sentiment(row, http):
        if row.text == "service":
            return await http.get("/a")
        if row.text == "own client":
            raise ConnectionResetError("reset")
        return {"label": {}["usage"]}

    service_fails, reset, mistake = ask(sentiment, ("service",), ("own client",), ("mistake",))
    assert [failure.passing for failure in (service_fails, reset, mistake)] == [True, True, False]
    assert str(service_fails) == "500 Internal Server Error"
    assert str(reset).startswith("ConnectionResetError: reset ")
    assert str(mistake).startswith("KeyError: 'usage' ")


def test_an_error_of_a_coroutine_names_the_last_line_in_the_users_package(
    service, tmp_path, monkeypatch
):
    package = tmp_path / "shop"
    (package / "tools").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "tools" / "__init__.py").write_text("def company(answer):\n    return answer[0]\n")
    (package / "orders.py").write_text(
        "import json\n"
        "from shop.tools import company\n"
        "async def label(row, http):\n"
        "    if row.text == 'await':\n"
        "        return {'label': http.get('/a')['label']}\n"
        "    if row.text == 'library':\n"
        "        return json.loads('no')\n"
        "    if row.text == 'request':\n"
        "        return await http.get('no slash')\n"
        "    return {'label': company({})}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    asked = declared(service.url)(importlib.import_module("shop.orders").label)
    places = [
        str(failure).rpartition(" ")[2]
        for failure in ask(asked, ("await",), ("library",), ("request",), ("helper",))
    ]
    assert places == [
        "(shop/orders.py:5)", "(shop/orders.py:7)", "(shop/orders.py:9)",
        "(shop/tools/__init__.py:2)",
    ]  # fmt: skip


@pytest.mark.parametrize("swallows", ["answers", "fails", None])
def test_throttling_and_refusals_reach_the_run_though_the_function_catches_all_errors(
    service, swallows
):
    async def says(request):
        status = int(request.path.strip("/"))
        return web.json_response(
            {}, status=status, headers={"Retry-After": "7"} if status == 429 else {}
        )

    service.answer = says

    @declared(service.url)
    async def sentiment(row, http):
        if not swallows:
            return await http.get(f"/{row.text}")
        try:
            return await http.get(f"/{row.text}")
        except Exception:  # noqa: BLE001 - that is the point
            return {"label": "made up"} if swallows == "answers" else await http.get("/500")

    throttled, refused = ask(sentiment, ("429",), ("403",))
    assert isinstance(throttled, Throttled)
    assert throttled.seconds == 7.0
    assert isinstance(refused, AccessRefused)
    assert str(refused) == f"llm at {service.url} denies access: 403 Forbidden."


def test_a_secret_that_comes_back_is_masked(service, monkeypatch):
    monkeypatch.setenv("LLM_KEY", "s3cr3t-Zq9")

    async def echo(request):
        return web.json_response({"score": request.headers["Authorization"]})

    service.answer = echo

    @declared(service.url, auth=Bearer(Env("LLM_KEY")))
    async def sentiment(row, http):
        answer = await http.get("/a")
        if row.text == "raise":
            raise ValueError(answer["score"])
        return answer

    for failure in ask(sentiment, ("raise",), ("misfit",)):
        assert "***" in str(failure)
        assert "s3cr3t-Zq9" not in str(failure)


def test_an_unknown_key_is_named(service):
    @declared(service.url)
    async def sentiment(row, http):
        return {"label": row["text"] + row.txt}

    (failure,) = ask(sentiment, ("a",))
    told = "AttributeError: the lookup has no key 'txt'; it has: text (tests/jobs/clients/test_coroutine.py:"
    assert str(failure).startswith(told)


def test_a_cancelled_call_cancels_the_requests_of_its_coroutine(service):
    hears = asyncio.Event()

    @declared(service.url)
    async def sentiment(row, http):
        try:
            await asyncio.Event().wait()
        finally:
            hears.set()

    async def main():
        caller = client_for(sentiment, 1)
        await caller.open()
        call = asyncio.create_task(caller.call(("a",)))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await caller.close()

    asyncio.run(main())
    assert hears.is_set()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"timeout": 0}, "lookup f: timeout is 0 s"),
        ({"keys": {}}, "lookup f: keys is empty"),
        (
            {"throttled_when": ["$.a == 1"]},
            "'$.a == 1' is not a status. The function itself must read the answer.",
        ),
        ({"max_answer_bytes": 0}, "max_answer_bytes is 0"),
        ({"attempt_timeout": -1}, "attempt_timeout is -1 s"),
    ],
)
def test_a_wrong_declaration_is_refused_in_one_sentence(fields, message):
    async def f(row, http):
        return None

    with pytest.raises(DeclarationError) as error:
        declared(**fields)(f)
    assert message in str(error.value)


def test_only_a_coroutine_of_row_and_http_is_taken():
    with pytest.raises(DeclarationError, match="must decorate an async def"):
        declared(name="f")(lambda row, http: {})

    async def alone(row):
        return None

    with pytest.raises(DeclarationError, match="must take two arguments, row and http"):
        declared()(alone)


def test_a_coroutine_shares_gate_and_concurrency_with_other_lookups_of_its_service(tmp_path):
    @declared()
    async def sentiment(row, http):
        return None

    other = HttpLookup(
        name="other",
        service=sentiment.service,
        request="GET /{k}",
        keys={"k": "k"},
        returns="x INT",
        timeout=1.0,
    )
    assert sentiment.service_key == other.service_key
    changed = Service(name="llm", url="http://127.0.0.1:1", max_concurrency=9)
    third = HttpLookup(
        name="third",
        service=changed,
        request="GET /{k}",
        keys={"k": "k"},
        returns="y INT",
        timeout=1.0,
    )
    with pytest.raises(
        DeclarationError, match="service llm is declared twice with different values"
    ):
        Enrichment(
            name="e", input=Input(path="a"), lookups=[sentiment, third], output=Output(path="b")
        )


@pytest.mark.process
def test_a_coroutine_is_pickled_by_its_name_and_without_a_name_by_its_code(tmp_path):
    """Plain pickle in the one case; in both what Spark uses, read in another process that has the
    module.
    """
    (tmp_path / "declared_here.py").write_text(
        "from tidegate import Service, lookup\n"
        "@lookup(service=Service(name='s', url='http://h', max_concurrency=1), keys={'k': 'k'}, "
        "returns='x INT',\n"
        "        timeout=1.0)\n"
        "async def named(row, http):\n"
        "    return {'x': 1}\n"
    )
    write = (
        "import sys, pickle, dataclasses\n"
        "from pyspark import cloudpickle\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from declared_here import named\n"
        "data = pickle.dumps(named)\n"
        "assert b'declared_here' in data and b'http://h' not in data\n"
        "assert pickle.loads(data) is named and pickle.loads(cloudpickle.dumps(named)) is named\n"
        "changed = dataclasses.replace(named, timeout=9.0)\n"
        "assert pickle.loads(cloudpickle.dumps(changed)).timeout == 9.0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", write], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    @declared()
    async def local(row, http):
        return {"label": row.text}

    with pytest.raises(
        DeclarationError,
        match=(
            r"executors cannot import not_there .* or ship it "
            r"by --py-files"
        ),
    ):
        by_name("not_there", "named")
    with pytest.raises(DeclarationError, match="json has no @lookup of that name there"):
        by_name("json", "named")
    copy = pickle.loads(cloudpickle.dumps(local))
    assert ask(copy, ("a",)) == [("a", None)]


@pytest.mark.parametrize(
    "key",
    ["../admin", "..", ".", "%2e%2e", "%2E%2e/admin", "%252e%252e/admin", "..%2fadmin", "a/../../admin",
            "..\\admin", "..;/admin", "/admin", "", "a//b"]
)  # fmt: skip
def test_a_key_in_a_path_reaches_no_other_address_of_the_service(service, key):
    @declared(service.url + "/tenant")
    async def sentiment(row, http):
        return await http.get(f"/customers/{row.text}")

    (message,) = ask(sentiment, (key,))
    assert isinstance(message, CallFailed)
    assert not message.passing
    assert "leads to another address of the service; nothing was sent" in str(message)
    assert service.log == []


@pytest.mark.parametrize(
    "path", ["/", "/customers/", "/v1.2/a.b", "/a%20b", "/a;x=1", "/a%3Bb%2C%2F"]
)
def test_a_path_of_the_service_is_requested_unchanged(service, path):
    @declared(service.url + "/tenant")
    async def sentiment(row, http):
        return {"label": "ok"} if await http.get(path) else None

    assert ask(sentiment, ("JFK",)) == [("ok", None)]
    assert service.log == ["/tenant" + path]


# -- requests that the function does not await
async def never_awaits(http):
    http.post("/log", json={})  # no await: nothing begins


async def gives_it_to_a_task(http):
    asyncio.ensure_future(http.post("/log", json={}))  # noqa: RUF006 - what is shown


async def gives_it_to_a_task_that_begins(http):
    asyncio.ensure_future(http.post("/log", json={}))  # noqa: RUF006
    await asyncio.sleep(0.01)


async def takes_the_first_of_two(http):
    both = {asyncio.ensure_future(http.get(f"/{place}")) for place in ("log", "other")}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)


async def gathers(http):
    await asyncio.gather(http.get("/log"), http.get("/other"))


async def gives_up(http):
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(http.get("/log"), 0.02)


async def gives_up_before_it_begins(http):
    task = asyncio.ensure_future(http.get("/log"))
    task.cancel()
    await http.get("/other")


async def gives_up_another_and_never_awaits(http):
    await gives_up_before_it_begins(http)
    http.get("/log")


async def fails_while_one_is_under_way(http):
    asyncio.ensure_future(http.get("/log"))  # noqa: RUF006
    await asyncio.sleep(0.01)
    raise ValueError("a bug")


@pytest.mark.parametrize(
    ("way", "outcome", "ended"),
    [
        (never_awaits, "the function does not await 1 of its requests, so nothing was sent", 0),
        (gives_it_to_a_task, ("done", 1.0), 1),
        (gives_it_to_a_task_that_begins, ("done", 1.0), 1),
        (takes_the_first_of_two, ("done", 1.0), 2),
        (gathers, ("done", 1.0), 2),
        (gives_up, ("done", 1.0), 0),
        (gives_up_before_it_begins, ("done", 1.0), 1),
        (gives_up_another_and_never_awaits, "the function does not await 1 of its requests", 1),
        (fails_while_one_is_under_way, "ValueError: a bug", 0),
    ],
)
def test_a_request_without_an_await_is_finished_or_refused(service, way, outcome, ended):
    answered = []

    async def answer(request):
        await asyncio.sleep(0.1)
        answered.append(request.path)
        return web.json_response({})

    service.answer = answer

    @declared(service.url)
    async def sentiment(row, http):
        await way(http)
        return {"label": "done", "score": 1.0}

    (found,) = ask(sentiment, ("x",))
    assert found == outcome or str(found).startswith(str(outcome))
    assert len(answered) == ended


@pytest.mark.parametrize(
    ("status", "kind"), [(429, Throttled), (403, AccessRefused), (500, CallFailed)]
)
def test_a_failed_request_without_an_await_is_the_failure_of_its_row(service, status, kind, caplog):
    async def answer(request):
        await asyncio.sleep(0.05)
        return web.json_response({}, status=status)

    service.answer = answer

    @declared(service.url)
    async def sentiment(row, http):
        sent = asyncio.ensure_future(http.post("/log", json={}))
        sent.add_done_callback(lambda ended: ended.exception())
        return {"label": "done"}

    (found,) = ask(sentiment, ("x",))
    assert isinstance(found, kind)


@pytest.mark.parametrize(
    ("before", "status", "idempotent", "kind"),
    [
        ("post", 429, False, CallFailed), ("get", 429, False, Throttled),
        ("post", 429, True, Throttled), ("post", 400, False, Unclear),
        ("get", 400, False, StatusFailed), ("post", 400, True, StatusFailed),
    ],
)  # fmt: skip
def test_a_refusal_after_a_request_that_acted_is_not_reported_as_unsent(
    service, before, status, idempotent, kind
):
    async def answer(request):
        return web.json_response({}, status=200 if request.path == "/first" else status)

    service.answer = answer

    @declared(service.url, idempotent=idempotent, retry=Retry(retries=0))
    async def sentiment(row, http):
        await getattr(http, before)("/first")
        await http.post("/second", json={})

    (found,) = ask(sentiment, ("x",))
    assert type(found) is kind


def test_http_is_refused_after_the_coroutine_of_its_row_has_ended(service):
    refused = []

    async def later(http):
        await asyncio.sleep(0.05)
        try:
            await http.get("/late")
        except RuntimeError as error:
            refused.append(str(error))

    @declared(service.url)
    async def sentiment(row, http):
        if row.text == "x":
            tasks.append(asyncio.ensure_future(later(http)))
        else:
            await asyncio.gather(*tasks)
        return {"label": "done"}

    tasks = []
    assert ask(sentiment, ("x",), ("y",)) == [("done", None)] * 2
    (sentence,) = refused
    assert sentence.startswith("http is used after the function returned; nothing was sent. Await")
    assert service.log == []
