"""The example of docs/models.md, as it stands there, at a stand-in for a model's vendor: every row
ends as the vendor's own list says, and costs are its invoice.
"""

import re
from collections import Counter
from decimal import Decimal

import pytest
from deltalake import DeltaTable

from jobs.commands.replaying.dead_letters import find_dead_letters, group_letters
from jobs.tables.records import run_records
from jobs.wording import money
from tests.support.chat_vendor import USUAL, ChatVendor
from tests.support.documents import blocks
from tidegate.__main__ import main

pytestmark = pytest.mark.process
DAY, ROWS = "2026-11-01", 400


def example():
    whole, _ = blocks("docs/models.md", "python")
    return whole


@pytest.fixture
def vendor(project, monkeypatch):
    monkeypatch.setenv("MODEL_KEY", "secret")
    vendor = ChatVendor()
    vendor.project = project
    yield vendor
    vendor.close()


def declare(code, vendor):
    vendor.project.declare(code.replace("https://model.example", vendor.url))


def write(vendor, day, rows):
    reviews = [f"review {row} of {day}" for row in range(rows)]
    vendor.project.write(day, {"id": list(range(rows)), "review": reviews}, to="data/raw")


def test_the_example_has_at_most_thirty_lines():
    assert len([line for line in example().splitlines() if line]) <= 30
    assert max(map(len, example().splitlines())) <= 102


def test_eval_compares_the_variant_of_the_page_with_the_lookup(vendor, capsys):
    vendor.weights = {"fits": 1}
    declare("".join(blocks("docs/models.md", "python")), vendor)
    write(vendor, DAY, 4)
    assert main(["eval", "reviews", "--package", "declared", "--with", "brief"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^ +label +brief$", printed, re.MULTILINE)
    briefly = {text for text in vendor.said if text.startswith("Which topic")}
    assert len(briefly) == len(vendor.said) - len(briefly) == 4


def test_each_review_has_the_vendors_answer_and_costs_equal_the_invoice(vendor, capsys):
    declare(example(), vendor)
    write(vendor, DAY, ROWS)
    vendor.weights = {"fits": 1}
    assert main(["try", "reviews", "--package", "declared", "--rows", "5"]) == 0
    assert f": {money(vendor.invoice, 'USD')}" in capsys.readouterr().out
    vendor.weights, tried = USUAL, vendor.invoice
    assert main(["run", "reviews", "--package", "declared", "--day", DAY]) == 0
    rows = DeltaTable("data/labelled").to_pyarrow_table().to_pylist()
    # what was tried is not asked again
    assert len(rows) == ROWS == len(vendor.asked) - len(vendor.repairs)
    for row in rows:
        given = {"topic": row["topic"], "score": row["score"]}
        said = vendor.said[row["review"]]
        assert (row["label_status"], given) == vendor.right(row["review"], repairs=1), said
        assert len(said) == 1 + (said[0][0] == "misfit"), "only such an answer is repaired, once"
    (record,) = run_records.load("reviews")
    (figures,) = record.figures.lookups
    assert Decimal(figures.billed.cost) == vendor.invoice - tried
    assert figures.requests.unknown_use == 0
    assert figures.requests.repaired == figures.requests.retried == len(vendor.repairs) > 10
    sent = vendor.asked[0]["response_format"]["json_schema"]["schema"]
    assert sent["properties"]["score"] == {"type": "integer", "minimum": 1, "maximum": 5}

    capsys.readouterr()
    assert main(["costs"]) == 0
    assert money(vendor.invoice, "USD") in capsys.readouterr().out
    declared = vendor.project.declared("reviews")
    groups = group_letters(declared, find_dead_letters(declared, DAY))
    counts = {group.reason: group.letters for group in groups}
    kinds = Counter(said[-1][0] for said in vendor.said.values())
    (cut,) = [many for reason, many in counts.items() if "it is cut (cut_when)" in reason]
    refused = [many for reason, many in counts.items() if "I cannot help with that" in reason]
    assert (cut, sum(refused)) == (kinds["cut"], kinds["refused"])
    assert sum(counts.values()) == ROWS - kinds["fits"]

    # the ledger's answers forecast what another day costs
    write(vendor, "2026-11-02", 200)
    assert main(["plan", "reviews", "--package", "declared", "--day", "2026-11-02"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  cost ")]
    cost, low, high, sample = re.fullmatch(
        r"  cost +(\S+) USD, (\S+) to (\S+) with 95 %, from (\d+) stored answers, at .*", line
    ).groups()
    billed = vendor.invoice
    assert main(["run", "reviews", "--package", "declared", "--day", "2026-11-02"]) == 0
    truth = vendor.invoice - billed
    assert int(sample) == ROWS
    assert Decimal(low) < Decimal(cost) < Decimal(high)
    assert abs(Decimal(cost) / truth - 1) < Decimal("0.2")
    vendor.asked.clear()

    # a changed declaration reads the stored responses again, and calls nothing
    declare(example().replace("score INT", "score INT, reason STRING"), vendor)
    assert main(["remap", "reviews", "--package", "declared", "--from", DAY, "--to", DAY]) == 0
    again = DeltaTable("data/labelled").to_pyarrow_table().to_pylist()
    again = [row for row in again if str(row["date"]) == DAY]
    assert Counter(row["label_status"] for row in again) == Counter(
        row["label_status"] for row in rows
    )
    assert "reason" in again[0]
    assert not vendor.asked
