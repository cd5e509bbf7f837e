"""`tidegate eval` compares two prompts on the same rows, and pays for each answer once: by the list
and the invoice of a stand-in for a model's vendor.
"""

import datetime as dt
import json
import random
import re
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.commands.costs import list_costs
from jobs.limits.store_url import LIMITS_URL, STATE_HOME
from tests.support.chat_vendor import ASKED_AGAIN, DECLARATION, ChatVendor
from tidegate.__main__ import main

pytestmark = pytest.mark.process
DAY, ROWS, LABELLED, SAMPLE = "2026-11-01", 300, 260, 200
VARIANTS = """
from dataclasses import replace
from tidegate import Bearer, Env
brief = replace(label, body={"messages": [{"role": "user", "content": "Briefly: {review}{repair}"}]})
other_name = replace(label, name="other")
no_secret = replace(label, service=replace(label.service, auth=Bearer(Env("NO_TOKEN"))))
loose = Enrichment(name="loose", input=Input(path="raw"), lookups=[label], output=Output(path="loose"),
                   ledger=Ledger("ledger"))
briefly = replace(reviews, name="briefly", lookups=[brief], output=Output(path="brief"))
kept_nowhere = replace(reviews, name="kept_nowhere", ledger=None, output=Output(path="nowhere"))
"""


@pytest.fixture
def vendor(project):
    vendor = ChatVendor({"fits": 80, "misfit": 14, "cut": 3, "refused": 1, "throttled": 2})
    vendor.project = project
    declaration = DECLARATION.format(url=vendor.url, limits="", timeout=30.0) + VARIANTS
    vendor.project.declare(declaration)
    project.write(DAY, {"id": list(range(ROWS)), "review": [f"r{n}" for n in range(ROWS)]})
    draw = random.Random(5)
    rows = [
        {"id": n, "topic": draw.choice(["price", "quality"]), "score": draw.randint(1, 5)}
        for n in draw.sample(range(ROWS), LABELLED)
    ]
    vendor.labels = {row["id"]: row for row in rows}
    pq.write_table(pa.Table.from_pylist(rows), "labels.parquet")
    yield vendor
    vendor.close()


def evaluate(capsys, *options):
    capsys.readouterr()
    assert main(["eval", "reviews", "--package", "declared", *options]) == 0
    return capsys.readouterr().out


def costs():
    month = f"{dt.datetime.now(dt.UTC):%Y-%m}"
    return sum(list_costs(month).totals().values(), Decimal(0))


def first_asked(vendor):
    """The texts of first requests since the last time."""
    texts = {request["messages"][-1]["content"] for request in vendor.asked}
    vendor.asked.clear()
    return {text for text in texts if ASKED_AGAIN not in text}


def refused(vendor):
    return {text for text, said in vendor.said.items() if said[-1][0] == "refused"}


@pytest.mark.proof
def test_eval_of_two_prompts_on_200_rows_makes_400_calls_and_a_run_the_rest(vendor, capsys):
    options = ("--with", "brief", "--against", "labels.parquet", "--json")
    found = json.loads(evaluate(capsys, *options))
    sampled = {int(name[1:]) for name in vendor.said if name.startswith("r")}
    assert len(sampled) == SAMPLE
    asked = {f"{prompt}r{n}" for prompt in ("", "Briefly: ") for n in sampled}
    assert first_asked(vendor) == asked
    assert sampled <= set(vendor.labels)
    ends = [
        {n: vendor.right(f"{prefix}r{n}", repairs=1) for n in sampled}
        for prefix in ("", "Briefly: ")
    ]
    for variant, end in zip(found["variants"], ends, strict=True):
        assert variant["outcomes"] == Counter(outcome for outcome, _ in end.values())
        for column in ("topic", "score"):
            assert variant["as_labelled"][column] == sum(
                outcome == "ok" and answer[column] == vendor.labels[n][column]
                for n, (outcome, answer) in end.items()
            )
        assert variant["calls"] == SAMPLE
        assert variant["p50_ms"] <= variant["p99_ms"]
    assert [variant["name"] for variant in found["variants"]] == ["label", "brief"]
    paid = [Decimal(variant["paid"].removesuffix(" USD")) for variant in found["variants"]]
    assert sum(paid) == vendor.invoice == costs()
    assert not list_costs(f"{dt.datetime.now(dt.UTC):%Y-%m}").unrecorded, "it has ended"
    assert [variant["cost_of_1000"] for variant in found["variants"]] == [
        f"{5 * cost:.4f} USD" for cost in paid
    ]
    differ = {n for n in sampled if ends[0][n] != ends[1][n]}
    assert {row["row"]["id"] for row in found["differing"]} == differ
    assert found["all_agree"] == SAMPLE - len(differ)
    for row in found["differing"]:
        n = row["row"]["id"]
        for column, answers in row["answers"].items():
            if column != "outcome":
                assert answers == [end[n][1][column] for end in ends]
                assert row["label"][column] == vendor.labels[n][column]

    # again: no call but for refusals, the same rows, and costs from what is stored
    again = refused(vendor)
    text = evaluate(capsys, *options[:-1])
    assert first_asked(vendor) == again
    assert "cost of 1,000" in text
    assert "the variants agree in" in text

    # a run pays for what is left, with either prompt
    for name, prompt in (("reviews", ""), ("briefly", "Briefly: ")):
        texts = {f"{prompt}r{n}" for n in range(ROWS)}
        left = texts & (refused(vendor) | texts - set(vendor.said))
        assert ROWS - SAMPLE <= len(left) <= ROWS - SAMPLE + 10
        assert main(["run", name, "--package", "declared", "--day", DAY]) == 0
        assert first_asked(vendor) == left
    assert costs() == vendor.invoice


def test_eval_of_a_single_declaration_compares_its_answers_with_labels(vendor, capsys):
    vendor.weights = {"fits": 1}
    text = evaluate(capsys, "--sample", "20", "--against", "labels.parquet")
    assert len(vendor.asked) == 20
    wrong = {
        n for n in vendor.labels if f"r{n}" in vendor.said
        if any(vendor.labels[n][name] != vendor.said[f"r{n}"][0][1][name] for name in ("topic", "score"))
    }  # fmt: skip
    assert f"{len(wrong)} rows differ from their labels" in text
    assert re.search(rf"all as labelled +{100 * (20 - len(wrong)) / 20:.1f} %", text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["reviews", "--with", "shorter"],
            "declared.it has no lookup 'shorter'; declare a variant",
        ),
        (["reviews", "--with", "other_name"], "its name is 'other'; a variant has the name of"),
        (["reviews", "--with", "no_secret"], "NO_TOKEN"),
        (["reviews", "--with", "no_module:x"], "--with no_module:x: no_module: No module"),
        (["reviews", "--against", "absent.parquet"], "--against: there is no file absent.parquet."),
        (["reviews", "--against", "raw/date=2026-11-01/a.parquet"], "lacks a column of returns"),
        (["loose", "--against", "labels.parquet"], "--against finds a row by input.row_id"),
        (["kept_nowhere"], "kept_nowhere has no ledger, which keeps what an evaluation pays for"),
        (["reviews", "--sample", "0"], "--sample is 0; it must be a whole number, at least 1."),
    ],
)
def test_an_evaluation_that_cannot_work_is_refused_before_any_call(
    vendor, capsys, arguments, message
):
    assert main(["eval", *arguments, "--package", "declared"]) == 2
    assert message in capsys.readouterr().err
    assert not vendor.asked


def test_eval_calls_only_the_evaluated_lookup_and_the_lookups_it_reads(local_days, service, capsys):
    local_days.towns.declare_too("""
def lookup(name, keys, returns):
    return replace(weather, name=name, request="GET /" + name + "/{key}", keys={"key": keys},
        returns=returns + " STRING", paths={returns: "$.town"},
        service=Service(name=name, url=Env("WEATHER_URL"), max_concurrency=4))
first, second = lookup("first", "town", "a"), lookup("second", "a", "b")
third, apart = lookup("third", "b", "c"), lookup("apart", "town", "d")
towns = replace(towns, summaries=[], lookups=[apart, first, second, third])
again = replace(second, request="GET /again/{key}")
""")
    local_days.write_input("2013-01-10", ["ann", "bob"])
    options = ("--package", "declared", "--day", "2013-01-10", "--with", "again")
    assert main(["eval", "towns", *options]) == 0
    called = Counter(path.split("/")[1] for path in service.log)
    assert called == {"first": 2, "second": 2, "again": 2}


@pytest.mark.parametrize("order", ["[paid, weather]", "[weather, paid]"])
def test_eval_of_a_lookup_without_a_price_ignores_the_budget_of_another_lookup(
    local_days, service, monkeypatch, tmp_path, order
):
    monkeypatch.delenv(LIMITS_URL)
    monkeypatch.setenv(STATE_HOME, str(tmp_path / "state"))
    local_days.towns.declare_too(f"""
from tidegate import Budget, Price
vendor = Service(name="vendor", url=Env("WEATHER_URL"), max_concurrency=4,
    prices=[Price("0.01 USD", per="request")])
paid = replace(weather, name="paid", service=vendor, returns="paid DOUBLE", paths={{"paid": "$.temp_c"}})
towns = replace(towns, summaries=[], lookups={order}, budget=Budget("5 USD", per="day"))
""")
    local_days.write_input("2013-01-10", ["ann", "bob"])
    options = ("--package", "declared", "--day", "2013-01-10", "--lookup", "weather")
    assert main(["eval", "towns", *options]) == 0
    assert sorted(service.log) == ["/v1/ann", "/v1/bob"]


def test_rows_are_matched_by_a_row_id_spelled_in_another_case(local_days, capsys):
    local_days.towns.declare_too(
        "towns = replace(towns, summaries=[], input=replace(towns.input, row_id=['Number']))"
    )
    local_days.write_input("2013-01-10", ["ann", "bob"])
    pq.write_table(
        pa.table({"NUMBER": pa.array([1], pa.int32()), "temp_c": [-1.0]}), "right.parquet"
    )
    options = ("--day", "2013-01-10", "--against", "right.parquet", "--json")
    assert main(["eval", "towns", "--package", "declared", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["row"] for row in found["differing"]] == [{"Number": 1}]


def test_differing_rows_with_dates_and_decimals_are_json(local_days, capsys):
    local_days.towns.declare(returns="temp_c DECIMAL(5,2)")
    local_days.towns.declare_too(
        "towns = replace(towns, summaries=[], input=replace(towns.input, row_id=['since']))"
    )
    since = pa.array([dt.date(2013, 1, 1), dt.date(2013, 1, 2)])
    local_days.write_input("2013-01-10", ["ann", "bob"], since=since)
    right = pa.array([Decimal("-1.50")], pa.decimal128(5, 2))
    pq.write_table(pa.table({"since": since[:1], "temp_c": right}), "right.parquet")
    options = ("--day", "2013-01-10", "--against", "right.parquet", "--json")
    assert main(["eval", "towns", "--package", "declared", *options]) == 0
    (differing,) = json.loads(capsys.readouterr().out)["differing"]
    assert (differing["row"], differing["label"]) == ({"since": "2013-01-01"}, {"temp_c": "-1.50"})


@pytest.mark.parametrize("weights", [{"fits": 8, "misfit": 4}, {"fits": 8, "refused": 2}])
def test_eval_counts_a_stored_answer_at_the_cost_of_its_call(vendor, capsys, weights):
    """With the first answer to a repair; and where another row calls, as after a refusal."""
    vendor.weights, paid = weights, {}
    for _ in range(2):
        begun = len(vendor.billed)
        (found,) = json.loads(evaluate(capsys, "--sample", "50", "--json"))["variants"]
        last = Counter()
        for _, review, cost in vendor.billed[begun:]:
            last[review] += cost
        paid |= last
        assert found["cost_of_1000"] == f"{1000 * sum(paid.values()) / 50:.4f} USD"
    assert found["calls"] == len(last) < 50


IN_BATCHES = """
from tidegate import Batch, Enrichment, HttpLookup, Input, Ledger, Output, Price, Service

label = HttpLookup(
    name="label", request="POST /label", keys={{"k": "k"}}, returns="x INT", timeout=20.0,
    service=Service(name="together", url="{url}", max_concurrency=2, prices=Price("0.05 USD", per="request")),
    batch=Batch(max_items=5, max_wait=1.0, item={{"id": "{{id}}", "k": "{{k}}"}}, match="$.id"),
)
reviews = Enrichment(name="reviews", input=Input(path="raw"), lookups=[label], output=Output(path="out"),
                     ledger=Ledger("ledger"))
"""


def test_eval_counts_stored_answers_of_batches_at_the_cost_of_their_calls(project, service, capsys):
    async def answer(request):
        return web.json_response([{**item, "x": 1} for item in await request.json()])

    service.answer = answer
    project.declare(IN_BATCHES.format(url=service.url))
    project.write(DAY, {"k": [f"k{number}" for number in range(10)]})
    asked, stored = (json.loads(evaluate(capsys, "--json"))["variants"][0] for _ in range(2))
    assert (asked["calls"], asked["paid"], stored["calls"]) == (10, "0.10 USD", 0)
    assert asked["cost_of_1000"] == stored["cost_of_1000"] == "10.0000 USD"
