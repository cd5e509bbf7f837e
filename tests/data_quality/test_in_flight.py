"""Calls in flight where tasks that ended left their share to others; each task has a clock of its own."""

from dataclasses import replace

import pytest
from honest_day import WEATHER, declare, honest_day

from data_quality.in_flight import judge
from jobs.schema import ShareGiven

pytestmark = pytest.mark.spark

ROWS = (
    "_partition INT, _input_seq BIGINT, _output_seq BIGINT, _source_file STRING, _source_row BIGINT, "
    "_weather_attempts ARRAY<STRUCT<start: BIGINT, end: BIGINT, throttled: BOOLEAN>>"
)
AHEAD = 1_000_000  # µs, of the clock of task 0


def written(spark, *calls):
    """A row for each call: its task, start and end, by its task's clock."""
    rows = [
        (task, number, number, "file:///a", number, [(start, end, False)])
        for number, (task, start, end) in enumerate(calls)
    ]
    return spark.createDataFrame(rows, ROWS)


@pytest.fixture
def facts(tmp_path):
    """Two tasks with two calls each. The second ends at 50 by its clock; the first has all from 60 on by its own."""
    day = honest_day(tmp_path, event_time=False, sizes=(1, 1))
    day.declared = declare(event_time=False, lookups=(replace(WEATHER, max_concurrency=4),))
    return replace(
        day.facts(),
        shares=((2, 2),),
        shares_given=(ShareGiven(1, (0,), 50), ShareGiven(0, (4,), AHEAD + 60), ShareGiven(0, (0,), AHEAD + 99)),
    )


OF_THE_SECOND = [(1, 10, 30), (1, 20, 50)]


def of_the_first(*starts):
    return [(0, AHEAD + start, AHEAD + end) for start, end in zip(starts, (65, 70, 80, 99), strict=True)]


def held(spark, facts, *calls):
    return judge(written(spark, *calls), facts)["weather__concurrency_held"]


def test_a_task_may_have_what_another_left_from_when_it_was_given(spark, facts):
    found = held(spark, facts, *OF_THE_SECOND, *of_the_first(10, 20, 60, 60))
    assert found.success
    assert found.sentence == "at most 4 in flight in a task, of 4 allowed; 6 attempts"


def test_a_call_before_that_moment_is_one_too_many(spark, facts):
    found = held(spark, facts, *OF_THE_SECOND, *of_the_first(10, 20, 59, 60))
    assert not found.success
    assert "1 attempts began with all slots taken: 1 more in flight in task 0 than allowed" in found.sentence
    (row,) = found.evidence
    assert (row["start_us"], row["in_flight"], row["allowed"]) == (AHEAD + 59, 3, 2)


def test_a_call_after_the_end_of_its_task_is_one_too_many(spark, facts):
    found = held(spark, facts, *OF_THE_SECOND, (1, 51, 52), *of_the_first(10, 20, 60, 60))
    assert not found.success
    assert "1 more in flight in task 1 than allowed" in found.sentence


def test_shares_that_are_too_many_together_are_found_whatever_was_called(spark, facts):
    given = (ShareGiven(0, (4,), AHEAD + 60), ShareGiven(1, (0,), 50))  # given before the other had ended
    found = held(spark, replace(facts, shares_given=given), *OF_THE_SECOND)
    assert not found.success
    assert found.sentence == "the tasks were given 6 calls in flight together, 4 allowed"


def test_what_a_task_said_that_it_needs_no_more_it_has_no_more(spark, facts):
    given = (ShareGiven(1, (1,), 30), ShareGiven(0, (3,), AHEAD + 60), *facts.shares_given)
    facts = replace(facts, shares_given=given)
    assert held(spark, facts, *OF_THE_SECOND, *of_the_first(10, 20, 60, 60)).success
    found = held(spark, facts, *OF_THE_SECOND, (1, 31, 32), *of_the_first(10, 20, 60, 60))
    assert not found.success
    assert "1 attempts began with all slots taken: 1 more in flight in task 1 than allowed" in found.sentence
