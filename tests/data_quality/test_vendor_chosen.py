"""What a waterfall's check tells of its vendors reads as a person writes numbers."""

from dataclasses import replace

import pyarrow as pa
import pytest

from data_quality.checks.errors_tolerated import ErrorsTolerated
from data_quality.checks.vendor_chosen import Chosen, VendorChosen, VendorRows
from data_quality.rows.run_output import RunOutput
from data_quality.rows.task_rows import Faults, TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.schema import columns as schema
from jobs.schema.columns import OUTCOMES
from jobs.schema.records import Billed, ChoiceFacts, DayMetrics, LookupMetrics
from tests.data_quality.honest_day import declare, honest_day

CHOICE = ChoiceFacts("firm", ("a",), (("score", "DOUBLE"),), ("true",))


def sentence(tmp_path, parts, cost="0"):
    called = LookupMetrics(
        "a", dict.fromkeys(OUTCOMES, 0), 0, 0, 0.0, 0.0, None, None,
        billed=Billed(1, 0, "request", cost, "USD"),
    )  # fmt: skip
    facts = honest_day(tmp_path, sizes=()).facts()
    day = WrittenDay(None, facts, None, None, metrics=DayMetrics(0, 0, 0, (called,)))
    return VendorChosen(declare(choices=(CHOICE,)), CHOICE).finding(parts, day).sentence


@pytest.mark.parametrize(
    ("cost", "price"),
    [("0.0001", "0.00005 USD"), ("25000", "12,500 USD"), ("0.02", "0.01 USD"), ("1", "0.5 USD")],
)
def test_a_price_per_key_is_printed_without_an_exponent(tmp_path, cost, price):
    part = Chosen(2, Faults(0), {"a": VendorRows(2, 2, 0, 0, 2)})
    assert sentence(tmp_path, [part], cost).endswith(f", {price} per key found")


def test_the_rows_of_a_day_without_files_are_whole_numbers(tmp_path):
    assert sentence(tmp_path, []) == "a 0 of 0 asked, 0 refused, 0 missed"


def test_rows_that_a_vendor_was_not_asked_for_as_it_was_down_are_no_errors_without_a_reason(
    tmp_path,
):
    choice = replace(CHOICE, vendors=("a", "b"), accepted=("true", "true"), spills_outage=True)
    lookup = replace(declare().lookups[0], name="a", choice="firm")
    declared = declare(lookups=(lookup,), choices=(choice,))
    rows = pa.table({
        schema.PARTITION: [0, 0, 0, 0],
        schema.INPUT_SEQ: [0, 1, 2, 3],
        schema.OUTPUT_SEQ: [0, 1, 2, 3],
        schema.SOURCE_FILE: ["f"] * 4,
        schema.SOURCE_ROW: [0, 1, 2, 3],
        schema.status("a"): ["not_asked", "not_asked", "ok", "not_asked"],
        schema.error("a"): pa.nulls(4, pa.string()),
        "firm_status": ["error", "not_asked", "ok", "ok"],
    })  # fmt: skip
    facts = replace(honest_day(tmp_path, sizes=()).facts(), declared=declared)
    day = WrittenDay(None, facts, RunOutput.of_table(declared, rows), None)
    check = ErrorsTolerated(declared, lookup)
    sentence = check.finding([check.summarize(TaskRows(rows), day)], day).sentence
    assert sentence.startswith("not_asked: 2 rows of 4, 50.00%; tolerated 20.00%; first: ")
