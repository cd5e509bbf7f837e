"""`plan` of coroutines and batches that are billed by token: as much per call as in the last run."""

import re
from decimal import Decimal

import pytest
from aiohttp import web

from tidegate.__main__ import main

DAYS = ("2026-11-01", "2026-11-02")
DECLARATION = """
from tidegate import Batch, Enrichment, HttpLookup, Input, Ledger, Output, Price, Service, lookup

model = Service(name="model", url="{url}", max_concurrency=8, prices=[
    Price("2 USD", per="1000 input_tokens", at_most=900), Price("8 USD", per="1000 output_tokens", at_most=90)])
together = HttpLookup(
    name="label", service=model, request="POST /label", keys={{"k": "k"}}, returns="x INT", timeout=20.0,
    batch=Batch(max_items=5, max_wait=0.02, item={{"id": "{{id}}", "k": "{{k}}"}}, answers="$.answers", match="$.id"),
    bill={{"input_tokens": "$.usage.input", "output_tokens": "$.usage.output"}},
)

@lookup(service=model, keys={{"k": "k"}}, returns="x INT", timeout=20.0, version=2)
async def label(row, http):
    answer = await http.post("/label", json=[{{"id": 1, "k": row.k}}])
    http.bill(input_tokens=answer["usage"]["input"], output_tokens=answer["usage"]["output"])
    return answer["answers"][0]

labels = Enrichment(name="labels", input=Input(path="raw"), lookups=[{lookup}], output=Output(path="out"),
                    ledger=Ledger("ledger"))
"""


@pytest.mark.parametrize("lookup", ["together", "label"])
def test_a_plan_forecasts_the_token_cost_from_the_calls_of_the_last_runs(
    project, service, capsys, lookup
):
    used = {"input": 0, "output": 0}

    async def answer(request):
        items = await request.json()
        usage = {"input": sum(len(str(item["k"])) for item in items), "output": 2 * len(items)}
        for unit, many in usage.items():
            used[unit] += many
        answers = [{"id": item["id"], "x": 1} for item in items]
        return web.json_response({"answers": answers, "usage": usage})

    service.answer = answer
    project.declare(DECLARATION.format(url=service.url, lookup=lookup))
    for number, day in enumerate(DAYS):
        project.write(day, {"k": [f"{day} {10 * number}{row}" for row in range(40 + 30 * number)]})

    def plan(day):
        capsys.readouterr()
        assert main(["plan", "labels", "--package", "declared", "--day", day]) == 0
        (line,) = re.findall(r"  cost +(.*)", capsys.readouterr().out)
        return line

    assert plan(DAYS[0]).startswith(
        "unknown, as only answers report what a call uses: `tidegate try`"
    )
    assert main(["run", "labels", "--package", "declared", "--day", DAYS[0]]) == 0
    cost = (2 * used["input"] + 8 * used["output"]) / Decimal(1000)
    assert plan(DAYS[1]).startswith(
        f"{cost * 70 / 40:.6f} USD, if they use as much as the 40 of the last run, at 2 USD per"
    )
