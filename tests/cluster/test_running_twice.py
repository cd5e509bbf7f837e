"""A task that Spark runs twice at once (speculation), for real: on a standalone cluster of two
hosts, one task slow.

Spark starts no second copy of a task in local mode, nor on the host where the first one runs.
"""

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.ledger.plan import run_of_keys
from jobs.process.packing import package
from jobs.run.plan.options import RunOptions, plan_ledger
from jobs.schema import columns as schema
from jobs.tables.records import run_records
from tests.cluster.conftest import bare_python
from tests.cluster.test_cluster import Output

pytestmark = [pytest.mark.spark, pytest.mark.proof]
ROOT = Path(__file__).parents[2]
DAY = "2026-11-01"
QUICK, SLOW = range(100), range(1_000, 1_300)  # keys of one task each
STUCK = 1_050
IN_FLIGHT = 16
FLUSH_S = 0.2
# s from the moment a task has seen what is stored to its first call, and for a part to be written
OPENING = 1.0
DECLARATION = """
from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Service

score = HttpLookup(
    name="score", service=Service(name="s", url="{url}", max_concurrency={in_flight}), request="GET /score/{{k}}",
    keys={{"k": "k"}}, returns="twice BIGINT", timeout=200.0,
)
scored = Enrichment(
    name="scored", input=Input(path="raw", row_id=["k"]), lookups=[score], output=Output(path="published"),
    ledger=Ledger("ledger", flush_seconds={flush_s}),
)
"""
OWN_PROGRAM = """
# a program that makes its session before it runs a day: Spark's settings are its own
import sys
from pyspark.sql import SparkSession

SparkSession.builder.getOrCreate()
from jobs.run.enrich_day import main

sys.exit(main())
"""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    # of the first attempt: its worker starts, and some answers are stored
    "spark.speculation.minTaskRuntime": "8s",
    "spark.speculation.efficiency.enabled": "false",
    "spark.log.level": "INFO",  # it names the tasks that run twice
}


class Answers:
    """Slow for the keys of one task, by `seconds(key, time)` for the first, the second time that a
    key is asked.
    """

    def __init__(self, seconds):
        self.seconds = seconds
        self.asked = []  # (s since the epoch, key, the how manieth time)
        self.given = []  # (s since the epoch, key)
        self._times = Counter()

    async def __call__(self, request):
        key = int(request.path.rpartition("/")[2])
        self._times[key] += 1
        self.asked.append((time.time(), key, self._times[key]))
        await asyncio.sleep(self.seconds(key, self._times[key]) if key in SLOW else 0.02)
        self.given.append((time.time(), key))
        return web.json_response({"twice": 2 * key})

    @property
    def calls(self):
        return Counter(key for _, key, _ in self.asked)


def the_first_is_faster(key, times):
    return 0.8 if times == 1 else 4.0


def the_copy_is_faster(key, times):
    return (100.0 if key == STUCK else 0.4) if times == 1 else 0.05


@pytest.fixture
def cluster(new_cluster, tmp_path):
    return new_cluster(bare_python(tmp_path / "python"), hosts=("127.0.0.1", "127.0.0.2"))


@pytest.fixture
def run(tmp_path, monkeypatch, service, cluster):
    """Runs the day on the cluster with speculation wanted; gives the record, the answers, and
    Spark's log.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("scoring.py").write_text(
        DECLARATION.format(url=service.url, in_flight=IN_FLIGHT, flush_s=FLUSH_S)
    )
    Path("own_program.py").write_text(OWN_PROGRAM)
    folder = Path(f"raw/date={DAY}")
    folder.mkdir(parents=True)
    for number, keys in enumerate((QUICK, SLOW)):
        pq.write_table(
            pa.table({"k": pa.array(keys, pa.int64())}), folder / f"part-{number}.parquet"
        )

    def run(program, seconds):
        service.answer = answers = Answers(seconds)
        cluster.start()
        day = ("--enrichment", "scoring:scored", "--day", DAY, "--run-id", "r")
        paths = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
        files = ("--py-files", str(package(tmp_path / "packages.zip").zip))
        log = Output(
            cluster.submit(*files, *day, program=program, conf=SPECULATION, **paths)
        ).to_the_end()
        (record,) = run_records.load("scored", DAY)
        return record, answers, log

    yield run
    sys.modules.pop("scoring", None)


def rows_of(record):
    return [row for file in record.facts.files for row in pq.ParquetFile(file).read().to_pylist()]


def is_as_undisturbed(record):
    seen = Counter((row["k"], row["twice"], row["score_status"]) for row in rows_of(record))
    assert seen == Counter((key, 2 * key, "ok") for key in (*QUICK, *SLOW))


def second_attempts():
    """Parts that a second attempt of a task stored, of the rows or of the keys that were asked
    first.
    """
    import scoring

    ledger = plan_ledger(scoring.scored, scoring.score, "r", RunOptions())
    folder = ledger.open_folder()
    parts = [*folder.parts("r"), *folder.parts(run_of_keys("r"))]
    return [part for part in parts if part.rpartition("/")[2].split("-")[1] != "0"]


def asked_twice(answers, log):
    """The keys that the copy asked again: no more than the first attempt had in flight when it gave
    calls up.
    """
    assert "as speculatable" in log  # Spark did start a copy
    twice = {key for key, calls in answers.calls.items() if calls > 1}
    print(f"{len(twice)} of {len(SLOW)} keys asked twice")
    assert len(twice) <= IN_FLIGHT
    assert twice <= set(SLOW)
    assert max(answers.calls.values()) <= 2
    return twice


def test_the_program_lets_no_task_run_twice_whatever_the_users_settings_say(run):
    record, answers, log = run(ROOT / "jobs/run/enrich_day.py", the_first_is_faster)
    is_as_undisturbed(record)
    assert second_attempts() == []
    assert "as speculatable" not in log
    assert set(answers.calls.values()) == {1}


def test_the_copy_of_a_slow_task_repeats_at_most_the_calls_in_flight(run):
    record, answers, log = run(Path("own_program.py"), the_first_is_faster)
    is_as_undisturbed(record)
    asked_twice(answers, log)


def test_the_copy_of_a_hanging_task_ends_the_day_and_calls_only_for_keys_not_stored(run):
    record, answers, log = run(Path("own_program.py"), the_copy_is_faster)
    is_as_undisturbed(record)
    assert second_attempts()
    twice = asked_twice(answers, log)
    copied = min(moment for moment, _, times in answers.asked if times == 2)
    stored = {
        key for moment, key in answers.given if key in SLOW and moment < copied - FLUSH_S - OPENING
    }
    assert stored
    assert not twice & stored
    # the rows are the copy's
    assert any(row[schema.source("score")] == "ledger" for row in rows_of(record))
