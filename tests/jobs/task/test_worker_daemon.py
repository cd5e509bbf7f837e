"""Spark's daemon of Python workers, as a Spark of one machine starts it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.process.spark_submit import find_script
from jobs.run.engines.local_master import DAEMON

ROOT = Path(__file__).parents[3]

TWO_TASKS = """
import json
from jobs.run.engines.spark_session import session

def look(_):
    import gc, os, sys
    shared = {"pandas", "pyarrow.parquet", "jobs.task.runner", "jobs.clients.http.http_client"}
    has_loaded = shared <= {*sys.modules}
    import numpy, pyspark
    from pyspark import BarrierTaskContext
    BarrierTaskContext.get().barrier()  # both tasks at once, so in two workers
    yield os.getpid(), has_loaded, gc.get_freeze_count() > 0, pyspark.__file__, numpy.random.random()

print(json.dumps(session("workers").sparkContext.parallelize(range(2), 2).barrier().mapPartitions(look).collect()))
"""


@pytest.mark.proof
@pytest.mark.process
@pytest.mark.spark
def test_workers_share_the_modules_of_their_daemon_and_draw_different_random_numbers():
    done = subprocess.run(
        [sys.executable, "-c", TWO_TASKS], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    processes, has_loaded, are_frozen, spark_files, drawn = zip(
        *json.loads(done.stdout), strict=True
    )
    assert len({*processes}) == 2
    assert all(has_loaded)
    assert all(are_frozen)  # else a worker's garbage collections would copy what it shares
    assert not any(".zip" in file for file in spark_files)  # an archive has no bytecode
    assert len({*drawn}) == 2


SETTING = "spark.python.daemon.module"
SHOWS = f"""
from jobs.run.engines.spark_session import session

print(session("workers").conf.get("{SETTING}"))
"""


@pytest.mark.proof
@pytest.mark.parametrize(
    ("submitted", "used"),
    [([], DAEMON), (["--conf", f"{SETTING}=pyspark.daemon"], "pyspark.daemon")],
)
def test_a_configured_worker_daemon_is_kept(tmp_path, submitted, used):
    program = tmp_path / "shows.py"
    program.write_text(SHOWS)
    done = subprocess.run(
        [find_script(), "--master", "local[1]", *submitted, program],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == used, done.stderr
