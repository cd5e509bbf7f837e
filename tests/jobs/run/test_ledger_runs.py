"""Whole runs of a day and their ledger, killed where it hurts; calls are counted in the log of a
real HTTP service.
"""

import asyncio
import dataclasses
import importlib.util
import math
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from demo.killing import kill_tree
from jobs.errors import AccessRefused, BudgetExhausted
from jobs.process.spark_submit import find_script
from jobs.run.day import run_day
from jobs.run.plan.options import RunOptions, plan_ledger
from jobs.schema import columns as schema
from jobs.tables.records import run_records
from tests.support.places import everywhere, place_of
from tidegate import Ttl

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "jobs/run/enrich_day.py"
DAY = "2024-05-01"
IN_FLIGHT = 16
FLUSH_S = 0.2
A_WRITE = 0.5  # s that writing a part may take on a busy machine
# rows, share of the calls, files: one goes through the driver, two through tasks of Spark's
KILLED_AT = [
    (700, 0.5, 2),
    (700, 0.5, 1),
    (2_000, 0.1, 1),
    (2_000, 0.1, 2),
    (2_000, 0.9, 2),
    (12_000, 0.5, 2),
]
DIES_AT = [(1_000, 0.9), (2_000, 0.1), (2_000, 0.5), (12_000, 0.9)]
DECLARATION = """
import os
from dataclasses import replace
from pathlib import Path
from tidegate import *

service = Service(name="geo", url="URL", max_concurrency=IN_FLIGHT)
answer = HttpLookup(
    name="answer", service=service, request="GET /answer/{k}", keys={"k": "k"}, returns="twice BIGINT", timeout=20.0,
)
order = HttpLookup(
    name="order", service=Service(name="shop", url="URL", max_concurrency=IN_FLIGHT), request="GET /order/{k}",
    keys={"k": "k"}, returns="number BIGINT", timeout=20.0, retry=Retry(retries=0), idempotent=False,
)
both = Enrichment(
    name="night", input=Input(path="data/raw", row_id=["id"]), output=Output(path="data/published/night"),
    lookups=[answer, order], mode="ordered", ledger=Ledger("PLACE/ledger", flush_seconds=FLUSH_S),
)


night = replace(both, lookups=[answer])


class DiesOnce:
    # ends the worker, as a killed container does, at one row, the first time it comes by
    async def async_invoke(self, value):
        flag = Path("died")
        if value["k"] == int(os.environ["DIES_AT"]) and not flag.exists():
            flag.touch()
            os._exit(9)
        return [{"passed": True}]


dying = AsyncFunctionLookup(
    name="dying", function=DiesOnce, keys={"k": "k"}, returns="passed BOOLEAN", timeout=20.0, max_concurrency=2,
)
dies = replace(both, lookups=[answer, dying])
dies_ordering = replace(both, lookups=[order, dying])
"""


@pytest.fixture
def night(tmp_path, monkeypatch, service, request):
    """A project whose lookups ask `service`, its ledger in a folder or a bucket; the module of its
    declarations.
    """
    monkeypatch.chdir(tmp_path)
    place = place_of(request, "data", in_spark=True)
    text = (
        DECLARATION.replace("URL", service.url)
        .replace("IN_FLIGHT", str(IN_FLIGHT))
        .replace("PLACE", place)
    )
    Path("nights.py").write_text(text.replace("FLUSH_S", str(FLUSH_S)))
    spec = importlib.util.spec_from_file_location("nights", "nights.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    service.answer = Answers(0.0)
    return module


def given(rows, files=2, keys=None):
    """A day of input in as many files; `keys` distinct keys, by default one per row."""
    folder = Path(f"data/raw/date={DAY}")
    folder.mkdir(parents=True)
    each = rows // files
    for number in range(files):
        ids = range(number * each, (number + 1) * each)
        table = {
            "id": pa.array(ids, pa.int64()),
            "k": pa.array([i % (keys or rows) for i in ids], pa.int64()),
        }
        pq.write_table(pa.table(table), folder / f"part-{number}.parquet")


class Answers:
    """What the service says, after so many seconds; knows when it said it."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.given = []  # (s since the epoch, lookup, key)

    async def __call__(self, request):
        await asyncio.sleep(self.seconds)
        _, lookup, key = request.path.split("/")
        number = int(key)
        self.given.append((time.time(), lookup, number))
        if number % 10 == 9:
            return web.Response(status=404)
        return web.json_response({"twice": 2 * number, "number": 1000 + number, "half": number / 2})

    def lost_by_a_kill(self, killed, lookup, keys=None, *, until=math.inf):
        """How many calls a kill may cost: those in flight, and those answered since the last stored
        part was begun, which is one flush interval and the time of a write ago; of two writes,
        where these take longer.
        """
        began = killed - max(FLUSH_S, A_WRITE) - A_WRITE
        given = [
            key for moment, asked, key in self.given if began < moment <= until and asked == lookup
        ]
        return IN_FLIGHT + sum(keys is None or key in keys for key in given)


def calls_of(service, lookup):
    return Counter(path for path in service.log if path.startswith(f"/{lookup}/"))


def rows_of(record):
    """Every row as written, by id."""
    rows = [row for file in record.facts.files for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


def number_answers(record):
    """What consumers see of the lookup `answer`, but for when its answers came."""
    return [
        {name: row[name] for name in ("id", "k", "twice", "answer_status")}
        for row in rows_of(record)
    ]


def published_of(record):
    """What consumers see of the lookup `answer`, and where each row's answer lies in the order."""
    of_the_order = {
        schema.PARTITION,
        schema.INPUT_SEQ,
        schema.OUTPUT_SEQ,
        schema.SEGMENT,
        schema.LATE,
    }
    names = set(number_answers(record)[0]) | of_the_order
    return [{name: row[name] for name in names} for row in rows_of(record)]


def expected(rows, *, keys=None):
    """What an undisturbed run gives for the lookup `answer`."""
    numbers = ((i, i % (keys or rows)) for i in range(rows))
    return [
        {
            "id": i,
            "k": k,
            "twice": None if k % 10 == 9 else 2 * k,
            "answer_status": "miss" if k % 10 == 9 else "ok",
        }
        for i, k in numbers
    ]


def killed_in_the_middle(enrichment, service, lookup, calls):
    """The program as a process of its own; it and all below it are killed with -9 after so many
    calls of a lookup.

    Gives the moment, s since the epoch.
    """
    program = subprocess.Popen(
        [sys.executable, str(PROGRAM), "--enrichment", f"nights:{enrichment}", "--day", DAY],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{Path.cwd()}", "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while calls_of(service, lookup).total() < calls:
        assert program.poll() is None, program.stderr.read()
        time.sleep(0.005)
    killed = time.time()
    kill_tree(program.pid)
    program.communicate()
    return killed


def figures_of(record, name="answer"):
    return next(lookup for lookup in record.figures.lookups if lookup.name == name)


@pytest.mark.proof
@everywhere("night")
@pytest.mark.parametrize(("rows", "share", "files"), KILLED_AT)
def test_a_run_killed_with_9_in_the_middle_repeats_few_calls_and_a_finished_day_none(
    night, service, rows, share, files
):
    given(rows, files)
    service.answer = answers = Answers(0.1)
    killed = killed_in_the_middle("both", service, "answer", rows * share)
    lost, unsettled = (answers.lost_by_a_kill(killed, lookup) for lookup in ("answer", "order"))
    needs_retry = run_day(night.both, DAY, "again")
    calls = calls_of(service, "answer")
    assert len(calls) == rows
    assert calls.total() - rows <= lost
    assert number_answers(needs_retry) == expected(rows)
    found = figures_of(needs_retry)
    assert found.from_ledger + found.rows_called == rows
    assert found.from_ledger >= rows * share - lost
    assert found.stored == found.answered == found.rows_called

    orders = calls_of(service, "order")  # which must not be made twice
    assert set(orders.values()) == {1}
    unknown = [row for row in rows_of(needs_retry) if row["order_status"] == "unknown"]
    assert len(unknown) == figures_of(needs_retry, "order").outcomes["unknown"] <= unsettled
    # a mark may be stored, and the kill come before its call
    assert len(orders) >= rows - len(unknown)
    assert all(
        row[schema.source("order")] is None and "asked at" in row[schema.error("order")]
        for row in unknown
    )
    assert sum(figures_of(needs_retry, "order").outcomes.values()) == rows
    print(
        f"{calls.total() - rows} calls repeated of {lost}, {len(unknown)} rows unknown of "
        f"{unsettled}"
    )

    made = len(service.log)
    third = run_day(night.both, DAY, "third")
    assert len(service.log) == made
    assert number_answers(third) == expected(rows)
    assert (figures_of(third).from_ledger, figures_of(third).calls, figures_of(third).stored) == (
        rows,
        0,
        0,
    )


@everywhere("night")
@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.proof
def test_a_day_killed_three_times_equals_an_undisturbed_day_row_for_row(night, service, files):
    rows = 2_000
    given(rows, files)
    service.answer = answers = Answers(0.05)
    lost = 0
    for share in (0.2, 0.5, 0.8):
        killed = killed_in_the_middle("night", service, "answer", rows * share)
        lost += answers.lost_by_a_kill(killed, "answer")
    disturbed = published_of(run_day(night.night, DAY, "fourth"))
    repeated = len(service.log) - rows
    assert len(set(service.log)) == rows
    assert repeated <= lost
    print(f"{repeated} calls repeated of {lost}")
    elsewhere = dataclasses.replace(
        night.night, ledger=dataclasses.replace(night.night.ledger, path="data/other")
    )
    assert disturbed == published_of(run_day(elsewhere, DAY, "undisturbed"))
    assert len(service.log) == 2 * rows + repeated


def died_once(enrichment, dies_at):
    """Runs the day; a Python worker ends at one row, and Spark tries its task again. The moment of
    the end.
    """
    submit = find_script()
    paths = {
        "PYTHONPATH": f"{ROOT}:{Path.cwd()}",
        "PYSPARK_PYTHON": sys.executable,
        "DIES_AT": str(dies_at),
    }
    ended = subprocess.run(
        [str(submit), "--master", "local[2,4]", "--conf", "spark.ui.enabled=false", str(PROGRAM),
         "--enrichment", f"nights:{enrichment}", "--day", DAY, "--run-id", "dies"],
        env=os.environ | paths, capture_output=True, text=True, timeout=550, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return Path("died").stat().st_mtime


@everywhere("night")
@pytest.mark.proof  # `make test` kills a worker in test_tasks_tried_again.py
@pytest.mark.parametrize(("rows", "share"), DIES_AT)
def test_a_task_whose_worker_dies_repeats_few_calls_when_spark_runs_it_again(
    night, service, rows, share
):
    given(rows)
    service.answer = answers = Answers(0.1)
    its_keys = range(rows // 2)
    dies_at = round(len(its_keys) * share)
    died = died_once("dies", dies_at)
    # the other task may have left it its half
    lost = answers.lost_by_a_kill(died, "answer", its_keys, until=died)
    calls = calls_of(service, "answer")
    assert len(calls) == rows
    assert calls.total() - rows <= lost
    print(f"{calls.total() - rows} calls repeated of {lost}")
    (record,) = run_records.load("night", DAY)
    assert figures_of(record).from_ledger >= dies_at - lost
    assert number_answers(record) == expected(rows)
    left = {str(path) for path in Path(record.facts.rows_folder).glob("*.parquet")}
    assert left == set(record.facts.files)  # the attempt that died had begun a file too


@everywhere("night")
@pytest.mark.proof
def test_a_task_whose_worker_dies_repeats_no_call_that_must_not_be_repeated(night, service):
    given(1_000)
    service.answer = answers = Answers(0.1)
    died = died_once("dies_ordering", 450)
    lost = answers.lost_by_a_kill(died, "order", range(500), until=died)
    orders = calls_of(service, "order")
    assert set(orders.values()) == {1}
    (record,) = run_records.load("night", DAY)
    unknown = [row for row in rows_of(record) if row["order_status"] == "unknown"]
    assert 0 < len(unknown) == figures_of(record, "order").outcomes["unknown"] <= lost
    assert all("run dies asked at" in row[schema.error("order")] for row in unknown)
    assert len(orders) >= 1_000 - len(unknown)
    print(f"{len(unknown)} rows unknown of {lost}")


@everywhere("night", on_store=pytest.mark.proof)
def test_a_new_version_or_expired_answer_is_called_again_and_new_columns_are_not(
    night, service, spark
):
    given(40)
    run_day(night.night, DAY, "first")
    assert calls_of(service, "answer").total() == 40

    def changed(number, **fields):
        lookup = dataclasses.replace(night.answer, **fields)
        record = run_day(
            dataclasses.replace(night.night, lookups=[lookup]), DAY, f"changed-{number}"
        )
        return record, len(service.log)

    record, calls = changed(
        1, returns="twice BIGINT, h DOUBLE", paths={"h": "$.half"}, timeout=9.0,
        service=dataclasses.replace(night.service, max_concurrency=3),
    )  # fmt: skip
    assert calls == 40
    assert rows_of(record)[3]["h"] == 1.5
    assert changed(2, version=2)[1] == 80
    old = Ttl(ok=timedelta(0))
    assert changed(3, ttl=old)[1] == 80 + 36  # misses hold a day, as declared
    held = dataclasses.replace(night.night, lookups=[dataclasses.replace(night.answer, ttl=old)])
    run_day(held, DAY, "old", rules=RunOptions(ignore_ttl=True))
    assert len(service.log) == 116


@everywhere("night", on_store=pytest.mark.proof)
def test_a_night_with_an_expired_credential_leaves_nothing_in_the_ledger(night, service, spark):
    async def refuse(request):
        return web.Response(status=401)

    given(40)
    service.answer = refuse
    with pytest.raises(AccessRefused, match=r"geo at \S*127\.0\.0\.1:[0-9]+ denies access: 401"):
        run_day(night.night, DAY, "expired")
    ledger = plan_ledger(night.night, night.answer, "expired", RunOptions())
    assert ledger.open_folder().parts() == []


@everywhere("night", on_store=pytest.mark.proof)
def test_a_cap_stops_the_day_and_keeps_its_answers(night, service, spark):
    given(100)
    with pytest.raises(BudgetExhausted, match="max_calls 30 is used up"):
        run_day(night.night, DAY, "capped", rules=RunOptions(max_calls=30))
    assert 15 <= len(service.log) <= 30  # one task has used up its part; Spark ends the other one
    made = len(service.log)
    record = run_day(night.night, DAY, "remapped", rules=RunOptions(may_call=False))
    outcomes = figures_of(record).outcomes
    assert outcomes["not_asked"] == 100 - outcomes["ok"] - outcomes["miss"] > 0
    assert len(service.log) == made
    record = run_day(night.night, DAY, "whole")
    assert number_answers(record) == expected(100)
    assert len(service.log) <= 100 + IN_FLIGHT


@pytest.mark.proof
def test_a_declared_error_is_called_again_and_a_remap_needs_no_call(night, service, spark):
    """Answers that were stored as ok become errors where they are declared so; the raw answers
    stay.
    """
    given(40)

    async def refuses_some(request):
        number = int(request.path.split("/")[2])
        return web.json_response({"error": "busy"} if number % 4 == 3 else {"twice": 2 * number})

    service.answer = refuses_some
    lenient = run_day(night.night, DAY, "lenient")
    assert figures_of(lenient).outcomes["ok"] == 40
    strict = dataclasses.replace(
        night.night,
        lookups=[dataclasses.replace(night.answer, error_when=["$.error"], required=["twice"])],
    )
    service.log.clear()
    remapped = run_day(strict, DAY, "remapped", rules=RunOptions(may_call=False, ignore_ttl=True))
    assert figures_of(remapped).outcomes == figures_of(lenient).outcomes | {"ok": 30, "error": 10}
    assert service.log == []
    errors = {row[schema.error("answer")] for row in rows_of(remapped)} - {None}
    assert errors == {
        'the stored answer does not fit: it is an error by error_when: {"error": "busy"}'
    }
    run_day(strict, DAY, "again")
    assert sorted(service.log) == sorted(
        f"/answer/{number}" for number in range(40) if number % 4 == 3
    )
    service.log.clear()
    mended = run_day(night.night, DAY, "mended", rules=RunOptions(may_call=False, ignore_ttl=True))
    assert figures_of(mended).outcomes["ok"] == 40
    assert service.log == []


@pytest.mark.proof
def test_no_file_of_a_run_is_wider_than_the_umask(night, service):
    given(40)
    subprocess.run(
        [sys.executable, "-m", "tidegate", "run", "nights:night", "--day", DAY],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{Path.cwd()}", "PYSPARK_PYTHON": sys.executable},
        check=True, capture_output=True, umask=0o077,
    )  # fmt: skip
    made = [path for path in Path("data").rglob("*") if "raw" not in path.parts]
    assert [str(path) for path in made if path.stat().st_mode & 0o077] == []
    assert {"ledger", "published", "runs"} <= {path.parts[1] for path in made}
