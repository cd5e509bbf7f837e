import re
from pathlib import Path

import pytest
from honest_day import PLANE, WEATHER, declare

from data_quality.catalogue import checks, named_expectations
from data_quality.checks import OF_A_LOOKUP, OF_A_WATERFALL, OF_A_WINDOW, OF_THE_ROW
from data_quality.checks.calls_reconciled import CallsReconciled
from data_quality.rows.written_day import WrittenDay
from data_quality.verdict_store import VERDICTS
from jobs.schema.records import (
    DayFacts,
    DayMetrics,
    ExpectationFacts,
    LookupFacts,
    LookupMetrics,
    RequestMetrics,
)

RULES = [
    "time_limit_held", "timeouts_tolerated", "errors_tolerated", "retries_held", "concurrency_held",
    "answers_in_range", "columns_filled", "answers_match",
]  # fmt: skip


def names(declared) -> list[str]:
    return [spec.name for spec in checks(declared)]


def test_the_checks_of_each_lookup_follow_the_checks_of_the_row():
    assert names(declare("ordered")) == [
        "every_row_once",
        "input_unchanged",
        "outcomes_add_up",
        "order_held",
        "watermarks_not_crossed",
        "late_rows_marked",
        "input_day_complete",
        *(f"weather__{rule}" for rule in RULES),
        "weather__one_answer_per_request",
        *(f"plane__{rule}" for rule in RULES),
    ]


def test_a_check_that_the_declaration_does_not_need_is_left_out():
    untimed = LookupFacts(
        "geo", "function", "geo", (("lat", "DOUBLE"),), timeout=None, max_concurrency=2
    )
    found = names(declare("unordered", event_time=False, lookups=(untimed,)))
    absent = {
        "order_held",
        "watermarks_not_crossed",
        "late_rows_marked",
        "geo__time_limit_held",
        "geo__miss_share_usual",
    }
    assert not absent & set(found)


def test_the_miss_share_and_the_input_day_only_warn_and_other_checks_stop_the_day():
    severities = {spec.name: spec.severity for spec in checks(declare(miss_change=0.05))}
    warns = {name for name, severity in severities.items() if severity == "warn"}
    assert warns == {"input_day_complete", "weather__miss_share_usual", "plane__miss_share_usual"}


def test_answers_over_http_are_checked_for_calls_in_doubt():
    found = names(declare())
    assert "weather__one_answer_per_request" in found  # an HTTP lookup
    assert "plane__one_answer_per_request" not in found  # a database


def test_a_table_with_a_ledger_has_a_check_that_each_answer_is_stored():
    assert "weather__calls_reconciled" not in names(declare())
    found = {spec.name: spec.severity for spec in checks(declare(ledger="data/ledger"))}
    assert (found["weather__calls_reconciled"], found["plane__calls_reconciled"]) == (
        "warn",
        "warn",
    )


def test_a_declaration_may_set_the_severity_of_a_check():
    changed = declare(lookups=(WEATHER,), severities={"weather__timeouts_tolerated": "warn"})
    assert {spec.name: spec.severity for spec in checks(changed)}[
        "weather__timeouts_tolerated"
    ] == "warn"


def test_a_severity_for_an_unknown_check_is_refused_with_the_names_of_checks():
    with pytest.raises(
        ValueError,
        match=(
            r"severities: no check 'every_row_twice'\. The checks "
            r"are: every_row_once, "
        ),
    ):
        checks(declare(severities={"every_row_twice": "warn"}))


def test_each_expectation_of_a_user_has_a_name_of_its_type_and_column():
    declared = declare(
        lookups=(PLANE,),
        expectations=(
            ExpectationFacts("expect_column_values_to_not_be_null", {"column": "distance"}),
            ExpectationFacts(
                "expect_column_values_to_be_between", {"column": "distance", "min_value": 1}, "warn"
            ),
            ExpectationFacts(
                "expect_column_values_to_be_between", {"column": "distance", "max_value": 9}
            ),
            ExpectationFacts("expect_table_row_count_to_be_between", {"min_value": 1}),
        ),
    )
    assert [(spec.name, spec.severity) for spec in checks(declared)][-4:] == [
        ("expect_column_values_to_not_be_null__distance", "error"),
        ("expect_column_values_to_be_between__distance", "warn"),
        ("expect_column_values_to_be_between__distance_2", "error"),
        ("expect_table_row_count_to_be_between", "error"),
    ]


def test_no_two_expectations_share_a_name():
    facts = [
        ExpectationFacts("expect_column_to_exist", {"column": column})
        for column in ["x", "x", "x_2"]
    ]
    found = named_expectations(declare(expectations=tuple(facts)))
    assert len({name for name, _ in found}) == len(found)


def test_the_names_of_expectations_of_many_columns_fit_the_database_of_verdicts():
    columns = [f"a_column_with_a_long_name_{number}" for number in range(30)]
    same_begin = [
        ExpectationFacts("expect_compound_columns_to_be_unique", {"column_list": some})
        for some in (columns, columns[:-1])
    ]
    found = [name for name, _ in named_expectations(declare(expectations=tuple(same_begin)))]
    assert len(set(found)) == 2
    assert max(map(len, found)) <= VERDICTS.c.check_name.type.length


def test_names_of_checks_are_allowed_by_dagster():
    odd = [
        ExpectationFacts("expect_column_to_exist", {"column": column})
        for column in ["an odd.name", "größe"]
    ]
    assert all(re.fullmatch(r"\w+", name, re.ASCII) for name in names(declare(expectations=odd)))


@pytest.mark.parametrize(("kind", "held"), [("http", False), ("coroutine", True)])
def test_only_a_coroutine_may_answer_without_a_request(kind, held):
    lookup = LookupFacts("geo", kind, "geo", (("lat", "DOUBLE"),), timeout=None, max_concurrency=2)
    declared = declare(lookups=(lookup,), ledger="data/ledger")
    facts = DayFacts(declared, "2013-01-10", "r", (), (), "", (), (), "", "")
    counted = LookupMetrics(
        "geo",
        {"ok": 9},
        9,
        0,
        1.0,
        1.0,
        None,
        None,
        stored=9,
        requests=RequestMetrics(9, 0, 0, 9, 5),
    )
    day = WrittenDay.of_run(None, facts, metrics=DayMetrics(9, 9, 0, (counted,)))
    assert CallsReconciled(declared, lookup).finding([9], day).success is held


def test_the_page_about_checks_says_for_each_check_when_it_is_red():
    page = Path("docs/checks.md").read_text()
    owners = {
        "<lookup>__": OF_A_LOOKUP, "<window>__": OF_A_WINDOW, "<waterfall>__": OF_A_WATERFALL,
    }  # fmt: skip
    for kind in (*OF_THE_ROW, *OF_A_WINDOW, *OF_A_LOOKUP, *OF_A_WATERFALL):
        of = next((of for of, kinds in owners.items() if kind in kinds), "")
        name = f"{of}{kind.name}"
        assert f"| `{name}` | {kind.severity} | " in page
