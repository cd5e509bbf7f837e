"""The Spark program as a process of its own: what it writes, its exit code, and its last word."""

import functools
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from demo import weather_service as weather
from jobs.process.spark_submit import find_script
from jobs.run.enrich_day import main
from jobs.schema import columns as schema
from jobs.tables import publishing
from jobs.tables.records import run_records

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "jobs/run/enrich_day.py"
DAY = "2013-01-10"
FLIGHTS = "enrichments.flights:flights"


def run(*arguments, submit=False, enrichment=FLIGHTS, day=DAY, **variables):
    """The program, to its end."""
    command = [sys.executable, str(PROGRAM)]
    if submit:
        command = [
            str(find_script()),
            "--master",
            "local[2]",
            "--conf",
            "spark.ui.enabled=false",
            str(PROGRAM),
        ]
    return subprocess.run(
        [*command, "--enrichment", enrichment, "--day", day, *arguments],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{Path.cwd()}", "PYSPARK_PYTHON": sys.executable} | variables,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def last_line(ended):
    return ended.stderr.strip().splitlines()[-1]


def rows_of(record):
    return [row for file in record.facts.files for row in pq.ParquetFile(file).read().to_pylist()]


@pytest.mark.proof
def test_the_spark_program_writes_counts_and_records_a_day_and_does_not_publish_it(
    project, weather_service
):
    ended = run("--run-id", "r1")
    assert ended.returncode == 0, ended.stderr
    (record,) = run_records.load("flights_enriched", DAY)
    given = pq.ParquetFile(f"data/raw/flights/date={DAY}/part-00000.parquet").read()
    assert (record.state, record.facts.run_id) == ("written", "r1")
    assert record.figures.rows_in == record.figures.rows_out == given.num_rows
    rows = rows_of(record)
    assert sorted(row[schema.SOURCE_ROW] for row in rows) == list(range(given.num_rows))
    by_row = {row[schema.SOURCE_ROW]: row for row in rows}
    for number, row in enumerate(given.to_pylist()):
        assert {name: by_row[number][name] for name in row} == row
    assert not DeltaTable.is_deltatable("data/published/flights_enriched")
    calls = weather_service.calls()
    figures = {lookup.name: lookup for lookup in record.figures.lookups}
    assert len(calls) == figures["weather"].calls
    assert max(call.in_flight for call in calls) <= 10
    progress = json.loads(Path(f"data/runs/flights_enriched/{DAY}/progress.json").read_text())
    assert progress["kind"] == "written"
    published = publishing.publish(record)
    assert (
        DeltaTable("data/published/flights_enriched").to_pyarrow_table().num_rows == given.num_rows
    )
    assert published.published_version == 0
    needs_retry = run("--run-id", "r1")
    assert needs_retry.returncode == 2
    assert "run-id 'r1' was used before" in last_line(needs_retry)
    assert "Traceback" not in needs_retry.stderr


@pytest.mark.proof
def test_spark_submit_runs_the_program_of_a_day(project, weather_service):
    ended = run("--run-id", "r2", submit=True)
    assert ended.returncode == 0, ended.stderr
    (record,) = run_records.load("flights_enriched", DAY)
    assert record.figures.rows_out == record.figures.rows_in > 0


WRONG = """
from enrichments.flights import *
import dataclasses
from tidegate import *
wrong = dataclasses.replace(weather, keys={"origin": "orign", "moment": "origin"})
column = dataclasses.replace(flights, lookups=[wrong])
"""


proof = functools.partial(pytest.param, marks=pytest.mark.proof)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"enrichment": "enrichments.flights:nights"},
            "enrichments.flights has no Enrichment named 'nights'",
        ),
        proof({"enrichment": "no.such.module:x"}, "no.such.module cannot be loaded"),
        ({"enrichment": "wrong_things:column"}, "lookup weather: keys.origin: no column 'orign'"),
        proof(
            {"enrichment": "zero_calls:x"},
            "service geo: max_concurrency is 0; it must be a whole number",
        ),
        proof({"day": "2013-13-01"}, "day is '2013-13-01'; it must be a date"),
        proof({"day": "2013-01-11"}, "input: there is no data/raw/flights/date=2013-01-11"),
        ({"WEATHER_URL": ""}, "lookup weather: WEATHER_URL is not set"),
    ],
)
def test_a_mistake_of_the_user_ends_with_status_2_before_spark_starts(
    project, monkeypatch, given, message
):
    monkeypatch.setenv("WEATHER_URL", "http://127.0.0.1:1")
    Path("wrong_things.py").write_text(WRONG)
    Path("zero_calls.py").write_text(
        "from tidegate import Service\nService(name='geo', url='http://x', max_concurrency=0)"
    )
    ended = run(**given)
    assert ended.returncode == 2
    assert message in last_line(ended)
    assert "Traceback" not in ended.stderr
    assert "Spark" not in ended.stderr.replace("Spark SQL", "")
    assert not Path("data/published").exists()


def test_a_service_that_is_down_before_the_first_call_ends_a_run_with_status_3(
    project, monkeypatch
):
    monkeypatch.setenv("WEATHER_URL", "http://127.0.0.1:1")
    ended = run()
    assert ended.returncode == 3
    assert "service weather_api: http://127.0.0.1:1 refused the connection (3 tries" in last_line(
        ended
    )
    assert not Path("data/published").exists()


def test_a_service_that_goes_down_in_the_middle_ends_a_run_with_status_3_unpublished(
    project, monkeypatch, spark, capsys
):
    monkeypatch.syspath_prepend(project)
    Path("short_patience.py").write_text("""
import dataclasses
from datetime import timedelta
from enrichments.flights import flights, plane, weather
from tidegate import Outage
patience = Outage(after=5, probe_every=timedelta(seconds=0.2), wait_at_most=timedelta(seconds=1))
service = dataclasses.replace(weather.service, outage=patience)
flights = dataclasses.replace(flights, lookups=[dataclasses.replace(weather, service=service), plane])
""")
    with weather.running(project / "data" / "demo", project / "calls.jsonl", scale=1.0) as service:
        monkeypatch.setenv("WEATHER_URL", service.url)
        monkeypatch.setenv(
            "PLANES_URL", f"sqlite+aiosqlite:///{project / 'data' / 'demo' / 'planes.db'}"
        )
        for name in ("WEATHER_URL", "PLANES_URL"):
            monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
        ended = threading.Event()

        def kill_in_the_middle():
            while len(service.calls()) < 50 and not ended.wait(0.02):
                pass
            service.kill()

        killer = threading.Thread(target=kill_in_the_middle)
        killer.start()
        stopped = main(["--enrichment", "short_patience:flights", "--day", DAY, "--run-id", "down"])
        ended.set()
        killer.join(30)
    message = capsys.readouterr().err
    assert stopped == 3, message[-3000:]
    last = message.strip().splitlines()[-1]
    assert last.startswith("weather_api at ")
    assert "stopped answering at " in last
    assert last.endswith("gave up.")
    assert run_records.load("flights_enriched", DAY) == []
    assert not DeltaTable.is_deltatable("data/published/flights_enriched")
    assert list(Path("data/published/flights_enriched").glob("date=*")) == []
    progress = json.loads(Path(f"data/runs/flights_enriched/{DAY}/progress.json").read_text())
    assert (progress["kind"], progress["reason"]) == ("stopped", last)


@pytest.mark.proof
def test_an_unexpected_error_ends_with_status_1_and_a_last_line_of_one_sentence(
    project, weather_service
):
    shutil.copytree("data/raw/flights", "damaged")
    path = Path(f"damaged/date={DAY}/part-00000.parquet")
    whole = bytearray(path.read_bytes())
    # the footer stays right, the pages do not
    whole[200 : len(whole) // 2] = os.urandom(len(whole) // 2 - 200)
    path.write_bytes(whole)
    Path("damaged_input.py").write_text("""
import dataclasses
from enrichments.flights import flights
flights = dataclasses.replace(flights, input=dataclasses.replace(flights.input, path="damaged"))
""")
    ended = run(enrichment="damaged_input:flights")
    assert ended.returncode == 1
    assert run_records.load("flights_enriched", DAY) == []
    assert last_line(ended)
    # what Java says of itself: nothing
    assert "An error occurred while calling" not in last_line(ended)
