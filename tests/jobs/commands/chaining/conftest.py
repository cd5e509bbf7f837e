"""A project with chained lookups on the local engine, whose vendors are a real HTTP server."""

import importlib
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.process.spark_submit import SparkSubmit
from jobs.run.engines.engine import ENGINE, LOCAL
from jobs.tables.records import run_records
from tests.support.program_here import in_this_session
from tidegate.__main__ import main

DAY = "2026-01-05"
HEAD = """
from tidegate import Cache, Enrichment, Env, HttpLookup, Input, Ledger, Output, Retry, Service, Tolerance, Ttl

def vendor(name, **more):
    return HttpLookup(**dict(
        name=name,
        service=Service(name=name, url=Env("VENDOR_URL"), max_concurrency=4),
        request="GET /" + name + "/{key}",
        timeout=5.0,
        retry=Retry(retries=0),
    ) | more)

def table(*lookups, **more):
    return Enrichment(**dict(
        name="firms",
        input=Input(path="data/raw/firms", row_id=["number"]),
        lookups=list(lookups),
        output=Output(path="data/published/firms"),
        ledger=Ledger("data/ledger"),
        tolerance=Tolerance(error=1.0, timeout=1.0),
    ) | more)
"""


class Vendors:
    """What the vendors answer, and what they were asked.

    Attributes:
        answers: (vendor, key) -> the JSON of its answer, None for a miss, or the status of an error.
        calls: (vendor, key) of every request, in order.
    """

    def __init__(self, service):
        self.answers, self.calls = {}, []
        self.url = service.url
        service.answer = self._answer

    async def _answer(self, request):
        _, vendor, key = request.path.split("/", 2)
        self.calls.append((vendor, key))
        answer = self.answers.get((vendor, key))
        if isinstance(answer, int):
            return web.Response(status=answer, text="it broke")
        return web.Response(status=404) if answer is None else web.json_response(answer)

    def asked(self, vendor):
        return sorted(key for of, key in self.calls if of == vendor)


class Firms:
    """The enrichment `firms` in a package of its own."""

    def __init__(self, vendors):
        self.vendors = vendors

    def declare(self, text):
        Path("chained").mkdir(exist_ok=True)
        Path("chained/__init__.py").touch()
        Path("chained/firms.py").write_text(HEAD + text)
        for name in ("chained", "chained.firms"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()

    @property
    def enrichment(self):
        return importlib.import_module("chained.firms").firms

    def write_input(self, rows, day=DAY, types=None):
        folder = Path(f"data/raw/firms/date={day}")
        folder.mkdir(parents=True, exist_ok=True)
        columns = {"number": pa.array(range(len(next(iter(rows.values())))), pa.int64())}
        columns |= {name: pa.array(of, (types or {}).get(name)) for name, of in rows.items()}
        pq.write_table(pa.table(columns), folder / "part-0.parquet")

    def run(self, *options, command="run", day=DAY):
        return main([command, "firms", "--package", "chained", "--day", day, *options])

    def record(self, day=DAY):
        return run_records.load("firms", day)[-1]

    def red(self, day=DAY):
        """The checks that are red in the last run."""
        return {
            verdict.check: verdict.sentence
            for verdict in self.record(day).verdicts
            if verdict.status == "failed"
        }

    def rows(self, day=DAY):
        """The rows of the last run, in the input's order."""
        files = self.record(day).facts.files
        table = pa.concat_tables([pq.read_table(file, partitioning=None) for file in files])
        return table.sort_by("number").to_pylist()


@pytest.fixture
def firms(tmp_path, monkeypatch, service):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(ENGINE, LOCAL)
    monkeypatch.setenv("VENDOR_URL", service.url)
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    return Firms(Vendors(service))
