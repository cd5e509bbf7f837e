"""What an executor must have installed: docs/cluster.md lists it."""

import pickle
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from asyncio_core import AsyncFunction
from data_quality.judging import summarize_part
from jobs.input.day import of_files
from jobs.run import enrich
from jobs.run.engines.stages import SparkStage
from jobs.run.keys.key_texts import key_texts
from jobs.run.keys.prefetch_task import run_prefetch
from jobs.run.metrics import run_metrics as metrics
from jobs.run.plan.planner import plan_tasks
from jobs.run.written_answers import StoredAnswers
from jobs.tables import rows_beside
from jobs.tables.delta.copied_rows import keep_rows
from jobs.task.output_files import TaskFiles, without_doubt
from jobs.task.runner import run_partition
from jobs.task.seen_files import look_around
from jobs.task.stage_tasks import over_parts
from jobs.task.windows.arrival import find_runs, rows_with_arrival
from jobs.task.windows.session_windows import SessionsOfKey, find_dropped
from jobs.task.windows.windowless_rows import write_windowless
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output

NOT_THERE = ("deltalake", "pyiceberg", "obstore", "sqlglot", "great_expectations", "dagster")
PROGRAM = f"""
import pickle, sys

pickle.load(sys.stdin.buffer)
print([name for name in {NOT_THERE} if name in sys.modules])
"""


@pytest.mark.process
def test_tasks_import_no_module_that_only_the_driver_has():
    run_by_tasks = [run_partition, run_prefetch, without_doubt, key_texts, TaskFiles]
    run_by_tasks += [find_runs, rows_with_arrival, SessionsOfKey, find_dropped, write_windowless]
    run_by_tasks += [keep_rows, rows_beside.write, StoredAnswers]
    require_light(pickle.dumps([*run_by_tasks, look_around, metrics.count, summarize_part]))


@pytest.mark.process
def test_only_http_lookups_import_the_http_client():
    modules = "sys, jobs.run.day, jobs.run.enrich, jobs.task.runner"
    loaded = subprocess.run(
        [sys.executable, "-c", f"import {modules}; print('aiohttp' in sys.modules)"],
        capture_output=True,
        check=True,
    )
    assert loaded.stdout.decode().strip() == "False"


@pytest.mark.spark
def test_a_task_that_reads_input_files_imports_no_module_that_only_the_driver_has(
    spark, tmp_path, monkeypatch
):
    pq.write_table(pa.table({"k": [1]}), tmp_path / "day.parquet")
    day = of_files([tmp_path / "day.parquet"])
    lookup = AsyncFunctionLookup(
        name="f",
        function=AsyncFunction,
        keys={"k": "k"},
        returns="x INT",
        timeout=1.0,
        max_concurrency=1,
    )
    declared = Enrichment(
        name="e", input=Input(path="in"), lookups=[lookup], output=Output(path="out"), ledger=None
    )
    prepared, plan = plan_tasks(day.read(spark), declared, day=day)
    assert plan.reads is not None
    sent = []
    monkeypatch.setattr(
        SparkStage, "run", lambda _stage, task, parts: sent.append(over_parts(task, parts)) or []
    )
    enrich.write_out(prepared, plan, str(tmp_path / "out"))
    require_light(cloudpickle.dumps(sent))


def require_light(sent):
    loaded = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=sent, capture_output=True, check=True
    )
    assert loaded.stdout.decode().strip() == "[]"
