"""A real HTTP vendor of the drawn lookups, with its bill and its record of requests."""

import asyncio
import base64
import json
from collections import Counter, defaultdict
from decimal import Decimal
from urllib.parse import parse_qs, unquote

from aiohttp import web

from tests.jobs.run.drawn.natures import DENIALS, PATIENCE, Look, canonical, reaction

PAUSE = "0.02"  # s, in Retry-After
SECRET = "s3cr%et ü/+"  # of nobody
LARGE = "x" * 3000
STATUSES = ("404", "400", *DENIALS, "500", "429", "503")
THROTTLED = ("429", "503", "over")
ANSWERED = ("answer", "404", "none", "misfit", "lacks", "wrong", "cut")
UNTOLD = ("garbage", "204", "large", "twice")  # answers that do not tell what they used
LAST_PAGE = ("500", "drop", "400")  # faults of the last page; others are of the first one
USES_OF_FIRST_TOKEN = 7  # before it is refused


class DrawnVendor:
    """Answers `/<service>/<lookup>/...`.

    Attributes:
        looks: The lookups, by name.
        auth: Service -> how it knows its client.
        epoch: A number in its answers, which tells when it gave them.
        seen: Requests that began a call, by lookup and key.
        requests: All requests by lookup, also refused ones.
        bills: USD by lookup.
        silent: Requests by lookup whose answer does not tell what it cost.
        counts: By lookup and name: requests answered and throttled, and units used.
        most: By lookup, the most requests that it had at once since it was heard.
        faults: What it could not answer.
    """

    def __init__(self, service):
        service.answer = self._answer_or_note
        self.looks: dict[str, Look] = {}
        self.auth = {}
        self.epoch = 0
        self.seen, self.requests, self.silent = Counter(), Counter(), Counter()
        self.bills, self.counts = defaultdict(Decimal), Counter()
        self.faults = []
        self.most, self._here = Counter(), Counter()
        self._tokens, self._used = [], Counter()
        self._values, self._calls = {}, {}  # of a header, by call; and the reverse

    async def _answer_or_note(self, request):
        try:
            return await self._answer(request)
        except Exception as error:
            self.faults.append(f"{request.raw_path[:200]}: {error!r}")
            raise

    async def _answer(self, request):
        service, *parts = request.raw_path.partition("?")[0].split("/")[1:]
        if service == "token":
            return await self._token(request)
        look = self.looks[parts[0]]
        self._here[look.name] += 1
        self.most[look.name] = max(self.most[look.name], self._here[look.name])
        try:
            return await self._asked(look, service, parts, request)
        finally:
            self._here[look.name] -= 1

    async def _asked(self, look, service, parts, request):
        self.requests[look.name] += 1
        body = None
        if request.method == "POST":
            body = json.loads(await request.text())
        keys = self._keys(look, parts[1:], body)
        self._bill(look, "request", 1)
        if request.query.get("page", "0") == "0":
            self._bill(look, "item", len(keys))
        if look.has_header:
            self._recognize((look.name, look.version, keys[0]), request.headers.get("X-Call"))
        if not self._is_known(request, service):
            return web.json_response({"error": "who are you"}, status=401)
        if look.kind == "batch":
            return self._batch(look, body["items"], keys)
        return await self._single(look, keys[0], request)

    @staticmethod
    def _keys(look, parts, body):
        if body is None:
            return [json.dumps([unquote(part) for part in parts])]
        items = body["items"] if look.kind == "batch" else [body]
        return [json.dumps([canonical(item[name]) for name in look.keys]) for item in items]

    def _recognize(self, call, value):
        """Note that a call, and nothing else, has this value in its header."""
        if self._values.setdefault(call, value) != value or not value:
            self.faults.append(f"{call} is named {self._values[call]!r}, then {value!r}")
        if self._calls.setdefault(value, call) != call:
            self.faults.append(f"{call} has the name of {self._calls[value]}: {value!r}")

    # -- who asks ----------------------------------------------------------------------------------
    async def _token(self, request):
        secret = (await request.post()).get("client_secret")
        if secret is None:
            basic = base64.b64decode(request.headers["Authorization"].split()[1]).decode()
            secret = unquote(basic.partition(":")[2].replace("+", " "))
        if secret != SECRET:
            self.faults.append(f"a token was asked for with {secret!r}")
        self._tokens.append(f"token-{len(self._tokens)}")
        return web.json_response({"access_token": self._tokens[-1], "expires_in": 3600})

    def _is_known(self, request, service):
        kind, sent = self.auth.get(service, ""), request.headers.get("Authorization", "")
        if kind.startswith("oauth"):
            token = sent.removeprefix("Bearer ")
            self._used[token] += 1
            is_spent = token == "token-0" and self._used[token] > USES_OF_FIRST_TOKEN
            return token in self._tokens and not is_spent
        if kind == "basic":
            return base64.b64decode(sent.split()[-1]).decode() == f"user:{SECRET}"
        return {
            "bearer": sent == "Bearer a-token",
            "header": request.headers.get("X-Key") == "a-key",
            "query": parse_qs(request.query_string).get("api_key") == ["k&y"],
        }.get(kind, True)

    # -- the bill ----------------------------------------------------------------------------------
    def _bill(self, look, unit, count):
        self.counts[look.name, unit] += count
        for amount, per in look.prices:
            if per == unit:
                self.bills[look.name] += Decimal(amount) * count

    def _bill_use(self, look, key, what):
        """An answer's use, where that is what is billed."""
        is_left = what in ("drop", "hang") or (what == "slow" and not look.finishes)
        if look.bills_use and (what in UNTOLD or is_left):
            self.silent[look.name] += 1
        elif what != "202" or look.takes_202 or not look.bills_hits:
            self._bill(look, "token", look.tokens(key))
            self._bill(look, "hit", 1)

    # -- answers -----------------------------------------------------------------------------------
    def _count(self, look, what):
        """Count a request by what it brought: an answer or a miss, whether it fits or not."""
        self.counts[look.name, "throttled"] += what in THROTTLED
        is_answer = what in ANSWERED or (what == "202" and look.takes_202)
        is_answer |= what == "slow" and look.finishes
        self.counts[look.name, "answered"] += is_answer

    async def _single(self, look, key, request):
        page, pages = int(request.query.get("page", "0")), look.pages_of(key)
        what = reaction(look.mood(key), self.seen[look.name, key] - bool(page))
        self.seen[look.name, key] += not page
        if (page < pages - 1 and what in LAST_PAGE) or (page and what not in LAST_PAGE):
            what = "answer"
        self._count(look, what)
        if what == "302":
            return web.Response(status=302, headers={"Location": "/elsewhere"})
        if what in STATUSES:
            return self._refused(what)
        self._bill_use(look, key, what)
        if what in ("hang", "slow"):
            await asyncio.sleep(2 * PATIENCE)
        if what == "drop":
            request.transport.abort()
            return web.Response()
        if what == "204":
            return web.Response(status=204)
        if what == "garbage":
            return web.Response(text="<html>", content_type="text/html")
        headers = {"Retry-After": PAUSE} if what == "over" else {}
        if look.page_form == "Link" and page < pages - 1:
            address = request.raw_path.partition("?")[0]
            headers["Link"] = f'<{address}?page={page + 1}>; rel="next"'
        return web.Response(
            text=self._text(look, key, what, page), headers=headers,
            content_type="application/json", status=202 if what == "202" else 200,
        )  # fmt: skip

    @staticmethod
    def _refused(what):
        headers = {"Retry-After": PAUSE} if what in ("429", "503") else {}
        return web.json_response({"error": what}, status=int(what), headers=headers)

    def _members(self, look, key, what):
        """The JSON of each member of an answer, with its fault."""
        members = {name: truth.source for name, truth in look.truths(key, self.epoch).items()}
        if what == "lacks":
            del members["n"]
        faults = {
            "misfit": {"n": '"many"'},
            "wrong": {"state": '"FAILED"'},
            "over": {"over": "true"},
            "cut": {"finish": '"length"'},
        }
        return {"none": "true"} if what == "none" else members | faults.get(what, {})

    def _text(self, look, key, what, page):
        """The JSON of an answer, or of a page of it."""
        members = self._members(look, key, what)
        members["asked"] = json.dumps(dict(zip(look.keys, json.loads(key), strict=True)))
        members["usage"] = json.dumps({"tokens": look.tokens(key)})
        if look.kind == "pages":
            is_last = page == look.pages_of(key) - 1
            members |= {"items": json.dumps([f"{key}#{page}"]), "more": json.dumps(not is_last)}
            if not is_last:
                named = look.page_form == "parameter"
                members["next"] = json.dumps(f"{page + 1}" if named else f"?page={page + 1}")
        if what == "large":
            members["pad"] = json.dumps(LARGE)
        text = as_object(members)
        return text[:-1] + ', "v": "again"}' if what == "twice" else text

    def _batch(self, look, items, keys):
        whats = [reaction(look.mood(key), self.seen[look.name, key]) for key in keys]
        self.seen.update((look.name, key) for key in keys)
        for what in (*DENIALS, "429", "503", "500", "400"):
            if what in whats:
                self._count(look, what)
                return self._refused(what)
        self._count(look, "answer")
        answers, tokens = [], 0
        for place, (item, key, what) in enumerate(zip(items, keys, whats, strict=True)):
            if what == "left out":
                continue
            tokens += look.tokens(key)
            members = self._members(look, key, what)
            if look.batch_match == "match":
                members["id"] = json.dumps(item["id"])
            elif look.batch_match == "position":
                members["place"] = str(place)
            answers.append(as_object(members))
        self._bill(look, "token", tokens)
        self._bill(look, "hit", 1)
        if look.batch_match:
            answers.reverse()
        text = f'{{"answers": [{", ".join(answers)}], "usage": {{"tokens": {tokens}}}}}'
        return web.Response(text=text, content_type="application/json")


def as_object(members):
    """An object whose members are JSON already."""
    return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in members.items()) + "}"
