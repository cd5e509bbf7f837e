"""What `tidegate costs` says is what the service bills, whatever becomes of a run: by the service's
own invoice.
"""

import asyncio
import datetime as dt
import importlib
import os
import random
import re
import subprocess
import sys
import time
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo.killing import kill_tree
from jobs.commands.costs import list_costs
from jobs.limits.store_url import LIMITS_URL, STATE_HOME, limits_url, open_store
from jobs.process.spark_submit import SparkSubmit
from jobs.tables.records import run_records
from tests.support.loop_thread import LoopThread
from tests.support.program_here import in_this_session
from tidegate.__main__ import main

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
PRICE = Decimal("0.0023")
LIMIT = 6
DECLARATION = """
from tidegate import Budget, Enrichment, HttpLookup, Input, Ledger, Output, Price, Retry, Service, Tolerance

geo = HttpLookup(
    name="geo", request="GET /{{k}}", keys={{"k": "k"}}, returns="x BIGINT{more}", timeout=20.0, attempt_timeout=2.0,
    retry=Retry(retries=2, initial_delay=0.05), on_error="dead_letter",
    service=Service(
        name="geo", url="{url}", max_concurrency=6, prices=Price("0.0023 USD", per="request"),
        budget=Budget("{budget} USD", per="day"),
    ),
)
priced = Enrichment(
    name="priced", input=Input(path="raw", row_id=["k"]), lookups=[geo], output=Output(path="out"),
    ledger=Ledger("ledger", flush_seconds=0.1), tolerance=Tolerance(error={tolerance}),
)
"""


class Vendor:
    """Bills each request that it reads, answered or not, and counts those that it works on."""

    def __init__(self):
        self.billed = self.working = self.peak = 0
        self.draw, self.failing = random.Random(7), 0.1
        self.loop = LoopThread().start()
        self.server = self.loop.run(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=200))
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    @property
    def invoice(self):
        return PRICE * self.billed

    async def _serve(self, reader, writer):
        ended = suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError)
        with closing(writer), ended:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.billed += 1
                self.working += 1
                self.peak = max(self.peak, self.working)
                await asyncio.sleep(self.draw.uniform(0.01, 0.08))
                self.working -= 1
                status, body = self._answer(head.split()[1].decode())
                answer = (
                    f"HTTP/1.1 {status} S\r\nContent-Type: "
                    f"application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                )
                writer.write((answer + body).encode())

    def _answer(self, path):
        if path.startswith("/bad"):
            return 422, "{}"
        return (500, "{}") if self.draw.random() < self.failing else (200, '{"x": 1, "y": 2}')

    def close(self):
        self.loop.stop(self.server)


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(LIMITS_URL)
    monkeypatch.setenv(STATE_HOME, str(tmp_path / "state"))
    vendor = Vendor()
    yield vendor
    vendor.close()


def declare(vendor, *, budget="50.00", tolerance=0.5, more=""):
    Path("declared").mkdir(exist_ok=True)
    Path("declared/__init__.py").touch()
    Path("declared/pricing.py").write_text(
        DECLARATION.format(url=vendor.url, budget=budget, tolerance=tolerance, more=more)
    )
    for name in ("declared", "declared.pricing"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def write(day, rows, kind="k"):
    folder = Path(f"raw/date={day}")
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(2):
        keys = [f"{kind}{day}-{number}" for number in range(file, rows, 2)]
        pq.write_table(pa.table({"k": keys}), folder / f"part-{file}.parquet")


def month():
    return f"{dt.datetime.now(dt.UTC):%Y-%m}"


def costs():
    return sum(list_costs(month()).totals().values(), Decimal(0))


def spent():
    """What the budget's book has spent, from the only limit of money in it."""

    async def main():
        store = open_store(limits_url())
        books, _ = await store.books()
        await store.close()
        return books

    (book,) = asyncio.run(main()).values()
    (name,) = {row["limit"] for row in book.rows(0.0) if row["limit"].startswith("billionths")}
    return Decimal(book.held(name)) / 1_000_000_000


def test_a_run_that_stops_at_its_cap_is_in_the_costs(spark, vendor, monkeypatch):
    monkeypatch.setattr(SparkSubmit, "started", in_this_session)
    monkeypatch.setenv(LIMITS_URL, "off")
    declare(vendor)
    Path("declared/pricing.py").write_text(
        Path("declared/pricing.py").read_text().replace("budget=Budget", "#")
    )
    write("2026-11-01", 60)
    assert (
        main(["run", "priced", "--package", "declared", "--day", "2026-11-01", "--max-calls", "30"])
        == 3
    )
    assert vendor.billed >= 10
    assert costs() == vendor.invoice


@pytest.mark.proof
def test_after_twelve_endings_the_costs_are_the_invoice_and_so_is_the_budget(vendor, wait_for):
    told = []

    def run(ending, *arguments, expected=None, kill_at=None):
        before, invoice, book = costs(), vendor.invoice, spent() if told else Decimal(0)
        environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path.cwd()}"}
        command = [sys.executable, "-m", "tidegate", *arguments]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        while kill_at is not None and process.poll() is None and not kill_at():
            time.sleep(0.002)
        if kill_at is not None:
            kill_tree(process.pid)
        text = process.communicate()[0].decode()
        assert kill_at is not None or process.returncode == expected, text
        time.sleep(0.5)  # what was on its way has arrived
        reserved = spent()
        assert reserved >= vendor.invoice, ending
        # its calls may take 2 s, and its lease 10 s more; then its costs settle its budget
        if kill_at is not None:
            wait_for(lambda: costs() == spent(), seconds=30)
        told.append(
            (ending, vendor.invoice - invoice, costs() - before, spent() - book, reserved - book)
        )
        print("{:28} invoice {} costs {} book {}, at its end {}".format(*told[-1]), flush=True)
        assert costs() == spent(), ending
        # a kill may come between the count of a request and its first byte
        assert (
            0 <= costs() - before - (vendor.invoice - invoice) <= (0 if kill_at is None else PRICE)
        ), ending
        return text

    def day(name, rows, ending, *, expected=None, kill_at=None, kind="k", more=()):
        write(name, rows, kind)
        return run(
            ending,
            "run",
            "priced",
            "--package",
            "declared",
            "--day",
            name,
            *more,
            expected=expected,
            kill_at=kill_at,
        )

    declare(vendor)
    vendor.failing = 0.35
    day("2026-11-01", 120, "published", expected=0)
    vendor.failing = 0.1
    declare(vendor, tolerance=0.0)
    day("2026-11-02", 40, "held back", expected=1, kind="bad")
    declare(vendor, budget=f"{vendor.invoice + Decimal('0.1150'):f}")
    assert "the budget of geo" in day("2026-11-03", 100, "stopped at the budget", expected=3)
    declare(vendor)
    day("2026-11-04", 100, "stopped at the cap", expected=3, more=("--max-calls", "40"))
    for number, share in enumerate((0.01, 0.25, 0.5, 0.9)):
        at = vendor.billed + 200 * share
        name = f"2026-11-1{number}"
        day(name, 200, f"killed at {share}", kill_at=lambda at=at: vendor.billed >= at)
    written = "2026-11-14"
    day(written, 60, "killed while it is checked", kill_at=lambda: any(
        re.search('"kind": "(written|checked)"', path.read_text())
        for path in run_records.progress_files("priced") if written in str(path)
    ))  # fmt: skip
    vendor.failing = 0.0
    run("replay", "replay", "priced", "--package", "declared", "--day", "2026-11-01", expected=0)
    declare(vendor, more=", y BIGINT")
    run("remap", "remap", "priced", "--package", "declared", "--from", "2026-11-01", expected=0)
    run(
        "refresh",
        "refresh",
        "geo",
        "--package",
        "declared",
        "--where",
        "answer.x = 1",
        "--run",
        expected=0,
    )
    assert vendor.peak <= LIMIT
