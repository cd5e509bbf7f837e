"""The memory of a run's own processes does not grow with the rows of its day."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.proof, pytest.mark.process, pytest.mark.spark]

DECLARED = """
from tidegate import AsyncFunctionLookup, Enrichment, Input, Ledger, Output

class AtOnce:
    async def async_invoke(self, keys):
        return [{"x": 1}]

lookup = AsyncFunctionLookup(
    name="f", function=AtOnce, keys={"k": "k"}, returns="x INT", timeout=60.0, max_concurrency=9
)
large = Enrichment(
    name="large", input=Input(path="in", row_id=["id"]), lookups=[lookup],
    output=Output(path="out"), ledger=Ledger("ledger"),
)
"""
KEYS = 400
FEW, MANY = 600_000, 6_000_000


def write_input(folder, rows):
    folder.mkdir(parents=True)
    for first in range(0, rows, 500_000):
        ids = np.arange(first, min(rows, first + 500_000))
        texts = pa.array([f"{number:050d}" for number in range(KEYS)]).take(pa.array(ids % KEYS))
        pq.write_table(pa.table({"id": ids, "k": texts}), folder / f"{first:09d}.parquet")


def peaks_of_a_run(project, day):
    """The highest resident memory, in MB, of the program that starts Spark, and of the driver."""
    command = [sys.executable, "-m", "tidegate", "run", "large", "--day", day, "--package", "mine"]
    path = f"{project}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = os.environ | {"PYTHONPATH": path, "TIDEGATE_SPARK_MASTER": "local[2]"}
    run = subprocess.Popen(command, cwd=project, env=environment, stdout=subprocess.DEVNULL)
    peaks = {"starter": 0, "driver": 0}
    while run.poll() is None:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                if (process / "cwd").resolve() != project or b"python" not in words[0]:
                    continue
                is_driver = any(word.endswith(b"enrich_day.py") for word in words[1:2])
                if not is_driver and process.name != str(run.pid):
                    continue
                status = (process / "status").read_text()
                high = int(status.split("VmHWM:")[1].split()[0]) // 1024
            except (OSError, IndexError):  # it has ended
                continue
            kind = "driver" if is_driver else "starter"
            peaks[kind] = max(peaks[kind], high)
        time.sleep(0.2)
    assert run.returncode == 0
    return peaks


def test_ten_times_the_rows_take_the_same_memory(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "large.py").write_text(DECLARED)
    found = []
    for number, rows in enumerate((FEW, MANY), start=1):
        write_input(tmp_path / "in" / f"date=2026-05-0{number}", rows)
        found.append(peaks_of_a_run(tmp_path, f"2026-05-0{number}"))
    few, many = found
    assert many["driver"] <= 1.2 * few["driver"], found
    assert many["starter"] <= 2 * few["starter"], found  # it holds a row group of the audit
