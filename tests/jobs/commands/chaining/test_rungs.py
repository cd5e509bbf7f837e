"""What plan expects of each vendor of a waterfall."""

import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest

from jobs.commands.planning.plan import plan
from jobs.run.estimating.rungs import NO_KEY, _expect, _Vendor

PRICED = """
from tidegate import Price, Waterfall

def priced(name, price, **more):
    service = Service(name=name, url=Env("VENDOR_URL"), max_concurrency=8, prices=[Price(price)])
    return vendor(name, service=service, keys={"key": "key"}, returns="text STRING, sure BOOLEAN", **more)

a, b = priced("a", "0.10 USD"), priced("b", "0.01 USD")
firms = table(Waterfall(name="firm", of=[a, b], accept="sure"))
"""


def test_plan_forecasts_calls_cost_and_fill_rate_of_each_vendor_and_the_cheapest_order(
    firms, capsys
):
    firms.declare(PRICED)
    keys = [f"k{number}" for number in range(120)]
    # a has an accepted answer to each second key; b to each second of the others
    firms.vendors.answers = {("a", key): {"text": "A", "sure": key[-1] in "02468"} for key in keys}
    firms.vendors.answers |= {("b", key): {"text": "B", "sure": True} for key in keys[1::4]}
    firms.write_input({"key": keys[:80]}, day="2026-01-05")
    assert firms.run(day="2026-01-05") == 0
    firms.write_input({"key": [*keys[80:], *keys[80:], *keys[:20]]}, day="2026-01-06")
    capsys.readouterr()
    assert firms.run(command="plan", day="2026-01-06") == 0
    # b has no stored answer to the ten repeated keys whose answer of a is accepted: 50 and 20 calls
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "firm   expected, if answers are as the stored ones",
        "  a                  about 40 calls   4.00 USD   fills 50.0% of the rows   from 80 stored answers",
        "  b                  about 20 calls   0.20 USD   fills 25.0% of the rows   from 40 stored answers",
        "  cheapest order     b, a: 2.50 USD instead of 4.20 USD, if their answers do not depend on each other",
    ]
    firms.vendors.calls.clear()
    assert firms.run(day="2026-01-06") == 0
    assert len(firms.vendors.asked("a")) == 40
    assert len(firms.vendors.asked("b")) == 20


def test_plan_expects_no_call_for_a_stored_answer_of_a_later_vendor(firms):
    firms.declare(
        PRICED.replace(
            'b = priced("a", "0.10 USD"), priced("b", "0.01 USD")',
            'b = priced("a", "0.10 USD"), replace(priced("b", "0.01 USD"), keys={"key": "key_b"})',
        ).replace("from tidegate", "from dataclasses import replace\nfrom tidegate", 1)
    )
    keys = [f"k{number}" for number in range(40)]
    firms.write_input({"key": keys, "key_b": keys}, day="2026-01-05")
    assert firms.run(day="2026-01-05") == 0
    firms.write_input({"key": [f"new{key}" for key in keys], "key_b": keys}, day="2026-01-06")
    (found,) = plan(firms.enrichment, ["2026-01-06"]).waterfalls
    assert [rung.calls for rung in found.rungs] == [40, 0]


def test_plan_forecasts_no_vendor_from_few_answers(firms, capsys):
    firms.declare(PRICED)
    firms.write_input({"key": [f"k{number}" for number in range(10)]})
    assert firms.run() == 0
    assert firms.run(command="plan") == 0
    assert "expected, if" not in capsys.readouterr().out


@pytest.mark.parametrize("seed", range(20))
def test_the_forecast_is_the_mean_over_all_answers(seed):
    """Of two vendors, by the enumeration of every combination of the unknown answers."""
    draw = random.Random(seed)
    rows, keys = draw.randint(1, 12), 3
    codes = [[draw.choice([NO_KEY, *range(keys)]) for _ in range(rows)] for _ in "ab"]
    known = [[draw.random() < 0.3 for _ in range(keys)] for _ in "ab"]
    leaves = [[draw.choice([0.0, 1.0]) if is_known else 0.25 for is_known in own] for own in known]
    vendors = [
        _Vendor(
            SimpleNamespace(name=name), np.array(codes[place]), np.array([*leaves[place], 1.0]),
            np.array([*known[place], True]), 20, None,
        )
        for place, name in enumerate("ab")
    ]  # fmt: skip
    calls, fill = np.zeros(2), np.zeros(2)
    for opens in itertools.product([False, True], repeat=2 * keys):
        leaves_open = opens[:keys], opens[keys:]
        chance = 1.0
        for place in range(2):
            for key in range(keys):
                share = leaves[place][key]
                chance *= share if leaves_open[place][key] else 1 - share
        if not chance:
            continue
        for place in range(2):
            asked = set()
            for row in range(rows):
                before = codes[0][row]
                turn = place == 0 or before == NO_KEY or leaves_open[0][before]
                key = codes[place][row]
                if turn and key != NO_KEY:
                    asked |= set() if known[place][key] else {key}
                    fill[place] += chance * (not leaves_open[place][key]) / rows
            calls[place] += chance * len(asked)
    rungs, _ = _expect(vendors, rows)
    assert [rung.calls for rung in rungs] == pytest.approx(calls.tolist())
    assert [rung.fill for rung in rungs] == pytest.approx(fill.tolist())
