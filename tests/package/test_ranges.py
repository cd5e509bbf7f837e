"""The oldest and the newest of what we need, from the package registry: a new project's day on each,
by the command, again over the published day, and by Dagster; and a lookup in a database.
"""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.proof, pytest.mark.ranges, pytest.mark.process, pytest.mark.spark]
UV = str(Path(sys.executable).parent / "uv")
EXTRAS = ("spark", "dagster", "postgres", "team")
A_DAY_BY_DAGSTER = """
import os
from pathlib import Path

import dagster as dg
from sample import DAY, credit_service, write_day

from definitions import defs

write_day(Path.cwd())
with credit_service() as url, dg.DagsterInstance.local_temp(str(Path.cwd())) as instance:
    os.environ["CREDIT_URL"] = url
    done = defs.resolve_job_def("orders_rated_nightly").execute_in_process(partition_key=DAY, instance=instance)
    checks = [dg.AssetCheckKey(one.asset_key, one.check_name) for one in done.get_asset_check_evaluations()]
    known = instance.event_log_storage.get_asset_check_partition_info(checks, partition_keys=[DAY])
    assert done.success and len(known) > 5, known
    assert {one.latest_execution_status.value for one in known} == {"SUCCEEDED"}, known
    assert all(one.is_current for one in known), known
"""

DAY = "2026-11-19"
PLANES = """
import sqlite3

from tidegate import Enrichment, Input, Output, SqlLookup

with sqlite3.connect("planes.db") as database:
    database.execute("CREATE TABLE IF NOT EXISTS seats (customer TEXT PRIMARY KEY, seats INT)")
    database.execute("INSERT OR REPLACE INTO seats VALUES ('c1', 7)")
seats = SqlLookup(
    name="seat", url="sqlite+aiosqlite:///planes.db", table="seats", keys={"customer": "customer_id"},
    returns="seats INT", timeout=5.0, max_concurrency=2,
)
planes = Enrichment(
    name="planes", input=Input(path="data/raw/orders", row_id=["order_id"]), lookups=[seats],
    output=Output(path="data/published/planes"),
)
"""
PUBLISHED_TWICE = """
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

for name, column in (("orders_rated", "score"), ("planes", "seats")):
    table = DeltaTable(f"data/published/{name}")
    rows = pa.concat_tables([pq.ParquetFile(file).read([column]) for file in table.file_uris()])
    assert (table.version(), rows.num_rows) == (1, 200), (name, table.version(), rows.num_rows)
    assert rows[column].null_count < 200
"""


def requirements(wheel):
    """What the wheel and its extras ask for, as it says itself: only what is named is taken as old
    as may be.
    """
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = re.findall(r"^Requires-Dist: (.*)$", archive.read(name).decode(), re.MULTILINE)
    for line in lines:
        what, _, condition = line.partition(";")
        extra = re.search(r"extra == ['\"](\w+)", condition)
        if (extra is None or extra[1] in EXTRAS) and not what.startswith("tidegate["):
            yield what.strip()


@pytest.mark.parametrize("end", ["lowest-direct", "highest"])
def test_a_new_project_runs_with_the_oldest_and_newest_allowed_versions(wheel, tmp_path, end):
    home = tmp_path / "environment"
    python = home / "bin" / "python"
    extras = f"{wheel}[{','.join(EXTRAS)}]"
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, home], check=True)
    install = [
        UV,
        "pip",
        "install",
        "-q",
        "--python",
        python,
        "--resolution",
        end,
        extras,
        *requirements(wheel),
    ]
    subprocess.run(install, check=True)
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYSPARK_PYTHON", "PYTHONPATH")
    }
    shop = tmp_path / "shop"
    steps = (
        ([python, "-m", "tidegate", "init", "shop"], tmp_path),
        (["make", "demo", f"PYTHON={python}"], shop),
        ([python, "-c", f"open('enrichments/planes.py', 'w').write({PLANES!r})"], shop),
        *(
            ([python, "sample.py", "run", name, "--day", DAY], shop)
            for name in ("orders_rated", "planes", "planes")
        ),
        ([python, "-c", PUBLISHED_TWICE], shop),
        (["rm", "enrichments/planes.py"], shop),
        (["make", "test", f"PYTHON={python}"], shop),
        ([python, "-c", A_DAY_BY_DAGSTER], shop),
        ([python, "-m", "dagster", "definitions", "validate", "-w", "workspace.yaml"], shop),
    )
    for command, folder in steps:
        done = subprocess.run(
            command,
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
        assert done.returncode == 0, done.stdout + done.stderr
