"""The vendor's HTTP server, at the other end of a connection in memory, and what can fail between
the client and it.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.simulation.http_service import MemoryTransport, _response
from tests.simulation.night_at_work import scheduler
from tests.simulation.vendor_jobs.vendor import VendorJob

UP, DOWN = 0.05, 0.1  # s at most
HANGS = 120.0  # s, longer than a request may take
PAGE = 3  # jobs in a page of the list, rows in a page of results
REFUSALS = {"429": 429, "409": 409, "500": 500, "403": 403}
Answer = tuple[int, Any]


class VendorConnection(MemoryTransport):
    """The client's end of a connection, and the vendor's server at the other end."""

    def _serve(self, line: str, headers: Mapping[str, str], body: bytes) -> None:
        night, world = scheduler(), scheduler().world
        vendor, faults, draws = world.vendor, world.faults, world.draws
        method, path, _ = line.split(" ")
        path, _, query = path.partition("?")
        night.say(method, path, query)
        vendor.requests += 1
        self._requests += 1
        dies = ""
        if faults.strikes("kill at a request"):
            dies = draws.choice(("before it leaves", "once it has left", "before its answer"))
        if dies == "before it leaves":
            world.kill(self._process)
            return
        work = lambda: self._answer_to(method, path, query, body)  # noqa: E731
        spends = (method, path) == ("POST", "/jobs") or path.endswith("/start")
        takes = world.night.takes_long * draws.random() if spends else 0.0
        up = UP * draws.random()
        night.after(up, lambda: self._arrives(work, takes))
        if dies == "once it has left":
            world.kill(self._process)
        elif dies:
            night.after(up + takes + 0.01, lambda: world.kill(self._process))

    def _arrives(self, work: Callable[[], Answer], takes: float) -> None:
        """Answer a request that has arrived, from a timer; takes: s of work."""
        night, strikes = scheduler(), scheduler().world.faults.strikes
        for kind, status in REFUSALS.items():
            if strikes(kind):
                self._reply(status, {"error": kind})
                return
        if strikes("connection dropped before"):
            self._end()
            return
        after = [
            kind for kind in ("connection dropped after", "500 after", "no answer") if strikes(kind)
        ]

        def done() -> None:
            status, content = work()
            if not after:
                self._reply(status, content)
            elif after[0] == "no answer":
                night.after(HANGS, lambda: self._reply(status, content))
            elif after[0] == "500 after":
                self._reply(500, {"error": "500 after"})
            else:
                self._end()

        night.after(takes, done)

    def _reply(self, status: int, content: Any) -> None:
        world = scheduler().world
        if isinstance(content, bytes) and world.faults.strikes("results without a length"):
            self._reply_without_length(content)
            return
        headers = "Retry-After: 1\r\n" if status == 429 else ""
        response = (
            _lines_response(content)
            if isinstance(content, bytes)
            else _response(status, content, headers)
        )
        if status == 200 and world.faults.strikes("answer cut short"):
            self._arrive(response[:-3])
            self._end()
            return
        scheduler().after(DOWN * world.draws.random(), lambda: self._arrive(response))

    def _reply_without_length(self, body: bytes) -> None:
        """The results, of which the connection may lose the end unnoticed."""
        draws = scheduler().world.draws
        whole = len(body) if draws.random() < 0.5 else draws.randint(0, len(body))
        if whole % 2:  # between two results
            whole = body.rfind(b"\n", 0, whole) + 1
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n"
        self._arrive(head + body[:whole])
        self._end()

    # -- routes ------------------------------------------------------------------------------------
    def _answer_to(self, method: str, path: str, query: str, body: bytes) -> Answer:
        world = scheduler().world
        vendor = world.vendor
        parts = path.strip("/").split("/")
        match method, parts:
            case "POST", ["files"]:
                lines = [json.loads(line) for line in body.splitlines()]
                return 200, {"file": vendor.upload(_items(lines))}
            case "POST", ["jobs"]:
                sent = json.loads(body)
                items = vendor.files[sent["file"]] if "file" in sent else _items(sent["items"])
                world.rules.submitting = self._process
                return 200, {"id": vendor.submit(sent["token"], items).name}
            case "GET", ["jobs"]:
                first = int(query.partition("=")[2] or 0)
                jobs, is_all = vendor.listed()
                page = [
                    {"id": job.name, "token": job.token, "state": vendor.word(job)}
                    for job in jobs[first : first + PAGE]
                ]
                more = first + PAGE < len(jobs)
                return 200, {"jobs": page, "more": more, "complete": is_all}
        if parts[0] != "jobs" or (job := vendor.jobs.get(parts[1])) is None:
            return 404, {"error": "no such job"}
        return self._about(job, method, parts[2:])

    def _about(self, job: VendorJob, method: str, parts: list[str]) -> Answer:
        world = scheduler().world
        vendor = world.vendor
        match method, parts:
            case "POST", ["start"]:
                if job.state != "created":
                    return 409, {"error": "it is started"}
                world.rules.submitting = self._process
                vendor.start(job)
                return 200, {}
            case "POST", ["cancel"]:
                return (200, {}) if vendor.cancel(job) else (409, {"error": "too late"})
            case "GET", []:
                found = {"state": vendor.word(job), "done": len(job.outcomes)}
                if vendor.dialect.gives == "inline" and job.is_over:
                    found["results"] = vendor.lines(job)
                return 200, found
        return self._results_of(job, parts)

    def _results_of(self, job: VendorJob, parts: list[str]) -> Answer:
        world = scheduler().world
        if not job.is_over or job.is_purged:
            return (410 if job.is_purged else 404), {"error": "no results"}
        world.rules.reads(self._process)
        lines = world.vendor.lines(job)
        if parts[0] == "pages":
            at = int(parts[1]) * PAGE
            # two of an item too, or a line stands in two pages and another in none
            lines = sorted(lines, key=lambda line: (str(line["id"]), json.dumps(line)))
            return 200, {"rows": lines[at : at + PAGE], "more": at + PAGE < len(lines)}
        if parts[1:]:  # a file of two
            is_wanted = parts[1] == "errors"
            lines = [line for line in lines if ("error" in line) == is_wanted]
        return 200, self._text(lines)

    def _text(self, lines: list[dict[str, Any]]) -> bytes:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        torn = scheduler().world.faults.strikes("last line torn")
        return (text + '{"id": "torn' * torn).encode()


def _items(lines: list[dict[str, str]]) -> dict[str, str]:
    return {line["id"]: line["text"] for line in lines}


def _lines_response(body: bytes) -> bytes:
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
