"""A run that comes to its end leaves nothing of its limits that the next run would wait for."""

import asyncio
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.errors import BudgetExhausted, RunStopped, TidegateError
from jobs.limits.store_url import LIMITS_URL, in_store
from tests.support.towns_declared import declare_towns

pytestmark = pytest.mark.process

DAY = "2013-01-10"
SLOW = 60.0  # s; no end waits for such a call


@pytest.fixture
def run(tmp_path, service):
    """Runs a day of 20 towns; returns the exit status and the run's output."""
    (tmp_path / f"raw/date={DAY}").mkdir(parents=True)
    towns = pa.table({"town": [f"town{n}" for n in range(20)]})
    pq.write_table(towns, tmp_path / f"raw/date={DAY}/a.parquet")
    (tmp_path / "enrichments").mkdir()
    url = f"file://{tmp_path}/limits.sqlite"

    def start(of_lookup="", options=(), **declared):
        text = declare_towns(service.url, of_lookup=of_lookup, **declared)
        (tmp_path / "enrichments/towns.py").write_text(text.replace("timeout=5.0", "timeout=90.0"))
        words = [
            sys.executable,
            "-m",
            "tidegate",
            "run",
            "towns",
            "--engine",
            "local",
            "--day",
            DAY,
        ]
        done = subprocess.run(
            [*words, *options], cwd=tmp_path, env=os.environ | {LIMITS_URL: url},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    start.url = url
    return start


def holders(url):
    """What runs hold of the limits, as `tidegate limits` reads it."""
    books, _ = asyncio.run(in_store(url, lambda store: store.books()))
    assert books
    return [row for book in books.values() for row in book.rows(0.0)]


def answering(status):
    """The first town is answered by this status; others take longer than the run."""

    async def answer(request):
        if request.path != "/town0":
            await asyncio.sleep(SLOW)
        else:
            await asyncio.sleep(0.3)  # meanwhile other calls have begun
        return web.json_response({"degrees": 3}, status=status)

    return answer


@pytest.mark.proof
@pytest.mark.parametrize(
    ("status", "of_lookup"), [(422, 'on_error="fail", '), (401, "")], ids=["on_error", "denied"]
)
def test_a_run_that_ends_at_a_row_or_at_denied_access_returns_its_leases(
    run, service, status, of_lookup
):
    service.answer = answering(status)
    ended, output = run(of_lookup)
    assert ended == RunStopped.status, output
    assert holders(run.url) == []


def test_a_run_that_reaches_its_cap_returns_its_leases(run, service):
    ended, output = run(options=["--max-calls", "3"])
    assert ended == BudgetExhausted.status, output
    assert len(service.log) == 3
    assert holders(run.url) == []


@pytest.mark.proof
def test_a_run_with_red_checks_returns_its_leases(run, service):
    async def answer(_request):
        return web.json_response({}, status=422)

    service.answer = answer
    ended, output = run()
    assert ended == TidegateError.status, output
    assert holders(run.url) == []
