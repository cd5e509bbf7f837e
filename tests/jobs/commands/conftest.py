"""A project folder of its own with an enrichment `towns`, whose days a test writes, runs or
publishes.
"""

import dataclasses
import datetime as dt
import importlib
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.declare.answers.answer_json import dump
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.declared_folder import request_fingerprint
from jobs.ledger.keys import key_text
from jobs.ledger.store import LedgerFolder
from jobs.limits.store_url import LIMITS_URL, STATE_HOME
from jobs.process.spark_submit import SparkSubmit
from jobs.run.coordinator import run_leases
from jobs.run.engines.engine import ENGINE, LOCAL
from jobs.schema import columns as schema
from jobs.schema.records import DayFacts, DayMetrics, DayRecord, LookupMetrics, Verdict
from jobs.storage.urls import is_url
from jobs.storage.work_folders import work_folder
from jobs.tables import publishing
from tests.support.places import place_of
from tests.support.program_here import in_this_session
from tidegate.__main__ import main

DECLARATION = """
from tidegate import Enrichment, Env, HttpLookup, Input, Ledger, Output, Retry, Service, Summary, Tolerance

weather = HttpLookup(
    name="weather",
    service=Service(name="weather_api", url=Env("WEATHER_URL"), max_concurrency=4),
    request="GET /v1/{{town}}",
    keys={{"town": "trim(town)"}},
    returns="{returns}",
    timeout=5.0,
    retry=Retry(retries=0),
    on_miss="{on_miss}",
)
towns = Enrichment(
    name="towns",
    input=Input(path="data/raw/towns", row_id=["number"]),
    lookups=[weather],
    output=Output(path="{place}/towns"),
    ledger=Ledger("{ledger}"),
    tolerance=Tolerance(error=0.2),
    pii={pii},
    summaries=[Summary(name="by_town", sql="SELECT town, count(*) AS number FROM towns GROUP BY town")],
)
"""
ATTEMPT = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("throttled", pa.bool_())])


class Towns:
    """The enrichment `towns` in the package `declared`. place: of its tables."""

    def __init__(self, place="data/published"):
        self.place = place
        self.ledger = f"{place}/ledger" if is_url(place) else "data/ledger"

    def declare(self, returns="temp_c DOUBLE", pii=(), on_miss="null"):
        Path("declared").mkdir(exist_ok=True)
        Path("declared/__init__.py").touch()
        text = DECLARATION.format(
            returns=returns, pii=list(pii), on_miss=on_miss, place=self.place, ledger=self.ledger
        )
        Path("declared/towns.py").write_text(text)
        self._read_anew()

    def declare_too(self, *lines):
        """More of the declaration, in which `replace` and `Ledger` are known."""
        with Path("declared/towns.py").open("a") as declaration:
            declaration.write(
                "\n".join(
                    ["from dataclasses import replace", "from tidegate import Ledger", *lines, ""]
                )
            )
        self._read_anew()

    def _read_anew(self):
        for name in ("declared", "declared.towns"):
            sys.modules.pop(name, None)  # the next command reads it anew, as a new process would
        importlib.invalidate_caches()

    @property
    def enrichment(self):
        return importlib.import_module("declared.towns").towns

    @property
    def folder(self):
        (lookup,) = self.enrichment.lookups
        return LedgerFolder(self.ledger, "weather", request_fingerprint(lookup))

    def write_input(self, day, numbers):
        folder = Path(f"data/raw/towns/date={day}")
        folder.mkdir(parents=True)
        rows = {
            "number": pa.array(numbers, pa.int32()),
            "town": [f" town-{number} " for number in numbers],
        }
        pq.write_table(pa.table(rows), folder / "part-0.parquet")

    def store(self, answers, *, at="2013-01-10T03:00:00+00:00", hidden=False, run_id="r"):
        """Answers in the ledger: number of a town -> its response, None for a miss."""
        when = round(dt.datetime.fromisoformat(at).timestamp() * 1e6)
        stored = [
            StoredAnswer(
                key(number, hidden=hidden),
                "ok" if message else "miss",
                message and dump(message),
                when,
                run_id,
            )
            for number, message in answers.items()
        ]
        self.folder.write_part(run_id, f"0-0-{when}-{len(self.folder.parts())}", stored)

    def publish(self, day, numbers, *, run_id=None, statuses=None, verdicts=(), **facts):
        """A day as a run of the Spark program writes it, then published."""
        record = self.written(day, numbers, run_id or f"run-{day}", statuses or {}, verdicts)
        return publishing.publish(
            dataclasses.replace(record, facts=dataclasses.replace(record.facts, **facts))
        )

    def written(self, day, numbers, run_id, statuses, verdicts=()):
        numbers = list(numbers)
        folder = Path(work_folder(f"{self.place}/towns"), "runs", run_id).resolve()
        folder.mkdir(parents=True)
        found = [statuses.get(number, "ok") for number in numbers]
        pq.write_table(as_written(numbers, found), folder / "part-0.parquet")
        at = day if day[0].isdigit() else "2013-01-10"  # a table without days has the day `all`
        facts = DayFacts(
            declared=self.enrichment.facts(), day=day, run_id=run_id, input_files=(),
            input_columns=("number", "town"), folder=str(folder),
            files=(str(folder / "part-0.parquet"),), shares=((4,),),
            started_at=f"{at}T02:15:00+00:00", finished_at=f"{at}T02:16:00+00:00",
        )  # fmt: skip
        outcomes = {outcome: found.count(outcome) for outcome in schema.OUTCOMES}
        lookup = LookupMetrics("weather", outcomes, len(numbers), 0, 1.0, 1.0, None, None)
        return DayRecord(
            facts, DayMetrics(len(numbers), len(numbers), 0, (lookup,)), tuple(verdicts)
        )


def key(number, *, hidden=False):
    return key_text((f"town-{number}",), hidden=hidden)


def as_written(numbers, statuses):
    count = len(numbers)
    attempts = [[{"start": 1, "end": 2, "throttled": False}]] * count
    return pa.table(
        {
            "number": pa.array(numbers, pa.int32()),
            "town": pa.array([f" town-{number} " for number in numbers], pa.string()),
            "temp_c": pa.array([float(number) for number in numbers], pa.float64()),
            "weather_status": pa.array(statuses, pa.string()),
            "weather_answered_at": pa.array([None] * count, pa.timestamp("us", "UTC")),
            schema.PARTITION: pa.array([0] * count, pa.int32()),
            schema.INPUT_SEQ: pa.array(range(count), pa.int64()),
            schema.OUTPUT_SEQ: pa.array(range(count), pa.int64()),
            schema.SEGMENT: pa.array([0] * count, pa.int64()),
            schema.LATE: pa.array([False] * count, pa.bool_()),
            schema.SOURCE_FILE: pa.array(["file:///x"] * count, pa.string()),
            schema.SOURCE_ROW: pa.array(range(count), pa.int64()),
            schema.status("weather"): pa.array(statuses, pa.string()),
            schema.source("weather"): pa.array(["call"] * count, pa.string()),
            schema.attempts("weather"): pa.array(attempts, pa.list_(ATTEMPT)),
            schema.latency_ms("weather"): pa.array([1.5] * count, pa.float64()),
            schema.paused_ms("weather"): pa.array([0.0] * count, pa.float64()),
            schema.error("weather"): pa.array(
                [None if status == "ok" else "it broke" for status in statuses], pa.string()
            ),
            schema.key("weather"): pa.array([{"town": f"town-{number}"} for number in numbers]),
        }
    )


def verdict(sentence, *evidence):
    return Verdict("every_row_once", "passed", "error", sentence, evidence=evidence)


def towns_in(folder, monkeypatch, place="data/published"):
    """A project with towns declared, in this folder, which is the current one from now on. place:
    of its tables.
    """
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("WEATHER_URL", "http://127.0.0.1:1")
    project = Towns(place)
    project.declare()
    return project


@pytest.fixture
def towns(tmp_path, monkeypatch, request):
    """In a folder, or where a test of `everywhere` has it."""
    return towns_in(tmp_path, monkeypatch, place_of(request, "data/published"))


class LocalDays:
    """Real days of `towns` by the local engine, which ask a real service.

    Attributes:
        towns: The project.
        calls: (day, town, what the service answered) of every call.
    """

    def __init__(self, towns, service):
        self.towns, self.calls = towns, []
        self.fails, self.day = {}, None
        service.answer = self._answer

    async def _answer(self, request):
        town = request.path.rpartition("/")[2]
        if town in self.fails:
            self.calls.append((self.day, town, None))
            status = self.fails[town]
            text = f"request {uuid.uuid4()} of {town} broke after {len(self.calls)} ms"
            return web.Response(text=text, status=status)
        answer = {"temp_c": float(len(self.calls)), "town": town}
        self.calls.append((self.day, town, answer))
        return web.json_response(answer)

    def write_input(self, day, towns, **more):
        folder = Path(f"data/raw/towns/date={day}")
        folder.mkdir(parents=True)
        rows = {"number": pa.array(range(len(towns)), pa.int32()), "town": pa.array(towns), **more}
        pq.write_table(pa.table(rows), folder / "part-0.parquet")

    def run(self, *days, command="run", options=()):
        """The command's exit status, or the highest of those of days."""
        statuses = []
        for self.day in days:
            arguments = [command, "towns", "--package", "declared", "--day", self.day]
            statuses.append(main([*arguments, *options]))
        return max(statuses)


@pytest.fixture
def local_days(towns, service, monkeypatch):
    monkeypatch.setenv("WEATHER_URL", service.url)
    monkeypatch.setenv(ENGINE, LOCAL)
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    return LocalDays(towns, service)


class DeclaredProject:
    """The current folder, with declarations in the package `declared`, and days of the input raw."""

    def declare(self, text):
        """Make this text the only declaration, for the next command."""
        Path("declared").mkdir(exist_ok=True)
        Path("declared/__init__.py").touch()
        Path("declared/it.py").write_text(text)
        for name in ("declared", "declared.it"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()

    def declared(self, name):
        return getattr(importlib.import_module("declared.it"), name)

    def write(self, day, columns, to="raw"):
        folder = Path(f"{to}/date={day}")
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / "a.parquet")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose days run by the local engine, with the limits of this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(LIMITS_URL)
    monkeypatch.setenv(STATE_HOME, str(tmp_path / "state"))
    monkeypatch.setenv(ENGINE, LOCAL)
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    monkeypatch.setattr(run_leases, "_leases", None)
    yield DeclaredProject()
    if run_leases._leases is not None:
        run_leases._leases.close()
