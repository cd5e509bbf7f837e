"""A vendor whose answers drift, over whole days of the local engine."""

import datetime as dt
import json
from pathlib import Path

from data_quality.report import pages
from jobs.tables.records import run_records

DRIFT = """
firm = vendor("firm", keys={"key": "key"}, returns="employees INT, industry STRING")
firms = table(
    firm,
    tolerance=Tolerance(answer_change=0.05),
    severities={"firm__answers_usual": "error", "input_day_complete": "error"},
)
"""
ANSWERS = 120
FIRST, SECOND = dt.date(2026, 1, 5), dt.date(2026, 1, 13)
THIRD, FOURTH = dt.date(2026, 1, 14), dt.date(2026, 1, 15)


def run_day(firms, day, employees):
    keys = [f"{day}-{number}" for number in range(ANSWERS)]
    industries = ("bank", "food", "tech")
    firms.vendors.answers |= {
        ("firm", key): {"employees": employees(number), "industry": industries[number % 3]}
        for number, key in enumerate(keys)
    }
    firms.write_input({"key": keys}, day=str(day))
    return firms.run(day=str(day))


def copy_record(day, to):
    """Publishes the same figures on another day."""
    record = json.loads(run_records.load("firms", str(day))[-1].to_json())
    record["facts"]["day"] = str(to)
    path = Path(f"data/runs/firms/{to}/copied.json")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))


def verdict(firms, day):
    (found,) = (
        verdict
        for verdict in firms.record(str(day)).verdicts
        if verdict.check == "firm__answers_usual"
    )
    return found


def test_a_vendor_that_changes_its_unit_holds_the_day_back_after_seven_days(firms):
    firms.declare(DRIFT)
    assert run_day(firms, FIRST, lambda number: 10 + number) == 0
    first = verdict(firms, FIRST)
    assert (first.status, first.holds_back) == ("not_run", False)
    assert first.sentence == "not run: 0 earlier days; 7 are needed"
    for back in range(1, 6):
        copy_record(FIRST, SECOND - dt.timedelta(days=back))
    assert run_day(firms, SECOND, lambda number: 11 + number) == 0
    assert verdict(firms, SECOND).sentence == "not run: 6 earlier days; 7 are needed"
    assert run_day(firms, THIRD, lambda number: 11 + number) == 0
    assert verdict(firms, THIRD).status == "passed"
    assert run_day(firms, FOURTH, lambda number: 1000 * number) != 0
    fourth = verdict(firms, FOURTH)
    assert (fourth.status, fourth.holds_back) == ("failed", True)
    assert "of 120 answers by call are at most" in fourth.sentence
    assert "in employees; " in fourth.sentence
    records = run_records.load("firms")
    page = pages.render("firms", records, Path("pages")).read_text()
    assert page.count("Of the answers that came by a call") == 2  # a chart for each column
