"""A vendor that bills answers only: by the requests that a real service answered."""

from tidegate.__main__ import main

DAY, NEXT = "2013-01-10", "2013-01-11"
BY_HIT = """
from tidegate import Price
weather = replace(weather, bill={"hits": 1}, service=replace(
    weather.service, prices=[Price("0.01 USD", per="hit", at_most=1)]))
towns = replace(towns, lookups=[weather])
"""


def test_a_price_per_answer_bills_no_miss_no_error_and_no_refused_access(local_days, capsys):
    local_days.towns.declare_too("from tidegate import Tolerance", LENIENT, *BY_HIT.splitlines())
    local_days.fails = {"alpha": 404, "beta": 422}
    local_days.write_input(DAY, ["alpha", "beta", "gamma", "delta", "gamma"])
    assert local_days.run(DAY) == 0
    assert "; 0.02 USD; version" in capsys.readouterr().out
    local_days.fails = {"epsilon": 401}
    local_days.write_input(NEXT, ["epsilon"])
    assert local_days.run(NEXT, options=["--max-cost", "1 USD"]) == 3
    capsys.readouterr()
    assert main(["costs"]) == 0
    assert "2 hits  0.02 USD" in capsys.readouterr().out


def test_a_redirect_does_not_count_as_unknown_use(local_days, capsys):
    local_days.towns.declare_too("from tidegate import Tolerance", LENIENT, *BY_HIT.splitlines())
    local_days.fails = {"alpha": 302}
    local_days.write_input(DAY, ["alpha", "gamma"])
    assert local_days.run(DAY) == 0
    said = capsys.readouterr().out
    assert "; 0.01 USD; version" in said
    assert "warning" not in said


LENIENT = "towns = replace(towns, tolerance=Tolerance(error=0.6))"
