"""A cap on money: what each attempt weighs, how it is divided, and what cannot be compared."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from jobs.errors import DeclarationError
from jobs.ledger.plan import CallCap
from jobs.run.keys import preparation
from jobs.run.keys.key_texts import TASK
from jobs.run.plan.caps import cap_on_calls, cap_on_cost, divided_by_need
from jobs.run.plan.options import RunOptions
from tidegate import HttpLookup, Price, Service, lookup


def priced(*prices):
    service = Service(name="geo", url="http://127.0.0.1:1", max_concurrency=4, prices=prices)
    return HttpLookup(
        name="geo",
        service=service,
        request="GET /{q}",
        keys={"q": "q"},
        returns="a INT",
        timeout=1.0,
    )


@lookup(
    service=Service(name="llm", url="http://llm", max_concurrency=2, prices=[Price("2.50 USD", per="1000000 tokens")]),
    keys={"text": "text"}, returns="label STRING", timeout=5.0,
)  # fmt: skip
async def by_token(row, http):
    return None


def test_a_cap_allows_exactly_the_calls_that_the_money_pays_for():
    cap = cap_on_cost([priced(Price("0.10 USD"))], "0.70 USD", tasks=2)
    assert [int(part / cap.weights[0]) for part in cap.parts] == [3, 3]
    whole = cap_on_cost([priced(Price("0.10 USD"))], "0.70 USD", tasks=1)
    assert int(whole.parts[0] / whole.weights[0]) == 7
    assert whole.message == "max_cost 0.70 USD"


def test_a_cap_on_calls_is_divided_to_the_last_call():
    cap = cap_on_calls([priced(), priced()], 5_001, tasks=2)
    assert (cap.message, cap.parts, cap.weights) == (
        "max_calls 5,001",
        (2501.0, 2500.0),
        (1.0, 1.0),
    )


def test_a_cap_too_small_for_every_task_names_a_sufficient_cap():
    too_little = "which is less than one call for each of the 3 tasks of this run (give at least"
    assert cap_on_calls([priced()], 2, tasks=3).message == f"max_calls 2, {too_little} 3),"
    assert cap_on_calls([priced()], 0, tasks=3).message == "max_calls 0"
    cap = cap_on_cost([priced(Price("0.10 USD"))], "0.29 USD", tasks=3)
    assert cap.message == f"max_cost 0.29 USD, {too_little} 0.30 USD),"
    assert (
        cap_on_cost([priced(Price("0.10 USD"))], "0.30 USD", tasks=3).message == "max_cost 0.30 USD"
    )
    cap = cap_on_cost([priced(Price("0.10 USD"))], "0.09 USD", tasks=1)
    assert cap.message.endswith("which is less than one call (give at least 0.10 USD),")


def test_an_attempt_counts_its_cost_in_a_cap_and_a_free_lookup_counts_nothing():
    cap = cap_on_cost(
        [
            priced(Price("4 USD", per="1000 items")),
            priced(Price("1 USD", per="1000 items")),
            priced(),
        ],
        "1 USD",
        1,
    )
    assert cap.weights == (1.0, 0.25, 0.0)
    assert int(cap.parts[0]) == 250


@pytest.mark.parametrize(
    ("lookups", "most", "message"),
    [
        ([priced(Price("1 EUR"))], "5 USD", "lookup geo is billed in EUR; name that currency"),
        ([priced()], "5 USD", "no lookup has a price in force"),
        (
            [by_token],
            "5 USD",
            "lookup by_token is billed per token, which only an answer reports; declare at_most in",
        ),
        ([priced(Price("1 USD", since="2100-01-01"))], "5 USD", "no lookup has a price in force"),
    ],
)
def test_a_cap_in_another_currency_than_a_price_is_refused(lookups, most, message):
    with pytest.raises(DeclarationError, match=message):
        cap_on_cost(lookups, most, 1)


def test_a_run_accepts_a_single_cap_written_as_money():
    with pytest.raises(
        DeclarationError, match="max-cost is '5'; it must be an amount and a currency"
    ):
        RunOptions(max_cost="5")
    with pytest.raises(DeclarationError, match="a run has one cap"):
        RunOptions(max_cost="5 USD", max_calls=1)


@pytest.mark.parametrize(
    ("parts", "needs", "divided"),
    [
        ((500.0, 500.0), (300.0, 700.0), (300.0, 700.0)),
        ((500.0, 500.0), (100.0, 400.0), (350.0, 650.0)),
        ((20.0, 20.0), (10.0, 50.0), (10.0, 30.0)),
        ((1.0, 1.0, 1.0), (900.0, 900.0, 0.0), (1.5, 1.5, 0.0)),
    ],
)
def test_each_task_gets_what_its_keys_need_or_else_an_equal_part(parts, needs, divided):
    assert divided_by_need(CallCap("max_calls", parts, (1.0,)), needs).parts == divided


def test_the_cap_of_a_replay_is_divided_by_the_keys_of_chosen_letters():
    missing = pa.table({TASK: [0] * 1000 + [1] * 10})
    known = SimpleNamespace(
        hits=SimpleNamespace(missing=missing), first=SimpleNamespace(keys=missing.slice(1000))
    )
    plan = SimpleNamespace(
        cap=CallCap("max_calls 10", (5.0, 5.0), (1.0,)), lookups=[priced()], may_call=False
    )
    divided = preparation._divide_cap(plan, {0: known})
    assert divided.parts == (0.0, 10.0)
