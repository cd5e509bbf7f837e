"""What a killed run has spent on tokens, and what the run after it pays, by the vendor's invoice."""

import asyncio
import datetime as dt
import os
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest
from deltalake import DeltaTable

from demo.killing import kill_tree
from jobs.commands.costs import list_costs
from jobs.limits.store_url import limits_url, open_store
from tests.support.chat_vendor import DECLARATION, INPUT, OUTPUT, ChatVendor

pytestmark = [pytest.mark.process, pytest.mark.proof]

ROOT = Path(__file__).parents[3]
MOST = (INPUT * 900 + OUTPUT * 100) / 1_000_000  # of a request
IN_FLIGHT = 8
ROWS = 300
KILLED_AT = (0.02, 0.2, 0.4, 0.6, 0.8, 0.95)  # shares of the rows
STORED_WITHIN, MOMENT = 0.2, 0.1  # s


def costs():
    month = f"{dt.datetime.now(dt.UTC):%Y-%m}"
    return sum(list_costs(month).totals().values(), Decimal(0))


def book():
    """What the budget's book has spent."""

    async def read():
        store = open_store(limits_url())
        books, _ = await store.books()
        await store.close()
        return books

    (found,) = asyncio.run(read()).values()
    (name,) = {row["limit"] for row in found.rows(0.0) if row["limit"].startswith("billionths")}
    return Decimal(found.held(name)) / 1_000_000_000


def run(day, *, kill_at=None):
    """Returns when the run was killed; None if it ended."""
    command = [sys.executable, "-m", "tidegate", "run", "reviews", "--package", "declared"]
    with Path(f"{day}.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--day", day, "--engine", "local"], stdout=log, stderr=log,
            env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path.cwd()}"},
        )  # fmt: skip
        while process.poll() is None and not (kill_at and kill_at()):
            time.sleep(0.002)
        killed = time.monotonic() if process.poll() is None else None
        kill_tree(process.pid)
        process.wait()
    assert killed or process.returncode == 0, Path(f"{day}.log").read_text()
    return killed


def test_a_killed_run_has_billed_all_calls_except_those_in_flight(project, wait_for):
    weights = {"fits": 70, "misfit": 20, "cut": 2, "error": 4, "throttled": 3}
    vendor = ChatVendor(weights, latency=0.05)
    limits = 'budget=Budget("9 USD", per="day"),'
    project.declare(DECLARATION.format(url=vendor.url, limits=limits, timeout=5.0))
    lost = Decimal(0)  # the costs of requests whose answers a kill lost
    for number, share in enumerate(KILLED_AT):
        day = f"2026-11-{number + 1:02}"
        reviews = [f"review {row} of {day}" for row in range(ROWS)]
        project.write(day, {"id": list(range(ROWS)), "review": reviews})
        first, invoice, before = len(vendor.billed), vendor.invoice, costs()
        killed = run(day, kill_at=lambda at=first + share * ROWS: len(vendor.billed) > at)
        assert killed, "the run ended before its kill"
        time.sleep(0.5)  # what was on its way has arrived
        billed, known = vendor.invoice - invoice, costs() - before
        received = sum(cost for at, _, cost in vendor.billed[first:] if at < killed - MOMENT)
        assert received <= known <= billed
        assert billed - known <= IN_FLIGHT * MOST
        lost += billed - known
        assert book() >= vendor.invoice
        print(f"killed at {share}: invoice {billed}, costs {known}, lost {billed - known}")

        stored = {review for at, review, _ in vendor.billed if at < killed - STORED_WITHIN}
        killed_at = len(vendor.billed)
        assert run(day) is None
        again = {review for _, review, _ in vendor.billed[killed_at:]}
        assert again, "the run ends what the killed run began"
        assert not again & stored, "what was stored is not paid for again"
        assert costs() == vendor.invoice - lost
        assert_published(day, vendor)
    # a killed run's calls may take 5 s, and its lease 10 s more; then they settle the budget
    most = vendor.invoice + IN_FLIGHT * MOST * len(KILLED_AT)
    wait_for(lambda: vendor.invoice <= book() <= most, seconds=30)
    vendor.close()


def assert_published(day, vendor):
    rows = DeltaTable("out").to_pyarrow_table().to_pylist()
    of_day = [row for row in rows if str(row["date"]) == day]
    assert len(of_day) == ROWS
    for row in of_day:
        given = {"topic": row["topic"], "score": row["score"]}
        right = [answer for kind, answer in vendor.said[row["review"]] if kind == "fits"]
        assert (row["label_status"], given["score"]) == ("error", None) or given in right
