"""What a model's vendor bills by token is what `costs`, budgets and caps count, whatever becomes of
the calls: by the vendor's own invoice.
"""

import asyncio
import datetime as dt
import json
import random
from decimal import Decimal

import pytest
from aiohttp import web

from jobs.commands.costs import list_costs
from jobs.limits.store_url import limits_url, open_store
from jobs.tables.records import run_records
from tests.support.loop_thread import LoopThread, end_service
from tidegate.__main__ import main

pytestmark = pytest.mark.process
DAY = "2026-11-01"
PRICES = {"input": Decimal("0.15"), "cached": Decimal("0.075"), "output": Decimal("0.60")}
MILLION = 1_000_000
DECLARATION = """
from tidegate import (Batch, Budget, Enrichment, HttpLookup, Input, Ledger, Output, Price, Retry, Service,
                      Tolerance)

def usd(amount, unit, most):
    return Price(f"{{amount}} USD", per=f"1000000 {{unit}}", model="small-1", at_most=most)

labels = HttpLookup(
    name="label", request="POST /chat", body={{"model": "small-1", "text": "{{k}}"}}, keys={{"k": "k"}},
    returns="label STRING", timeout=20.0, attempt_timeout=2.0, retry=Retry(retries=2, initial_delay=0.05),
    bill={{
        "input_tokens": "$.usage.prompt_tokens - $.usage.details.cached_tokens",
        "cached_tokens": "$.usage.details.cached_tokens",
        "output_tokens": "$.usage.completion_tokens",
    }},
    service=Service(
        name="model", url="{url}", max_concurrency=6, {limits}
        prices=[usd("0.15", "input_tokens", 900), usd("0.075", "cached_tokens", 900),
                usd("0.60", "output_tokens", 400), Price("99 USD", per="input_token", model="large-1", at_most=9)],
    ),
)
labelled = Enrichment(
    name="labelled", input=Input(path="raw", row_id=["k"]), lookups=[labels], output=Output(path="out"),
    ledger=Ledger("ledger", flush_seconds=0.1), tolerance=Tolerance(error={tolerance}),
)
"""


class ModelVendor:
    """Bills the tokens of each request, whatever its answer; an error bills only what it tells."""

    def __init__(self):
        self.draw, self.invoice, self.requests, self.dropped = random.Random(3), Decimal(0), 0, 0
        self.kinds = ["ok"] * 8 + ["misfit", "error", "refused", "throttled", "odd", "none used"]
        self.loop = LoopThread().start()
        self.url = self.loop.run(self._start())

    async def _start(self):
        app = web.Application()
        app.router.add_post("/chat", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"

    async def _answer(self, request):
        await request.json()
        self.requests += 1
        kind = self.draw.choice(self.kinds)
        prompt, output = self.draw.randint(1, 900), self.draw.randint(0, 400)
        cached = self.draw.choice([0, self.draw.randint(0, prompt)])
        usage = {"prompt_tokens": prompt, "completion_tokens": output}
        usage["details"] = (
            {"cached_tokens": cached or None} if kind == "odd" else {"cached_tokens": cached}
        )
        if kind == "none used":
            usage, prompt, cached = usage | {"prompt_tokens": 0, "details": None}, 0, 0
        await asyncio.sleep(self.draw.uniform(0.0, 0.02))
        if kind in ("error", "throttled"):
            return web.json_response({"error": kind}, status={"error": 500, "throttled": 429}[kind],
                                     headers={"Retry-After": "0.05"})  # fmt: skip
        cost = (
            PRICES["input"] * (prompt - cached)
            + PRICES["cached"] * cached
            + PRICES["output"] * output
        )
        self.invoice += cost / MILLION
        if kind == "dropped":
            self.dropped += 1
            request.transport.close()
        if kind == "refused":
            return web.json_response({"error": "refused", "usage": usage}, status=400)
        return web.json_response({"label": 7 if kind == "misfit" else "good", "usage": usage})

    def close(self):
        self.loop.run(end_service(self._runner))
        self.loop.stop()


@pytest.fixture
def vendor(project):
    vendor = ModelVendor()
    vendor.project = project
    yield vendor
    vendor.close()


def declare(vendor, *, limits="", tolerance=0.5):
    vendor.project.declare(DECLARATION.format(url=vendor.url, limits=limits, tolerance=tolerance))


def write(vendor, rows):
    vendor.project.write(DAY, {"k": [f"{DAY}-{row}" for row in range(rows)]})


def run(*options, day=DAY):
    return main(["run", "labelled", "--package", "declared", "--day", day, *options])


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


def test_costs_and_budget_equal_the_invoice_of_a_day_with_errors_and_misfits(vendor):
    declare(vendor, limits='budget=Budget("50 USD", per="day"),')
    write(vendor, 90)
    assert run() == 0
    assert costs() == vendor.invoice == book()
    (record,) = run_records.load("labelled")
    (lookup,) = record.figures.lookups
    assert [part.unit for part in lookup.billed.parts] == [
        "input_token", "cached_token", "output_token",
    ]  # fmt: skip
    assert lookup.requests.unknown_use == 0
    assert 0 < lookup.billed.parts[0].lost < lookup.billed.parts[0].units, "of refusals"
    assert json.loads(record.to_json())["figures"]["lookups"][0]["billed"]["by_unit"]


@pytest.mark.parametrize("option", [True, False])
def test_a_cap_or_a_budget_is_used_nearly_whole_and_never_exceeded(vendor, option):
    declare(vendor, limits="" if option else 'budget=Budget("0.006 USD", per="day"),')
    write(vendor, 200)
    assert run(*(["--max-cost", "0.006 USD"] if option else [])) == 3
    most_of_a_call = (
        PRICES["input"] * 900 + PRICES["cached"] * 900 + PRICES["output"] * 400
    ) / MILLION
    assert Decimal("0.006") - most_of_a_call < vendor.invoice <= Decimal("0.006")
    assert costs() == vendor.invoice


def test_a_request_with_a_lost_answer_counts_at_its_maximum_in_the_budget(vendor, capsys):
    vendor.kinds = ["ok"] * 9 + ["dropped"]
    declare(vendor, limits='budget=Budget("50 USD", per="day"),')
    write(vendor, 60)
    assert run() == 0
    most = (PRICES["input"] * 900 + PRICES["cached"] * 900 + PRICES["output"] * 400) / MILLION
    assert vendor.dropped
    assert book() == costs() + vendor.dropped * most
    assert costs() < vendor.invoice <= book()
    (record,) = run_records.load("labelled")
    assert record.figures.lookups[0].requests.unknown_use == vendor.dropped
    (warning,) = record.warnings
    assert warning.startswith(f"lookup label: {vendor.dropped} of {vendor.requests} requests did")
    assert warning in capsys.readouterr().out
