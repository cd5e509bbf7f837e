"""A run of several days ends, and names the day, if its starter cannot publish one of them."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from deltalake import DeltaTable

from tests.support.towns_declared import declare_towns

DAYS = ("2013-01-09", "2013-01-10")


@pytest.fixture
def run(tmp_path, service):
    async def answer(_request):
        return web.json_response({"degrees": 3})

    service.answer = answer
    for day in DAYS:
        (tmp_path / f"raw/date={day}").mkdir(parents=True)
        pq.write_table(pa.table({"town": ["a", "b"]}), tmp_path / f"raw/date={day}/a.parquet")
    (tmp_path / "enrichments").mkdir()
    (tmp_path / "enrichments/towns.py").write_text(declare_towns(service.url))
    words = [sys.executable, "-m", "tidegate", "run", "towns", "--engine", "local"]

    def start():
        return subprocess.run(
            [*words, "--from", DAYS[0], "--to", DAYS[1]], cwd=tmp_path, capture_output=True, text=True, check=False,
            timeout=120,
        )  # fmt: skip

    return start


def refuse(tmp_path, day):
    """Make the audit of a day unwritable: a file has the name of its folder."""
    audit = tmp_path / "published__audit"
    audit.mkdir()
    (audit / f"date={day}").write_text("")


def published(tmp_path):
    if not (tmp_path / "published/_delta_log").exists():
        return set()
    rows = DeltaTable(str(tmp_path / "published")).to_pyarrow_table()
    return {str(day) for day in rows["date"].to_pylist()}


@pytest.mark.proof
@pytest.mark.process
@pytest.mark.parametrize(("refused", "readers_have"), [(0, set()), (1, {DAYS[0]})])
def test_a_day_that_cannot_be_published_ends_the_run_of_its_days(
    run, tmp_path, refused, readers_have
):
    refuse(tmp_path, DAYS[refused])
    done = run()
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{DAYS[refused]}  failed      output: published or a table beside it" in done.stdout
    assert published(tmp_path) == readers_have
