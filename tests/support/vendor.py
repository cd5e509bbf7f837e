"""A real HTTP vendor of jobs, with its count of what it accepted, and its invoice."""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal

from aiohttp import HttpVersion10, web

PRICE = Decimal("0.0040")  # USD per item that it answers


@dataclass
class VendorJob:
    token: str
    items: list  # (id, text)
    looks: int  # until it is over
    end: str = "completed"
    results: list = field(default_factory=list)
    billed: int = 0
    status: str = "running"


async def cut(request, data):
    """Answers without a length, as a proxy of HTTP/1.0 whose connection ends."""
    request._version = HttpVersion10
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    response.force_close()
    await response.prepare(request)
    await response.write(data)
    await response.write_eof()
    return response


class Vendor:
    """What `service.answer` of a ScriptedService does for a vendor.

    Attributes:
        looks: Looks at a job until it is over.
        end: The word with which jobs end.
        fails: Text of an item -> how often it still fails; -1: for ever, and it says so.
        misses: Texts without an answer.
        drops: Text -> how often it is still missing from the results.
        mangle: Changes the lines of results.
        lose: After how many accepted jobs the connection drops in place of an answer.
    """

    def __init__(self, service=None, *, looks=1, end="completed"):
        self.jobs = {}
        self.looks, self.end = looks, end
        self.fails, self.misses, self.drops = Counter(), set(), Counter()
        self.mangle = lambda lines: lines
        self.label = "label of {}".format
        self.lose = set()
        self.refuse = None
        self.hidden_looks = 0  # how often a list does not show a job yet
        self.torn = False
        self.delays, self.delayed = 0, []  # how many next submits it takes later; these
        self.odd = None  # an answer before its own: a coroutine of the request and its path
        self.cut_after = []  # bytes after which next results end, without a length
        self.log = []
        if service is not None:
            service.answer = self.answer

    # -- what the test asks ------------------------------------------------------------------------
    @property
    def submits(self):
        """How often each text was accepted in a job."""
        return Counter(text for job in self.jobs.values() for _, text in job.items)

    @property
    def invoice(self):
        return PRICE * sum(job.billed for job in self.jobs.values())

    # -- HTTP --------------------------------------------------------------------------------------
    async def answer(self, request):
        parts = request.path.strip("/").split("/")
        self.log.append((request.method, request.path))
        if self.odd is not None and (answer := await self.odd(request, parts)) is not None:
            return answer
        if parts == ["jobs"]:
            is_new = request.method == "POST"
            return await self._submit(request) if is_new else self._list(request)
        job = self.jobs.get(parts[1])
        if job is None:
            return web.json_response({"error": "no such job"}, status=404)
        if parts[2:] == ["cancel"]:
            job.looks, job.end = 0, "cancelled"
            return web.json_response({})
        if parts[2:] == ["results"]:
            return await self._results(request, job)
        return self._state(job)

    async def _submit(self, request):
        if self.refuse is not None:
            return web.json_response({"error": "too many jobs"}, status=self.refuse)
        if request.content_type == "application/x-ndjson":
            lines = [json.loads(line) for line in (await request.text()).splitlines()]
            token = request.headers["X-Token"]
        else:
            sent = await request.json()
            token, lines = sent["token"], sent["items"]
        if self.delays:
            self.delays -= 1
            self.delayed.append((token, lines))
            request.transport.abort()
            return web.Response()
        name = self.take(token, lines)
        if len(self.jobs) in self.lose:
            self.lose.discard(len(self.jobs))
            request.transport.abort()
        return web.json_response({"id": name})

    recognizes_tokens = False

    def take(self, token, lines):
        """Accepts a job; returns its id."""
        known = [name for name, job in self.jobs.items() if job.token == token]
        if known and self.recognizes_tokens:
            return known[0]
        name = f"job-{len(self.jobs) + 1}"
        items = [(line["id"], line["text"]) for line in lines]
        self.jobs[name] = VendorJob(token, items, self.looks, self.end)
        return name

    def _list(self, request):
        if self.hidden_looks:
            self.hidden_looks -= 1
            return web.json_response({"data": [], "more": True})
        data = [{"id": name, "token": job.token} for name, job in self.jobs.items()]
        return web.json_response({"data": data, "more": False})

    def _state(self, job):
        if job.looks > 0:
            job.looks -= 1
            return web.json_response({"status": "running", "done": 0, "total": len(job.items)})
        if job.status == "running":
            job.status = job.end
            items = () if job.end in ("rejected", "full") else job.items
            job.results = [line for line in map(self._line, items) if line is not None]
            job.billed = sum("answer" in line for line in job.results)
        return web.json_response({"status": job.status, "done": len(job.results)})

    def _line(self, item):
        name, text = item
        if self.drops[text]:
            self.drops[text] -= 1
            return None
        if self.fails[text]:
            self.fails[text] -= self.fails[text] > 0
            return {"id": name, "error": f"cannot read {text}", "final": self.fails[text] < 0}
        if text in self.misses:
            return {"id": name, "answer": None}
        return {"id": name, "answer": {"label": self.label(text)}}

    async def _results(self, request, job):
        lines = list(job.results)
        random.Random(job.token).shuffle(lines)
        text = "".join(json.dumps(line) + "\n" for line in self.mangle(lines))
        if self.torn:
            text += '{"id": "torn'
        if self.cut_after:
            return await cut(request, text.encode()[: self.cut_after.pop(0)])
        return web.Response(text=text, content_type="application/x-ndjson")
