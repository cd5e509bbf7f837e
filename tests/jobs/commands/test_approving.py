"""The command of an approved plan."""

import json
from pathlib import Path

import pytest
from aiohttp import web

from jobs.commands.planning.approving import PricedPlan, approved
from tidegate.__main__ import main

DAY = "2026-11-01"
IN_BATCHES = """
from tidegate import Batch, Enrichment, HttpLookup, Input, Ledger, Output, Service

label = HttpLookup(
    name="label", service=Service(name="free", url="{url}", max_concurrency=2), request="POST /label",
    keys={{"k": "k"}}, returns="x INT", timeout=20.0,
    batch=Batch(max_items=5, max_wait=0.02, item={{"id": "{{id}}", "k": "{{k}}"}}, match="$.id"),
)
labels = Enrichment(name="labels", input=Input(path="raw"), lookups=[label], output=Output(path="out"),
                    ledger=Ledger("ledger"))
"""


@pytest.mark.parametrize(
    ("calls", "price", "most"),
    [(0, "free", "--max-calls=0"), (3, "free", "--max-calls=3"), (3, "1 USD", "--max-cost=1 USD")],
)
def test_an_approved_plan_makes_no_call_more_than_was_approved(calls, price, most):
    priced = PricedPlan("a" * 16, "towns", "2013-01-10", "", calls, price)
    assert priced.command[-1] == most


def test_an_approved_plan_of_batches_without_a_price_calls_for_all_its_keys(
    project, service, capsys
):
    async def answer(request):
        return web.json_response([{**item, "x": 1} for item in await request.json()])

    service.answer = answer
    project.declare(IN_BATCHES.format(url=service.url))
    project.write(DAY, {"k": [f"k{number}" for number in range(7)]})
    main(["approve", "labels", "--day", DAY, "--package", "declared", "--yes"])
    (file,) = Path("data/approved").iterdir()
    command, *options = approved(file.stem).command
    capsys.readouterr()
    assert main([command, *options, "--package", "declared", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["calls"] == 7
