"""`repair=1` asks once more for an answer that does not fit, and for no other: by the list and the
invoice of a stand-in for a model's vendor.
"""

import datetime as dt
import json
from collections import Counter
from decimal import Decimal

import pytest
from aiohttp import web
from deltalake import DeltaTable

from jobs.commands.costs import list_costs
from jobs.ledger.declared_folder import declared_folder
from jobs.tables.records import run_records
from tests.support.chat_vendor import (
    ASKED_AGAIN,
    DECLARATION,
    INPUT,
    OUTPUT,
    UNANSWERED,
    ChatVendor,
)
from tidegate.__main__ import main

pytestmark = pytest.mark.process
DAY = "2026-11-01"
MOST = (INPUT * 900 + OUTPUT * 100) / 1_000_000
TWO_LEVELS = """
from tidegate import *

service = Service(name="geo", url="{url}", max_concurrency=2, prices=[Price("0.01 USD")])
a = HttpLookup(
    name="a", service=service, request="POST /a", body={{"k": "{{k}}", "again": "again{{repair}}"}},
    keys={{"k": "k"}}, returns="a_n BIGINT", paths={{"a_n": "$.n"}}, timeout=9.0, repair=1,
)
b = HttpLookup(
    name="b", service=service, request="POST /b", body={{"k": "{{k}}"}}, keys={{"k": "a_n"}},
    returns="b_n BIGINT", paths={{"b_n": "$.n"}}, timeout=9.0,
)
both = Enrichment(
    name="both", input=Input(path="raw", row_id=["id"]), lookups=[a, b], mode="ordered",
    output=Output(path="published"), ledger=Ledger("ledger"),
)
"""


@pytest.fixture
def vendor(project):
    vendor = ChatVendor()
    vendor.project = project
    yield vendor
    vendor.close()


def declare(vendor, *, limits="", timeout=30.0):
    vendor.project.declare(DECLARATION.format(url=vendor.url, limits=limits, timeout=timeout))


def run(vendor, reviews, *options):
    vendor.project.write(DAY, {"id": list(range(len(reviews))), "review": reviews})
    return main(["run", "reviews", "--package", "declared", "--day", DAY, *options])


def published():
    rows = DeltaTable("out").to_pyarrow_table().to_pylist()
    return [
        (row["review"], row["label_status"], {"topic": row["topic"], "score": row["score"]})
        for row in rows
    ]


def costs():
    month = f"{dt.datetime.now(dt.UTC):%Y-%m}"
    return sum(list_costs(month).totals().values(), Decimal(0))


def test_repair_repeats_only_calls_whose_answer_does_not_fit(vendor):
    vendor.weights = {
        "fits": 50, "misfit": 30, "cut": 6, "refused": 6, "error": 10, "throttled": 5,
    }  # fmt: skip
    declare(vendor, limits='budget=Budget("9 USD", per="day"),')
    reviews = [f"review {number % 90}" for number in range(120)]
    assert run(vendor, reviews) == 0
    answered = {
        review: [kind for kind, _ in said if kind not in UNANSWERED]
        for review, said in vendor.said.items()
    }
    for review, status, given in published():
        if answered[review] and len(answered[review]) == 1 + (answered[review][0] == "misfit"):
            assert (status, given) == vendor.right(review, repairs=1), vendor.said[review]
        else:  # each retry failed
            assert status == "error", vendor.said[review]
            assert vendor.said[review][-1][0] == "error"
    repaired = {
        repair["messages"][-1]["content"].partition(ASKED_AGAIN)[0] for repair in vendor.repairs
    }
    assert repaired == {review for review, kinds in answered.items() if kinds[:1] == ["misfit"]}
    assert len(repaired) > 15
    assert max(map(len, answered.values())) == 2
    (record,) = run_records.load("reviews")
    assert record.figures.lookups[0].requests.repaired == len(repaired)
    assert costs() == vendor.invoice

    # what was answered twice is stored under its key, and the last answer counts
    asked, before = len(vendor.asked), published()
    assert run(vendor, reviews) == 0
    failed = {review for review, kinds in answered.items() if not kinds or kinds[-1] == "refused"}
    again = {
        request["messages"][-1]["content"].partition(ASKED_AGAIN)[0]
        for request in vendor.asked[asked:]
    }
    assert again == failed, "an error is asked for again, and an answer that does not fit is not"
    after = [row for row in published() if row[0] not in failed]
    assert sorted(after, key=str) == sorted((r for r in before if r[0] not in failed), key=str)
    folder = declared_folder(*(vendor.project.declared(name) for name in ("reviews", "label")))
    stored = folder.read(folder.parts()).to_pylist()
    assert {json.loads(row["key"])[0] for row in stored} >= set(answered) - failed


@pytest.mark.proof
def test_ten_thousand_answers_match_the_vendor_and_tokens_match_the_invoice(vendor):
    vendor.weights = {
        "fits": 900, "misfit": 70, "cut": 20, "refused": 10, "error": 30, "throttled": 20,
        "rejected": 5,
    }  # fmt: skip
    declare(vendor, limits='budget=Budget("99 USD", per="day"),')
    assert run(vendor, [f"review {number}" for number in range(10_000)]) == 0
    statuses = Counter()
    for review, status, given in published():
        kinds = [kind for kind, _ in vendor.said[review] if kind not in UNANSWERED]
        if len(kinds) == 1 + (kinds[:1] == ["misfit"]):
            assert (status, given) == vendor.right(review, repairs=1), vendor.said[review]
        else:  # each of three attempts failed
            assert (status, vendor.said[review][-1][0]) == ("error", "error"), vendor.said[review]
        assert len(kinds) <= 2
        statuses[status] += 1
    (record,) = run_records.load("reviews")
    (figures,) = record.figures.lookups
    first = Counter(
        next((kind for kind, _ in said if kind not in UNANSWERED), "none")
        for said in vendor.said.values()
    )
    assert figures.requests.repaired == first["misfit"]
    units = {part.unit: part.units for part in figures.billed.parts}
    assert units == {
        "input_token": vendor.tokens["prompt_tokens"],
        "output_token": vendor.tokens["completion_tokens"],
    }
    assert costs() == Decimal(figures.billed.cost) == vendor.invoice
    print(dict(first), dict(statuses), len(vendor.asked), "requests", f"{vendor.invoice} USD")


def test_the_second_request_has_the_reason_and_the_first_request_is_unchanged(vendor):
    vendor.weights = {"misfit": 1}
    declare(vendor)
    assert run(vendor, ["a review"]) == 0
    first, second = (request["messages"][-1]["content"] for request in vendor.asked)
    assert first == "a review"
    assert second.startswith(f"a review{ASKED_AGAIN}")
    (row,) = run_records.load("reviews")[0].figures.lookups
    assert row.requests.sent == 2
    assert row.requests.retried == row.requests.repaired == 1
    ((_, status, _),) = published()
    assert status == "error"


def test_a_cap_counts_the_reserve_of_second_requests(vendor):
    vendor.weights = {"misfit": 1}
    declare(vendor)
    cap = MOST * 20
    assert run(vendor, [f"review {n}" for n in range(200)], "--max-cost", f"{cap:.9f} USD") == 3
    assert cap - 2 * MOST < vendor.invoice <= cap
    assert costs() == vendor.invoice


def test_second_requests_leave_less_of_a_cap_for_the_next_level(project, service):
    async def answer(request):
        asked = await request.json()
        is_misfit = asked.get("again") == "again"
        return web.json_response({"n": "many" if is_misfit else int(asked["k"])})

    service.answer = answer
    project.declare(TWO_LEVELS.format(url=service.url))
    project.write(DAY, {"id": [*range(5)], "k": [*range(5)]})
    cap = ["--max-cost", "0.12 USD"]
    assert main(["run", "both", "--package", "declared", "--day", DAY, *cap]) == 3
    assert (service.log.count("/a"), service.log.count("/b")) == (10, 2)


def test_a_row_that_times_out_before_the_second_answer_keeps_the_first(vendor):
    vendor.weights, vendor.latency = {"misfit": 1}, 0.6
    declare(vendor, timeout=1.0)
    assert run(vendor, ["a review"]) == 0
    assert [status for _, status, _ in published()] == ["timeout"]
    assert len(vendor.asked) == 2
    vendor.latency = 0.0
    assert run(vendor, ["a review"]) == 0
    assert [status for _, status, _ in published()] == ["error"]
    assert len(vendor.asked) == 2, "the first answer is stored, and is not paid for again"
