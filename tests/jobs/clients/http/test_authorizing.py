"""Authentication against real servers: what goes over the wire, when a token is renewed, and where
no secret is.
"""

import asyncio
import base64
import dataclasses
import json
import logging
import os
import random
import re
from contextlib import asynccontextmanager
from datetime import timedelta
from urllib.parse import quote, quote_plus

import pytest
from aiohttp import web
from pyspark import cloudpickle

from jobs.clients.client import CallFailed, Throttled
from jobs.clients.coroutine import CoroutineClient
from jobs.clients.http import token_headers
from jobs.clients.http.authorizing import authorizer
from jobs.clients.http.http_client import HttpClient
from jobs.clients.http.http_session import TokenRefused
from jobs.clients.http.secret_texts import without_secrets
from jobs.clients.http.token_headers import _TOKENS
from jobs.declare.values.fingerprint import plain
from jobs.errors import AccessRefused, DeclarationError, RunStopped
from jobs.run.plan.planner import plan_tasks
from jobs.run.rows.keyed_rows import written_schema
from jobs.task.runner import run_partition
from tests.support.disorderly_service import GREETING, DisorderlyService
from tidegate import (
    ApiKey,
    Basic,
    Bearer,
    Enrichment,
    Env,
    HttpLookup,
    Input,
    OAuth2ClientCredentials,
    Output,
    Pages,
    Retry,
    Service,
)  # fmt: skip
from tidegate import (
    lookup as coroutine,
)

SECRET = "s3cr3t-Zq9:/x%20+"  # as it may be: with what URLs and forms escape

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _a_process_of_its_own():
    """Ports come again: a test is to find no token of another one."""
    _TOKENS.clear()


class Api:
    """A service that wants to be known, and the server of its tokens; `life` s each."""

    def __init__(self, life=3600, valid=None):
        self.life = life
        self.valid = valid  # says whether an Authorization header is taken
        self.seen = []  # Authorization headers of the service's requests
        self.headers = []
        self.token_requests = []  # Authorization header, form
        self.token_answer = None

    async def token(self, request):
        self.token_requests.append(
            (request.headers.get("Authorization"), dict(await request.post()))
        )
        await asyncio.sleep(0.02)
        if self.token_answer is not None:
            return self.token_answer()
        number = len(self.token_requests)
        return web.json_response(
            {"access_token": f"token-{number}", "token_type": "Bearer", "expires_in": self.life}
        )

    async def value(self, request):
        message = request.headers.get("Authorization")
        self.seen.append(message)
        self.headers.append(dict(request.headers))
        if self.valid is not None and not self.valid(message):
            return web.json_response({"error": message}, status=401, reason=f"No {message}")
        return web.json_response({"score": 1.0})

    @asynccontextmanager
    async def running(self):
        application = web.Application()
        application.router.add_post("/token", self.token)
        application.router.add_get("/v1/{key}", self.value)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()


def lookup(url, auth):
    return HttpLookup(
        name="mood",
        service=Service(name="moods", url=url, max_concurrency=4, auth=auth),
        request="GET /v1/{k}",
        keys={"k": "k"},
        returns="score DOUBLE",
        timeout=10.0,
        retry=Retry(retries=0),
    )


def oauth2(url, **fields):
    standard = {
        "token_url": f"{url}/token",
        "client_id": Env("THE_ID"),
        "client_secret": Env("THE_SECRET"),
    }
    return OAuth2ClientCredentials(**standard | fields)


LIFE = 20  # s, of a token that is to run out: longer than a busy machine stands still


def pass_by(seconds):
    """Let so many seconds pass at once, by the clock of the loop, which tokens go by."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds


async def renewed():
    """Return when no token is being fetched."""
    while fetching := [task for task in asyncio.all_tasks() if task.get_name() == "tidegate token"]:
        await asyncio.wait(fetching)


def asking(api, auth, script):
    """Run `script(call)` with a caller of the api; `call` gives the answer or the exception."""

    async def main():
        async with api.running():
            caller = HttpClient(lookup(api.url, auth(api.url)), 4)

            async def call():
                try:
                    return await caller.call(("a",))
                except (CallFailed, Throttled, RunStopped) as error:
                    return error

            try:
                await caller.open()
                return await script(call)
            finally:
                await caller.close()

    return asyncio.run(main())


@pytest.fixture(autouse=True)
def secrets(monkeypatch):
    monkeypatch.setenv("THE_ID", "me & co")
    monkeypatch.setenv("THE_SECRET", SECRET)


async def once(call):
    return await call()


def some_times(times):
    async def script(call):
        return [await call() for _ in range(times)]

    return script


def test_an_api_key_goes_in_its_own_header():
    api = Api()
    assert asking(api, lambda _: ApiKey(Env("THE_SECRET"), header="X-Geo-Key"), once) == {
        "score": 1.0
    }
    assert api.headers[0]["X-Geo-Key"] == SECRET
    assert api.seen == [None]


def test_a_bearer_token_goes_in_the_authorization_header():
    api = Api()
    asking(api, lambda _: Bearer(Env("THE_SECRET")), once)
    assert api.seen == [f"Bearer {SECRET}"]


def test_user_and_password_go_as_http_basic():
    api = Api()
    asking(api, lambda _: Basic(Env("THE_ID"), Env("THE_SECRET")), once)
    kind, _, pair = api.seen[0].partition(" ")
    assert (kind, base64.b64decode(pair).decode()) == ("Basic", f"me & co:{SECRET}")


@pytest.mark.parametrize("where", ["header", "body"])
def test_one_token_is_fetched_for_all_requests_of_a_task(where):
    async def many(call):
        return await asyncio.gather(*(call() for _ in range(20)))

    api = Api()
    assert (
        asking(api, lambda url: oauth2(url, scope="geo", client_auth=where), many)
        == [{"score": 1.0}] * 20
    )
    assert set(api.seen) == {"Bearer token-1"}
    ((header, form),) = api.token_requests
    if where == "header":
        assert (
            base64.b64decode(header.partition(" ")[2]).decode()
            == "me+%26+co:s3cr3t-Zq9%3A%2Fx%2520%2B"
        )
        assert form == {"grant_type": "client_credentials", "scope": "geo"}
    else:
        assert header is None
        assert form["client_id"] == "me & co"
        assert form["client_secret"] == SECRET


def in_turn(api, *scripts):
    """Tasks of one process, one after the other: the callers of each on a loop of its own, its
    script run in it.
    """

    async def task(script):
        callers = [HttpClient(lookup(api.url, oauth2(api.url)), 4) for _ in range(2)]
        try:
            for caller in callers:
                await caller.open()
            return await script(callers)
        finally:
            for caller in callers:
                await caller.close()

    async def main():
        async with api.running():
            return [await asyncio.to_thread(asyncio.run, task(script)) for script in scripts]

    return asyncio.run(main())


async def each(callers):
    return [await caller.call(("a",)) for caller in callers]


def test_the_tasks_and_lookups_of_a_process_share_a_token():
    api = Api()
    assert in_turn(api, each, each, each) == [[{"score": 1.0}] * 2] * 3
    assert len(api.token_requests) == 1
    assert "token-1" not in repr(vars(token_headers))


def test_a_shared_token_that_is_about_to_expire_is_not_used():
    async def late(callers):
        for asked, token in token_headers._TOKENS.items():  # more than half of its life is over
            aged = {name: getattr(token, name) - 0.6 * LIFE for name in ("renew_at", "ends_at")}
            token_headers._TOKENS[asked] = dataclasses.replace(token, **aged)
        return callers

    api = Api(life=LIFE)
    in_turn(api, late, each)
    assert set(api.seen) == {"Bearer token-2"}


def test_a_401_renews_a_shared_token_once_for_all_its_users():
    accepted = {"Bearer token-1"}

    async def revoked(callers):
        accepted.clear()
        accepted.add("Bearer token-2")
        first, second = callers
        with pytest.raises(Throttled):
            await first.call(("a",))
        answers = [await first.call(("a",))]
        with pytest.raises(Throttled):
            await second.call(("a",))
        return [*answers, await second.call(("a",))]

    api = Api(valid=lambda message: message in accepted)
    in_turn(api, each, revoked, each)
    assert len(api.token_requests) == 2


def test_a_token_is_renewed_once_before_it_expires_and_no_call_waits():
    async def twice(call):
        await call()
        pass_by(0.6 * LIFE)
        await asyncio.gather(*(call() for _ in range(10)))
        await renewed()
        await call()

    api = Api(life=LIFE)
    asking(api, oauth2, twice)
    assert len(api.token_requests) == 2
    assert api.seen == [*["Bearer token-1"] * 11, "Bearer token-2"]


def test_an_expired_token_is_fetched_once_while_all_calls_wait():
    async def late(call):
        pass_by(1.2 * LIFE)
        return await asyncio.gather(*(call() for _ in range(10)))

    api = Api(life=LIFE)
    assert asking(api, oauth2, late) == [{"score": 1.0}] * 10
    assert len(api.token_requests) == 2
    assert set(api.seen) == {"Bearer token-2"}


def test_a_401_renews_the_token_once_for_all_calls_and_uses_no_retry():
    async def revoked(call):
        first = await asyncio.gather(*(call() for _ in range(5)))
        return first, await asyncio.gather(*(call() for _ in range(5)))

    api = Api(valid=lambda message: message == "Bearer token-2")
    refused, taken = asking(api, oauth2, revoked)
    assert {type(error) for error in refused} == {TokenRefused}
    assert {error.seconds for error in refused} == {0.0}
    assert taken == [{"score": 1.0}] * 5
    assert len(api.token_requests) == 2


class PagedApi(Api):
    """Three pages, of which the second refuses the first token."""

    def __init__(self):
        super().__init__(valid=lambda token: token != "Bearer token-1" or len(self.seen) != 2)
        self.paid = []

    async def value(self, request):
        answer = await super().value(request)
        if answer.status != 200:
            return answer
        self.paid.append(int(request.query.get("page", "1")))
        following = self.paid[-1] + 1
        return web.json_response({"score": 1.0, "next": following if following < 4 else None})


def paged(url):
    pages = Pages(next="$.next", parameter="page", max_pages=5)
    return HttpClient(dataclasses.replace(lookup(url, oauth2(url)), pages=pages), 4)


def asking_thrice(url):
    service = Service(name="moods", url=url, max_concurrency=4, auth=oauth2(url))

    @coroutine(service=service, keys={"k": "k"}, returns="score DOUBLE", timeout=10.0)
    async def mood(_, http):
        for page in (1, 2, 3):
            answer = await http.get("/v1/a", params={"page": page})
        return answer

    return CoroutineClient(mood, 4)


@pytest.mark.parametrize("made", [paged, asking_thrice])
def test_a_401_after_paid_requests_of_a_call_repeats_none_of_them(made):
    async def main():
        api = PagedApi()
        async with api.running():
            client = made(api.url)
            await client.open()
            try:
                await client.call(("a",))
            finally:
                await client.close()
        return api

    api = asyncio.run(main())
    assert api.paid == [1, 2, 3]
    assert api.seen == [*2 * ["Bearer token-1"], *2 * ["Bearer token-2"]]


def test_a_second_401_in_a_row_stops_the_run():
    async def refused(call):
        return [await call(), await call()]

    api = Api(valid=lambda _: False)
    first, second = asking(api, oauth2, refused)
    assert isinstance(first, Throttled)
    assert isinstance(second, RunStopped)
    assert "token-" not in str(second)
    assert len(api.token_requests) == 2


def test_a_401_after_an_accepted_token_fetches_another_token():
    accepted = {"Bearer token-1"}

    async def script(call):
        message = []
        for number in (2, 3):
            message.append(await call())
            accepted.clear()
            accepted.add(f"Bearer token-{number}")
            message.append(type(await call()))
        return [*message, await call()]

    api = Api(valid=lambda message: message in accepted)
    answer = {"score": 1.0}
    assert asking(api, oauth2, script) == [
        answer, TokenRefused, answer, TokenRefused, answer,
    ]  # fmt: skip


class PartlyClosedApi(Api):
    """It answers 401 for the key `closed`, whatever the token."""

    async def value(self, request):
        answer = await super().value(request)
        return answer if request.match_info["key"] != "closed" else web.Response(status=401)


def test_a_request_refused_with_two_tokens_stops_the_run_though_others_are_answered():
    async def main():
        api = PartlyClosedApi()
        async with api.running():
            caller = HttpClient(lookup(api.url, oauth2(api.url)), 4)
            await caller.open()
            try:
                with pytest.raises(TokenRefused):
                    await caller.call(("closed",))
                await caller.call(("a",))  # with the new token
                with pytest.raises(AccessRefused):
                    await caller.call(("closed",))
            finally:
                await caller.close()
        return api

    assert len(asyncio.run(main()).token_requests) == 2


def test_a_refused_client_stops_the_run_with_the_code_of_the_server_and_no_secret():
    api = Api()
    api.token_answer = lambda: web.json_response(
        {"error": "invalid_client", "hint": SECRET}, status=401
    )
    with pytest.raises(RunStopped) as caught:
        asking(api, oauth2, once)
    assert str(caught.value) == (
        f"moods: {api.url}/token refuses a token: 401 invalid_client. Its secrets are read from "
        "THE_ID, THE_SECRET, in the environment or .env."
    )


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "[" * 30_000,
        '{"token_type": "bearer"}',
        '{"access_token": 3, "token_type": "bearer"}',
        '{"access_token": "x", "token_type": "mac"}',
        '{"access_token": "x\\n", "token_type": "bearer"}',
        '{"access_token": "", "token_type": "bearer"}',
    ],
)
def test_a_token_response_without_a_bearer_token_stops_the_run(body):
    api = Api()
    api.token_answer = lambda: web.Response(text=body)
    with pytest.raises(RunStopped, match="gave no bearer token"):
        asking(api, oauth2, once)


async def in_pieces(request, *, cut_off=False):
    """A token as a server writes it that answers in chunks; cut_off: the connection goes before the
    last one.
    """
    body = json.dumps(
        {"access_token": "token-in-pieces", "token_type": "Bearer", "expires_in": 3600}
    ).encode()
    response = web.StreamResponse()
    await response.prepare(request)
    for piece in (body[:20], body[20:]):
        await response.write(piece)
        await asyncio.sleep(0.02)
    if cut_off:
        request.transport.abort()
    return response


def test_a_token_response_in_pieces_is_read_to_its_end():
    api = Api(valid=lambda message: message == "Bearer token-in-pieces")
    api.token = in_pieces
    assert asking(api, oauth2, once) == {"score": 1.0}


def test_a_token_is_read_from_a_201():
    api = Api(valid=lambda message: message == "Bearer token-x")
    api.token_answer = lambda: web.json_response({"access_token": "token-x"}, status=201)
    assert asking(api, oauth2, once) == {"score": 1.0}


def test_a_token_whose_lifetime_is_null_is_used_as_a_token_without_a_lifetime():
    api = Api(life=None)
    assert asking(api, oauth2, once) == {"score": 1.0}
    assert len(api.token_requests) == 1


@pytest.mark.parametrize(
    "said",
    [
        {}, {"token_type": None}, {"token_type": "bearer "},
        {"token_type": "BearerToken", "expires_in": "3599"},
        {"token_type": "Bearer", "expires_in": 0}, {"expires_in": "0"}, {"expires_in": -1},
        {"expires_in": "3600s"}, {"expires_in": "an hour"}, {"expires_in": {"seconds": 3600}},
        {"expires_in": True}, {"expires_in": float("nan")}, {"expires_in": 10**400},
        {"expires_in": ""}, {"expires_in": 1e308},
    ],
)  # fmt: skip
def test_a_token_is_used_and_kept_whatever_its_declared_type_and_lifetime(said):
    api = Api()
    api.token_answer = lambda: web.json_response({"access_token": "token-x"} | said)
    assert asking(api, oauth2, some_times(20)) == [{"score": 1.0}] * 20
    assert api.seen == ["Bearer token-x"] * 20
    assert len(api.token_requests) == 1


def test_a_truncated_token_response_is_requested_again(monkeypatch):
    monkeypatch.setattr("jobs.clients.http.token_headers.TOKEN_PAUSE", 0.0)
    cut_off = [True, False]

    async def token(request):
        return await in_pieces(request, cut_off=cut_off.pop(0))

    api = Api(valid=lambda message: message == "Bearer token-in-pieces")
    api.token = token
    assert asking(api, oauth2, once) == {"score": 1.0}
    assert cut_off == []


def test_a_task_that_starts_retries_a_failing_token_server(monkeypatch):
    monkeypatch.setattr("jobs.clients.http.token_headers.TOKEN_PAUSE", 0.0)
    api = Api()
    api.token_answer = lambda: web.Response(status=503)
    with pytest.raises(RunStopped, match=r"gave no token: 503 \(3 tries\)"):
        asking(api, oauth2, once)
    assert len(api.token_requests) == 3


def test_a_call_without_a_token_is_a_passing_failure():
    async def late(call):
        api.token_answer = lambda: web.Response(status=503)
        pass_by(1.2 * LIFE)
        failed = await call()
        api.token_answer = None
        return failed, await call()

    api = Api(life=LIFE)
    failed, then = asking(api, oauth2, late)
    assert isinstance(failed, CallFailed)
    assert failed.passing
    assert then == {"score": 1.0}
    assert None not in api.seen


def throttle(seconds):
    """The answer of a server of tokens that says when to ask again."""
    return lambda: web.Response(status=429, headers={"Retry-After": str(seconds)})


def test_a_starting_task_waits_for_a_token_as_long_as_the_token_server_says(monkeypatch):
    monkeypatch.setattr("jobs.clients.http.token_headers.TOKEN_PAUSE", 3600.0)
    api, answers = Api(), [throttle(0), None]
    answer = api.token

    async def token(request):
        api.token_answer = answers.pop(0)
        return await answer(request)

    api.token = token
    assert asking(api, oauth2, once) == {"score": 1.0}
    api.token_answer, api.token = throttle(3600), answer
    _TOKENS.clear()
    with pytest.raises(RunStopped, match=r"no token: 429, to be asked again in 3600 s \(1 try\)"):
        asking(api, oauth2, once)


def test_a_pause_of_the_token_server_holds_calls_back_and_uses_no_retry():
    async def late(call):
        api.token_answer = throttle(50)
        pass_by(1.2 * LIFE)
        paused = await call(), await call()
        api.token_answer = None
        pass_by(50)
        return *paused, await call()

    api = Api(life=LIFE)
    *paused, then = asking(api, oauth2, late)
    assert [type(failure) for failure in paused] == [Throttled, Throttled]
    assert all(40 < failure.seconds <= 50 for failure in paused)
    assert then == {"score": 1.0}
    assert len(api.token_requests) == 3


@pytest.mark.parametrize(
    ("declare", "sentence"),
    [
        (lambda: ApiKey(SECRET), 'key is a str; it must be Env("NAME")'),
        (lambda: Bearer(SECRET), 'token is a str; it must be Env("NAME")'),
        (lambda: Basic(Env("THE_ID"), SECRET), 'password is a str; it must be Env("NAME")'),
        (lambda: ApiKey(Env("A"), header="X Key"), "header is 'X Key'"),
        (
            lambda: oauth2("http://h", client_secret=SECRET),
            'client_secret is a str; it must be Env("NAME")',
        ),
        (lambda: oauth2("ftp://h"), "token_url is not an http"),
        (lambda: oauth2("http://h", client_auth="query"), "client_auth is 'query'"),
        (lambda: oauth2("http://h", refresh_before=timedelta(seconds=-1)), "refresh_before is"),
    ],
)
def test_a_wrong_declaration_of_authentication_is_reported_without_the_secret(declare, sentence):
    with pytest.raises(DeclarationError) as caught:
        declare()
    assert sentence in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("value", ["two\nlines", " padded"])
def test_a_secret_that_no_header_can_hold_is_refused_without_showing_it(monkeypatch, value):
    monkeypatch.setenv("THE_SECRET", value)
    with pytest.raises(DeclarationError, match="THE_SECRET holds a line break, a space") as caught:
        authorizer(Bearer(Env("THE_SECRET")), "moods")
    assert value not in str(caught.value)


def test_a_secret_that_the_service_repeats_is_masked():
    api = Api(valid=lambda _: False)
    stopped = asking(api, lambda _: Bearer(Env("THE_SECRET")), once)
    assert str(stopped).endswith(
        'denies access: 401 No Bearer ***: {"error": "Bearer ***"}. '
        "Its secrets are read from THE_SECRET, in the environment or .env."
    )
    assert authorizer(oauth2("http://h"), "moods").masked(f"a {SECRET} b") == "a *** b"


# longer than a value is shown, and with what texts of all kinds escape
LONG = "sk-live-" + "AbC9" * 20 + "\\\"'/é"


@pytest.mark.parametrize(
    "written",
    [
        LONG,
        repr(f"'{LONG}'"),
        json.dumps(LONG),
        quote(LONG, safe=""),
        f"got '{LONG[:50]}...",
        f"got {LONG[:9]}...",
    ],
)
def test_a_secret_is_masked_in_any_encoding_and_where_it_is_cut(monkeypatch, written):
    monkeypatch.setenv("THE_SECRET", LONG)
    for auth in (
        Bearer(Env("THE_SECRET")),
        Basic(Env("THE_ID"), Env("THE_SECRET")),
        oauth2("http://h"),
    ):
        message = authorizer(auth, "moods").masked(f"it said {written} and more")
        assert "***" in message
        assert "sk-" not in message


ODD = "Ab/cd+Ef&12'34=~\"<é\n=="


def coded(letters, form):
    return "".join(form(letter) if letter in letters else letter for letter in ODD)


@pytest.mark.parametrize(
    "written",
    [
        json.dumps(ODD).replace("/", "\\/"),  # PHP
        coded("\"&'+<>é\n", lambda letter: f"\\u{ord(letter):04X}"),  # .NET
        coded("&<'=\n\"", lambda letter: f"\\u{ord(letter):04x}"),  # Go, Gson
        quote(ODD),
        quote(ODD, safe="!~*'()"),  # JavaScript
        re.sub("%..", lambda code: code[0].lower(), quote(ODD, safe="")),  # .NET
        quote_plus(ODD),
        coded("\"&'+<", lambda letter: f"&#{ord(letter)};"),
        coded("\"&'</", lambda letter: f"&#x{ord(letter):X};"),
        repr(ODD.encode()),
    ],
)
def test_a_secret_is_masked_as_any_service_escapes_it(written):
    masked = without_secrets(f"bad key {written} here", (ODD,))
    assert re.fullmatch("bad key [b'\"]*\\*\\*\\*['\"]? here", masked), masked
    begin = without_secrets(f"bad key {written[:-9]}...", (ODD,))
    assert "cd" not in begin


@pytest.mark.parametrize(
    ("secret", "shown"),
    [("abcdef.ghijkl", "abcdef"), (r"abcd\efghij", r"abcd\\ef"), ("abcd&efghij", "abcd&amp;ef")],
)
def test_a_secret_that_is_cut_before_a_dot_or_within_its_escapes_is_masked(secret, shown):
    assert without_secrets(f"bad key {shown}...'", (secret,)) == "bad key ***...'"


def test_a_secret_of_three_letters_is_masked_only_as_a_whole_word():
    text = "403 Forbidden: unknown user no, token=no"
    masked = "403 Forbidden: unknown user ***, token=***"
    assert without_secrets(text, ("no",)) == masked
    assert without_secrets("the key n is not known", ("n",)) == "the key *** is not known"


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode, base64.b16encode])
def test_a_secret_inside_an_encoded_text_is_masked(encode):
    draw = random.Random(24)
    for _ in range(300):
        secret = "".join(draw.choices("abcXYZ0123-_./+é", k=draw.randint(6, 40)))
        before, after = draw.randbytes(draw.randint(0, 7)), draw.randbytes(draw.randint(0, 7))
        written = encode(before + secret.encode() + after).decode().rstrip("=")
        masked = without_secrets(f"it said {written} and more", (secret,)).split(" ")[2]
        beside = masked.split("***")
        assert len(beside) == 2, masked
        assert len("".join(beside)) <= (len(before) + len(after)) * 2 + 4


def test_a_secret_longer_than_the_shown_beginning_of_a_value_is_masked(monkeypatch):
    monkeypatch.setenv("THE_SECRET", LONG)
    caller = HttpClient(lookup("http://h", Bearer(Env("THE_SECRET"))), 1)
    with pytest.raises(ValueError, match=r"expected DOUBLE, got \['Bearer \*\*\*\.\.\.$"):
        caller.columns({"score": [f"Bearer {LONG}"]})


@pytest.mark.spark
def test_the_secret_is_in_no_plan_log_record_error_or_file(
    spark, service, tmp_path, monkeypatch, caplog
):
    """Everything that a run makes is searched; the value itself goes over the wire."""
    seen = []
    secret_file = tmp_path / "secret"

    async def value(request):
        seen.append(request.headers["Authorization"])
        return web.json_response(
            {"score": SECRET}, status=200 if request.path.endswith("1") else 500, reason=SECRET
        )

    service.answer = value
    declared = lookup(service.url, Bearer(Env("THE_SECRET")))
    enrichment = Enrichment(
        name="moods_enriched",
        input=Input(path="in", row_id=["k"]),
        lookups=[declared],
        output=Output(path="out"),
    )
    caplog.set_level(logging.INFO)
    prepared, plan = plan_tasks(
        spark.createDataFrame([("1",), ("2",)], "k STRING").coalesce(1), enrichment
    )
    monkeypatch.delenv("THE_SECRET")  # it is on the executors only, as on a cluster
    secret_file.write_text(SECRET)

    def task(batches):
        os.environ["THE_SECRET"] = secret_file.read_text()
        return run_partition(plan, batches)

    rows = prepared.mapInArrow(task, written_schema(prepared.schema, plan.layout))
    text = rows._jdf.queryExecution().toString()
    rows.write.json(str(tmp_path / "written"))
    made = [
        text,
        repr(enrichment),
        enrichment.facts().to_json(),
        json.dumps(plain(enrichment)),
        caplog.text,
    ]
    made += [cloudpickle.dumps(task).decode("latin-1")]
    made += [
        path.read_text("latin-1") for path in (tmp_path / "written").rglob("*") if path.is_file()
    ]
    assert any("***" in text for text in made)
    assert [text for text in made if SECRET in text] == []
    assert set(seen) == {f"Bearer {SECRET}"}


@pytest.mark.parametrize(
    "fault", ["two at once", "a second one", "more than Content-Length, later", GREETING]
)
def test_a_token_followed_by_a_second_response_is_not_used(monkeypatch, fault):
    monkeypatch.setenv("ID", "me")
    monkeypatch.setenv("SECRET", SECRET)
    tokens = iter(range(100))

    def token(path, body):
        return {"access_token": f"token-{next(tokens)}", "token_type": "Bearer", "expires_in": 3600}

    connections = []

    def some(number):
        if number == 0:
            connections.append(number)
        return (
            fault if len(connections) == 1 and number == (0 if fault == GREETING else 1) else None
        )

    with DisorderlyService(token, fault=some) as service:
        auth = OAuth2ClientCredentials(
            token_url=f"{service.url}/token", client_id=Env("ID"), client_secret=Env("SECRET")
        )

        async def headers():
            asks = authorizer(auth, "geo")
            await asks.open()
            try:
                return await asks.headers()
            finally:
                await asks.close()

        given = asyncio.run(headers())
    assert len(connections) == 2
    assert given == {"Authorization": f"Bearer token-{next(tokens) - 1}"}
