"""The command of an approved plan."""

import json
import sys
from io import StringIO
from pathlib import Path

import pytest
from aiohttp import web

from jobs.commands.planning.approving import PricedPlan, approved
from tidegate.__main__ import main

DAY = "2026-11-01"
IN_BATCHES = """
from tidegate import Batch, Enrichment, HttpLookup, Input, Ledger, Output, Price, Service

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


@pytest.fixture
def labels(project, service):
    """The text of an enrichment of seven keys in batches, whose service is free."""

    async def answer(request):
        return web.json_response([{**item, "x": 1} for item in await request.json()])

    service.answer = answer
    project.write(DAY, {"k": [f"k{number}" for number in range(7)]})
    return IN_BATCHES.format(url=service.url)


def test_an_approved_plan_of_batches_without_a_price_calls_for_all_its_keys(
    labels, project, capsys
):
    project.declare(labels)
    main(["approve", "labels", "--day", DAY, "--package", "declared", "--yes"])
    (file,) = Path("data/approved").iterdir()
    command, *options = approved(file.stem).command
    capsys.readouterr()
    assert main([command, *options, "--package", "declared", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["calls"] == 7


def test_an_approval_may_set_a_maximum_cost(labels, project, capsys):
    project.declare(
        labels.replace("max_concurrency=2", 'max_concurrency=2, prices=[Price("1 USD")]')
    )
    arguments = ["approve", "labels", "--day", DAY, "--package", "declared", "--yes"]
    assert main([*arguments, "--max-cost", "5"]) == 2
    assert capsys.readouterr().err == (
        "--max-cost is '5'; it must be an amount and a currency, such as '0.0040 USD'.\n"
    )
    assert main([*arguments, "--max-cost", "5 USD"]) == 0
    (file,) = Path("data/approved").iterdir()
    assert approved(file.stem).command[-1] == "--max-cost=5 USD"


def test_nothing_is_approved_by_a_person_who_ends_the_input(labels, project, capsys, monkeypatch):
    class Terminal(StringIO):
        def isatty(self):
            return True

    project.declare(labels)
    monkeypatch.setattr(sys, "stdin", Terminal())  # as Ctrl-D ends it
    assert main(["approve", "labels", "--day", DAY, "--package", "declared"]) == 1
    assert capsys.readouterr().out.endswith("Nothing is approved.\n")
    assert not Path("data/approved").exists()
