"""A real HTTP vendor of jobs, with its count of what it accepted, and its invoice."""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal

from aiohttp import web

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
        self.lose = set()
        self.refuse = None
        self.hidden_looks = 0  # how often a list does not show a job yet
        self.torn = False
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
        if request.method == "POST" and parts == ["jobs"]:
            return await self._submit(request)
        if parts == ["jobs"]:
            return self._list(request)
        job = self.jobs.get(parts[1])
        if job is None:
            return web.json_response({"error": "no such job"}, status=404)
        if parts[2:] == ["cancel"]:
            job.looks, job.end = 0, "cancelled"
            return web.json_response({})
        if parts[2:] == ["results"]:
            return self._results(job)
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
        known = [name for name, job in self.jobs.items() if job.token == token]
        if not known or not self.recognizes_tokens:
            name = f"job-{len(self.jobs) + 1}"
            items = [(line["id"], line["text"]) for line in lines]
            self.jobs[name] = VendorJob(token, items, self.looks, self.end)
        else:
            (name,) = known
        if len(self.jobs) in self.lose:
            self.lose.discard(len(self.jobs))
            request.transport.abort()
        return web.json_response({"id": name})

    recognizes_tokens = False

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
            job.results = [line for line in map(self._line, job.items) if line is not None]
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
        return {"id": name, "answer": {"label": f"label of {text}"}}

    def _results(self, job):
        lines = list(job.results)
        random.Random(job.token).shuffle(lines)
        text = "".join(json.dumps(line) + "\n" for line in self.mangle(lines))
        if self.torn:
            text += '{"id": "torn'
        return web.Response(text=text, content_type="application/x-ndjson")
