"""A stream by its command: files are enriched as they come, each row once, whatever happens in
between.
"""

import asyncio
import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from deltalake import DeltaTable, write_deltalake

from data_quality import day
from data_quality.day_quality import CHECKS, DayQuality
from demo.killing import kill_tree
from jobs.commands.costs import list_costs
from jobs.commands.replaying.replay import prepare
from jobs.declare.finding.loading import load
from jobs.errors import DeclarationError
from jobs.run.day import run_day
from jobs.run.enrich_day import FAILED, WRONG
from jobs.run.plan.options import RunOptions
from jobs.streams import stream_state
from jobs.streams.enrich_stream import Stream, Trigger, main
from jobs.tables.leases.day_leases import leased
from jobs.tables.publishing import publish
from jobs.tables.records import run_records
from jobs.tables.records.published_runs import last_published
from tidegate import Input
from tidegate.__main__ import main as command_line

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]
TABLE = "data/published/towns"
PROGRAM = [
    "--enrichment",
    "declared.towns:towns",
    "--quality",
    "data_quality.day_quality:DayQuality",
]
DAY, NEXT = "2013-01-10", "2013-01-11"
DECLARATION = """
from datetime import timedelta
from tidegate import *

weather = HttpLookup(
    name="weather", service=Service(name="weather_api", url="URL", max_concurrency=4), request="GET /v1/{town}",
    keys={"town": "town"}, returns="temp_c DOUBLE", timeout=5.0, retry=Retry(retries=0),
)
towns = Enrichment(
    name="towns", input=Input(path="data/raw/towns"), lookups=[weather], output=Output(path="data/published/towns"),
    event_time=EventTime("at", max_out_of_orderness=timedelta(seconds=5)),
    windows=[Window("by_minute", of=Tumbling(timedelta(minutes=1)), sql="count(*) AS n")],
)
"""


class Project:
    """A project with a stream of towns; the calls are counted by their service."""

    def __init__(self, service):
        self._service = service
        Path("declared").mkdir()
        Path("declared/__init__.py").touch()
        Path("declared/towns.py").write_text(DECLARATION.replace("URL", service.url))

    def declare(self, name):
        """A stream like that of towns, with all of its own."""
        own_ledger = DECLARATION.replace(
            "event_time=", 'ledger=Ledger("data/ledgers/towns"), event_time='
        )
        Path(f"declared/{name}.py").write_text(
            own_ledger.replace("towns", name).replace("URL", self._service.url)
        )

    def put(self, name, numbers, date=DAY, partition="date", enrichment="towns"):
        """A file of input, there at once."""
        folder = Path(f"data/raw/{enrichment}/{partition}={date}")
        folder.mkdir(parents=True, exist_ok=True)
        times = pa.array([1_000_000 * number for number in numbers], pa.timestamp("us", "UTC"))
        rows = {
            "number": pa.array(numbers, pa.int64()),
            "town": [f"town-{number}" for number in numbers],
            "at": times,
        }
        pq.write_table(pa.table(rows), folder / f".{name}")
        (folder / f".{name}").rename(folder / f"{name}.parquet")

    def run(self, *options, status=0):
        """One pass in this process, by the Spark of the tests. Its state at the end."""
        assert main([*PROGRAM, "--available-now", *options]) == status
        return stream_state.read("towns")

    def calls(self):
        return Counter(self._service.log)

    @staticmethod
    def rows(date=None):
        """The numbers that readers see, sorted."""
        rows = DeltaTable(TABLE).to_pyarrow_table().to_pylist()
        return sorted(row["number"] for row in rows if date in (None, str(row["date"])))


@pytest.fixture
def project(tmp_path, monkeypatch, service):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "declared"]:
        monkeypatch.delitem(sys.modules, name)
    return Project(service)


def test_each_batch_of_a_stream_is_checked_as_a_day_and_published_in_one_commit(project, spark):
    project.put("a", range(5))
    project.put("b", range(5, 8), date=NEXT)
    state = project.run()
    assert (state.state, state.batches, state.rows, state.last_batch) == ("published", 1, 8, 0)
    first = run_records.load("towns")
    assert [(record.facts.day, record.state, record.figures.rows_out) for record in first] == [
        (DAY, "published", 5), (NEXT, "published", 3),
    ]  # fmt: skip
    assert {record.published_version for record in first} == {DeltaTable(TABLE).version()}

    project.put("c", [3, 8])
    state = project.run()
    assert (state.batches, state.rows, state.last_batch) == (1, 2, 1)
    assert project.rows() == sorted([*range(9), 3])
    assert set(project.calls().values()) == {1}
    assert DeltaTable(TABLE).transaction_version(state.query) == 1
    facts, figures = first[0].facts, first[0].figures
    of_whole_days = (
        "input_day_complete", "by_minute__windows_hold", "weather__columns_filled",
    )  # fmt: skip
    of_day = [
        verdict
        for verdict in day.check(spark, facts, figures).verdicts
        if verdict.check not in of_whole_days
    ]
    assert [*day.check(spark, facts, figures, whole_day=False, validate=False).verdicts] == of_day
    assert not any(verdict.holds_back for verdict in first[0].verdicts)
    assert project.run().state == "unchanged"


@pytest.mark.proof
def test_the_record_of_a_day_has_the_figures_of_all_its_batches(project, spark):
    for number in range(3):
        project.put(f"f{number}", [number, 10])
        project.run()
    (record,) = run_records.load("towns")
    (weather,) = record.figures.lookups
    assert (record.figures.rows_in, record.figures.rows_out) == (6, 6)
    assert (weather.outcomes["ok"], weather.calls, weather.from_ledger, weather.requests.sent) == (
        6,
        4,
        2,
        4,
    )
    assert weather.latency_p50_ms is not None


@pytest.mark.proof
def test_a_batch_is_billed_once_though_a_kill_left_the_record_of_the_batch_before(project, spark):
    declared = Path("declared/towns.py")
    priced = 'max_concurrency=4, prices=[Price("0.50 USD")]'
    declared.write_text(declared.read_text().replace("max_concurrency=4", priced))
    project.put("a", range(3))
    project.run()
    (before,) = Path(f"data/runs/towns/{DAY}").glob("*.json")
    left = before.read_text()
    project.put("b", range(3, 7))
    project.run()
    # as of a kill between the record with both figures and the removal of this one
    before.write_text(left)
    (record,) = run_records.load("towns")
    assert record.figures.rows_out == 7
    month = f"{dt.datetime.now(dt.UTC):%Y-%m}"
    assert list_costs(month).totals() == {"USD": Decimal("3.50")}
    publish_day(DAY)
    project.put("c", [7, 8])
    project.run()
    assert last_published("towns", DAY).figures.rows_out == 9
    assert list_costs(month).totals() == {"USD": Decimal("4.50")}


@pytest.mark.proof
def test_forget_and_replay_reach_the_rows_of_all_batches_of_a_day(
    project, spark, service, monkeypatch
):
    declared = Path("declared/towns.py")
    lenient = 'towns = Enrichment(tolerance=Tolerance(error=1.0), ledger=Ledger("data/ledger"), '
    declared.write_text(
        declared.read_text()
        .replace("towns = Enrichment(", lenient)
        .replace("timeout=5.0", 'timeout=5.0, on_miss="dead_letter"')
    )
    missing = {"town-2", "town-3"}

    async def answer(request):
        if request.path.rpartition("/")[2] in missing:
            return web.Response(status=404)
        return await service.weather(request)

    service.answer = answer
    for name, numbers in (("a", [1, 2]), ("b", [2, 3]), ("c", [4])):
        project.put(name, numbers)
        project.run()
    letters = DeltaTable(f"{TABLE}__dead_letters").to_pyarrow_table()["_key"].to_pylist()
    assert sorted(letters) == ['["town-2"]', '["town-2"]', '["town-3"]']

    assert command_line(["forget", "weather", "--key", "town=town-2", "--package", "declared"]) == 0
    assert project.rows() == [1, 3, 4]
    assert DeltaTable(f"{TABLE}__dead_letters").to_pyarrow_table()["_key"].to_pylist() == [
        '["town-3"]'
    ]
    assert last_published("towns", DAY).figures.rows_out == 3
    project.put("d", [5])
    project.run()
    assert (project.rows(), last_published("towns", DAY).figures.rows_out) == ([1, 3, 4, 5], 4)

    asked = len(service.log)
    missing.clear()
    Path(f"data/raw/towns/date={DAY}/a.parquet").unlink()  # forget leaves the input to its owner
    project.put("b", [3])
    towns = load("declared.towns:towns")
    assert prepare(towns, DAY) == 1
    publish_day(DAY, rules=RunOptions(ignore_ttl=True))
    assert service.log[asked:] == ["/v1/town-3"]
    rows = DeltaTable(TABLE).to_pyarrow_table().to_pylist()
    assert {row["number"]: row["temp_c"] for row in rows} == dict.fromkeys([3, 4, 5], 3.9)


@pytest.mark.proof
def test_a_row_behind_the_watermark_of_the_batches_before_is_counted_as_late(project, spark):
    project.put("a", [1, 20])
    assert project.run().rows_late == 0
    project.put("b", [3, 15, 16])
    assert project.run().rows_late == 1
    project.put("c", [30, 24, 25, 8])
    assert project.run().rows_late == 2
    assert project.rows() == [1, 3, 8, 15, 16, 20, 24, 25, 30]


def test_days_of_a_first_batch_get_the_widest_type_of_a_column_or_are_refused_before_a_call(
    project, spark
):
    project.put("narrow", [1])
    place = Path(f"data/raw/towns/date={DAY}/narrow.parquet")
    rows = pq.read_table(place)
    pq.write_table(rows.set_column(0, "number", rows["number"].cast(pa.int32())), place)
    project.put("wide", [2], date=NEXT)
    project.put("text", [3], date="2013-01-12")
    text = Path("data/raw/towns/date=2013-01-12/text.parquet")
    rows = pq.read_table(text)
    pq.write_table(rows.set_column(0, "number", rows["number"].cast(pa.string())), text)
    assert "text.parquet" in project.run(status=WRONG).reason
    assert not project.calls()
    pq.write_table(rows, text)
    project.run()
    assert project.rows() == [1, 2, 3]
    assert DeltaTable(TABLE).to_pyarrow_table().schema.field("number").type == pa.int64()


def test_days_of_a_first_batch_that_spell_a_column_differently_are_refused_before_a_call(
    project, spark
):
    project.put("one", [1])
    project.put("other", [2], date=NEXT)
    for date, file, name in ((DAY, "one", "Price"), (NEXT, "other", "price")):
        place = Path(f"data/raw/towns/date={date}/{file}.parquet")
        pq.write_table(pq.read_table(place).append_column(name, pa.array([5])), place)
    reason = project.run(status=WRONG).reason
    assert f"'price' of {NEXT} is 'Price' in the files of {DAY}" in reason
    assert not project.calls()


def test_a_stream_of_hours_adds_to_its_hours(project, spark):
    towns = load("declared.towns:towns")
    hours = replace(towns, input=replace(towns.input, partition="hour", every="hour"), windows=())
    for number in range(2):
        project.put(f"f{number}", [number], "2013-01-10T05Z", "hour")
        Stream(hours, DayQuality(), wait=0.0).run(Trigger())
    assert {
        (row["number"], row["hour"]) for row in DeltaTable(TABLE).to_pyarrow_table().to_pylist()
    } == {(number, "2013-01-10T05Z") for number in range(2)}


@pytest.mark.proof
def test_a_stream_with_a_trigger_continues_and_its_health_file_says_so(project, spark, wait_for):
    stream = Stream(load("declared.towns:towns"), DayQuality(), wait=0.0)
    thread = threading.Thread(target=stream.run, args=(Trigger(0.2),))
    thread.start()
    for number in range(2):
        project.put(f"f{number}", [number])
        wait_for(
            lambda last=number: (state := stream_state.read("towns")) and state.last_batch == last,
            60,
        )
    state = stream_state.read("towns")
    (query,) = spark.streams.active
    assert (state.state, state.query, state.last[-1].rows) == ("running", query.id, 1)
    query.stop()
    thread.join()
    assert stream_state.read("towns").state == "published"
    assert project.rows() == [0, 1]


@pytest.mark.proof
def test_a_run_of_a_day_and_a_stream_each_leave_out_rows_that_the_other_published(project, spark):
    project.put("a", [1, 2])
    project.run()
    project.put("b", [3])
    publish_day(DAY)
    assert project.rows() == [1, 2, 3]
    project.put("c", [4])
    assert project.run().rows == 1
    assert project.rows() == [1, 2, 3, 4]
    shutil.rmtree(f"{TABLE}/_stream")
    assert project.run().rows == 0
    assert project.rows() == [1, 2, 3, 4]
    assert set(project.calls().values()) == {1}


@pytest.mark.proof
def test_commits_of_a_delta_table_become_batches_and_changed_rows_come_with_a_run_of_the_day(
    project, spark
):
    towns = load("declared.towns:towns")
    lake = replace(towns, input=Input(path="lake", format="delta"), windows=())

    def put(*numbers, date=DAY):
        times = pa.array([1_000_000 * number for number in numbers], pa.timestamp("us", "UTC"))
        town, days = [f"town-{number}" for number in numbers], [date] * len(numbers)
        rows = pa.table({"number": numbers, "town": town, "at": times, "date": days})
        write_deltalake("lake", rows, partition_by=["date"], mode="append")

    def run():
        Stream(lake, DayQuality(), wait=0.0).run(Trigger(most_files=1))

    put(1, 2)
    put(3, date=NEXT)
    run()
    assert (project.rows(DAY), project.rows(NEXT)) == ([1, 2], [3])
    put(4)
    DeltaTable("lake").optimize.compact()
    put(5)
    run()
    assert project.rows(DAY) == [1, 2, 4, 5]
    DeltaTable("lake").delete("number = 2")
    put(6)
    with pytest.raises(
        DeclarationError, match=f"version 5 of lake deletes or changes rows of {DAY}"
    ):
        run()
    publish_day(DAY, lake)
    run()
    put(7)
    run()
    assert (project.rows(DAY), project.rows(NEXT)) == ([1, 4, 5, 6, 7], [3])
    assert set(project.calls().values()) == {1}


def test_a_red_batch_stops_the_stream_unpublished_and_is_repeated(project, spark, service):
    project.put("a", [1, 2])
    service.answer = refuse
    state = project.run(status=1)
    assert state.state == "held back"
    assert "batch 0 is held back: 2013-01-10: weather__errors_tolerated" in state.reason
    assert not DeltaTable.is_deltatable(TABLE)
    service.answer = service.weather
    assert project.run().last_batch == 0
    assert project.rows() == [1, 2]


@pytest.mark.proof
def test_a_file_deleted_before_the_stream_read_it_is_named_with_a_working_cure(project, spark):
    project.put("a", range(5))
    bad = Path(f"data/raw/towns/date={DAY}/b.parquet")
    bad.write_text("no Parquet")
    reason = project.run(status=WRONG).reason
    assert "is not a readable Parquet file" in reason
    assert reason.endswith(". Write it again.")
    bad.unlink()
    assert project.run(status=WRONG).reason.endswith(
        f"b.parquet was deleted before the stream read it. Restore it, or delete "
        f"{Path(TABLE).absolute()}/_stream: a new checkpoint leaves out the files that the table "
        "has rows of."
    )
    shutil.rmtree(f"{TABLE}/_stream")
    assert project.run().rows == 5
    assert set(project.calls().values()) == {1}


@pytest.mark.proof
def test_a_restored_older_checkpoint_is_refused_and_a_new_one_loses_no_file(project, spark, capsys):
    checkpoint = Path(stream_state.checkpoint_path(TABLE))
    project.put("a", [1])
    project.run()
    shutil.copytree(checkpoint, "older")
    for number in (2, 3):
        project.put(f"f{number}", [number])
        project.run()
    shutil.rmtree(checkpoint)
    shutil.copytree("older", checkpoint)
    project.put("new", [4])
    project.run(status=FAILED)
    assert "an older checkpoint was restored. Delete" in capsys.readouterr().err
    assert project.rows() == [1, 2, 3]
    shutil.rmtree(checkpoint)
    project.run()
    assert project.rows() == [1, 2, 3, 4]
    assert set(project.calls().values()) == {1}


def test_a_stream_over_spark_connect_is_refused_before_it_starts(project, monkeypatch, capsys):
    monkeypatch.setenv("TIDEGATE_SPARK_MASTER", "sc://127.0.0.1:1")
    assert command_line(["stream", "towns", "--available-now", "--package", "declared"]) == WRONG
    assert "Spark Connect would run the batches in its server" in capsys.readouterr().err


KILLED = """
import os, signal, sys, threading, traceback
from pyspark.sql import SparkSession
from data_quality.day_quality import DayQuality
from jobs.declare.finding.loading import load
from jobs.streams import micro_batches
from jobs.streams.enrich_stream import Stream, Trigger
from jobs.run.engines.spark_session import session
from jobs.streams import batch_publishing

place, number, *names = sys.argv[1:]
all_there = threading.Barrier(len(names), action=lambda: os.kill(os.getpid(), signal.SIGKILL))


def kills(function, *, before):
    def killed(*given, **named):
        at = next((one.number for one in given if isinstance(one, batch_publishing.MicroBatch)), given[-1])
        if before and at == int(number):
            all_there.wait()
        done = function(*given, **named)
        if at == int(number):
            all_there.wait()
        return done
    return killed


def run(name):
    try:
        Stream(load(f"declared.{name}:{name}"), DayQuality(), wait=0.0).run(Trigger())
    except BaseException:
        traceback.print_exc()
        os._exit(1)


places = {
    "before its calls": (micro_batches.MicroBatches, "_do", True),
    "before its commit": (batch_publishing, "_append", True),
    "after its commit": (batch_publishing, "_append", False),
    "before Spark's mark": (micro_batches.MicroBatches, "__call__", False),
}
if place in places:
    owner, name, before = places[place]
    setattr(owner, name, kills(getattr(owner, name), before=before))
SparkSession.builder.master(f"local[{len(names) + 1}]").getOrCreate()  # a slot for the calls of each
session("kills")
streams = [threading.Thread(target=run, args=(name,)) for name in names]
for stream in streams:
    stream.start()
for stream in streams:
    stream.join()
"""
KILLS = int(os.environ.get("TIDEGATE_KILLS", "2"))  # at each place
# of one process, each with its own table and ledger: its kill is one of each
STREAMS = max(1, KILLS // 5)
IN_FLIGHT, FLUSH_S = 4, 0.5  # as declared
WRITE_S = 0.5  # that storing a part may take


@pytest.mark.proof
@pytest.mark.parametrize(
    "place",
    [
        "before its calls",
        "during its calls",
        "before its commit",
        "after its commit",
        "before Spark's mark",
    ],
)
def test_a_stream_killed_with_9_publishes_each_row_once_and_repeats_few_calls(
    project, spark, service, place
):
    each, seconds = (200, 0.02) if place.startswith("during") else (20, 0.0)
    names, rounds = [f"towns_{number}" for number in range(STREAMS)], KILLS // STREAMS
    rows = {name: [*range(10**6 * at, 10**6 * at + rounds * each)] for at, name in enumerate(names)}
    for name in names:
        project.declare(name)
    answered = []

    async def answer(request):
        await asyncio.sleep(seconds)
        answered.append(time.time())
        return await service.weather(request)

    service.answer = answer
    lost = killed_in_calls = 0
    for number in range(rounds):
        for name in names:
            project.put(
                f"f{number}", rows[name][number * each : (number + 1) * each], enrichment=name
            )
        program = subprocess.Popen(
            [sys.executable, "-c", KILLED, place, str(number), *names],
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{Path.cwd()}", "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if place == "during its calls":
            while min(asked := asked_of(names, service)) < (number + 0.2) * each:
                assert program.poll() is None, program.stderr.read()[-3000:]
                time.sleep(0.01)
            killed = time.time()
            kill_tree(program.pid)
            killed_in_calls += sum(calls < (number + 1) * each for calls in asked)
            lost += IN_FLIGHT * STREAMS + sum(
                moment > killed - FLUSH_S - WRITE_S for moment in answered
            )
        _, errors = program.communicate(timeout=300)
        assert place.startswith("during") or program.returncode == -signal.SIGKILL, errors[-3000:]
    for name in names:
        Stream(load(f"declared.{name}:{name}"), DayQuality(), wait=0.0).run(Trigger())
        table = f"data/published/{name}"
        assert (
            sorted(DeltaTable(table).to_pyarrow_table(columns=["number"])["number"].to_pylist())
            == rows[name]
        )
        assert last_published(name, DAY).figures.rows_out == rounds * each
        assert (
            DeltaTable(f"{table}__audit").to_pyarrow_table(columns=["date"]).num_rows
            == rounds * each
        )
    assert len(project.calls()) == KILLS * each
    repeated = len(service.log) - KILLS * each
    assert repeated <= lost
    in_calls = f", {killed_in_calls} of them in mid-call" if place.startswith("during") else ""
    print(
        f"{place}: {STREAMS} streams killed {rounds} times{in_calls}, {repeated} calls repeated of "
        f"{lost}"
    )


def asked_of(names, service):
    """How many different keys each of the streams has asked for."""
    asked = Counter(int(path.rpartition("-")[2]) // 10**6 for path in set(service.log))
    return [asked[at] for at in range(len(names))]


async def refuse(_request):
    return web.Response(status=400)


def publish_day(date, enrichment=None, rules=None):
    run_id = f"run-{date}-{uuid.uuid4().hex}"
    record = run_day(
        enrichment or load("declared.towns:towns"), date, run_id, rules=rules, checks=CHECKS
    )
    with leased(TABLE, date, run_id) as lease:
        publish(record, lease)


@pytest.mark.proof
def test_stream_with_json_prints_an_object_per_day_of_a_batch_and_a_last_object(project):
    project.put("a", range(5))
    project.put("b", range(5, 8), date=NEXT)
    command = [
        sys.executable,
        "-m",
        "tidegate",
        "stream",
        "towns",
        "--available-now",
        "--json",
        "--package",
        "declared",
    ]
    ended = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    *days, end = map(json.loads, ended.stdout.splitlines())
    assert [(day["batch"], day["day"], day["state"], day["figures"]["rows"]) for day in days] == [
        (0, DAY, "published", 5), (0, NEXT, "published", 3),
    ]  # fmt: skip
    assert (end["state"], end["day"], end["batches"], end["rows"]) == ("published", None, 1, 8)
    assert Path("data/reports/towns/index.html").exists()
