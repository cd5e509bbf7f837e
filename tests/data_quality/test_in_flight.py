"""Calls in flight after ended tasks gave up their share; each task has a separate clock."""

import sys
from dataclasses import replace

import pyarrow as pa
import pytest
from honest_day import ATTEMPT, WEATHER, declare, honest_day

from data_quality.checks.concurrency_held import ConcurrencyHeld
from data_quality.judging import Judging
from data_quality.rows.written_day import WrittenDay
from jobs.schema.records import ShareGiven

AHEAD = 1_000_000  # µs, of the clock of task 0


def written(*calls):
    """A row for each call: its task, start and end, by its task's clock."""
    numbers = range(len(calls))
    return pa.table(
        {
            "_partition": [task for task, _, _ in calls],
            "_input_seq": numbers,
            "_output_seq": numbers,
            "_source_file": ["file:///a"] * len(calls),
            "_source_row": numbers,
            "_weather_attempts": pa.array(
                [[{"start": start, "end": end, "throttled": False}] for _, start, end in calls],
                pa.list_(ATTEMPT),
            ),
        }
    )


@pytest.fixture
def facts(tmp_path):
    """Two tasks with two calls each. The second ends at 50 by its clock; the first has all from 60
    on by its own.
    """
    day = honest_day(tmp_path, event_time=False, sizes=(1, 1))
    day.declared = declare(event_time=False, lookups=(replace(WEATHER, max_concurrency=4),))
    return replace(
        day.facts(),
        shares=((2, 2),),
        shares_given=(
            ShareGiven(1, (0,), 50),
            ShareGiven(0, (4,), AHEAD + 60),
            ShareGiven(0, (0,), AHEAD + 99),
        ),
    )


OF_THE_SECOND = [(1, 10, 30), (1, 20, 50)]


def of_the_first(*starts):
    return [
        (0, AHEAD + start, AHEAD + end) for start, end in zip(starts, (65, 70, 80, 99), strict=True)
    ]


def held(facts, *calls):
    check = ConcurrencyHeld(facts.declared, facts.declared.lookups[0])
    day = WrittenDay.of_table(None, facts, written(*calls))
    return Judging([check], day).findings()["weather__concurrency_held"]


def test_a_task_may_use_calls_of_another_task_from_the_moment_that_it_gets_them(facts):
    found = held(facts, *OF_THE_SECOND, *of_the_first(10, 20, 60, 60))
    assert found.success
    assert found.sentence == "at most 4 in flight in a task, of 4 allowed; 6 attempts"


def test_a_call_before_the_task_gets_its_share_exceeds_the_limit(facts):
    found = held(facts, *OF_THE_SECOND, *of_the_first(10, 20, 59, 60))
    assert not found.success
    assert (
        "1 attempts began with all slots in use: 1 more in flight in task 0 than allowed"
        in found.sentence
    )
    (row,) = found.evidence
    assert (row["start_us"], row["in_flight"], row["allowed"]) == (AHEAD + 59, 3, 2)


def test_a_call_after_the_end_of_its_task_exceeds_the_limit(facts):
    found = held(facts, *OF_THE_SECOND, (1, 51, 52), *of_the_first(10, 20, 60, 60))
    assert not found.success
    assert "1 more in flight in task 1 than allowed" in found.sentence


@pytest.mark.parametrize(
    "unlimited", [{"batch_size": sys.maxsize}, {"max_concurrency": 10**30, "batch_size": 2}]
)
def test_calls_of_a_declaration_without_a_real_limit_are_judged(facts, unlimited):
    lookup = replace(facts.declared.lookups[0], **unlimited)
    most = lookup.max_concurrency // 2
    facts = replace(
        facts, declared=replace(facts.declared, lookups=(lookup,)), shares=((most, most),)
    )
    assert held(replace(facts, shares_given=()), *OF_THE_SECOND).success


def test_shares_whose_sum_exceeds_the_limit_are_found_without_any_call(facts):
    # given before the other had ended
    given = (ShareGiven(0, (4,), AHEAD + 60), ShareGiven(1, (0,), 50))
    found = held(replace(facts, shares_given=given), *OF_THE_SECOND)
    assert not found.success
    assert found.sentence == "the tasks had shares of 6 calls in flight together, 4 allowed"


@pytest.mark.parametrize("clock", [0, 240_000_000, -240_000_000])
def test_a_lost_attempt_of_a_task_and_the_next_attempt_are_judged_by_their_shares(facts, clock):
    lost = (ShareGiven(0, (4,), AHEAD + 60, 7), ShareGiven(0, (0,), AHEAD + 60, 7))
    again = (ShareGiven(0, (1,), AHEAD + clock + 5, 8), ShareGiven(0, (3,), AHEAD + clock + 50, 8))
    facts = replace(facts, shares_given=(*facts.shares_given[:1], *lost, *again), attempts=(8, 1))
    facts = replace(facts, shares_given=(ShareGiven(1, (0,), 50, 1), *facts.shares_given[1:]))
    calls = [
        (0, AHEAD + clock + start, AHEAD + clock + end)
        for start, end in ((10, 65), (50, 70), (55, 80))
    ]
    assert held(facts, *OF_THE_SECOND, *calls).success
    found = held(facts, *OF_THE_SECOND, *calls, (0, AHEAD + clock + 49, AHEAD + clock + 50))
    assert not found.success
    assert "1 more in flight in task 0 than allowed" in found.sentence


def test_a_task_may_not_use_calls_that_it_gave_back(facts):
    given = (ShareGiven(1, (1,), 30), ShareGiven(0, (3,), AHEAD + 60), *facts.shares_given)
    facts = replace(facts, shares_given=given)
    assert held(facts, *OF_THE_SECOND, *of_the_first(10, 20, 60, 60)).success
    found = held(facts, *OF_THE_SECOND, (1, 31, 32), *of_the_first(10, 20, 60, 60))
    assert not found.success
    assert (
        "1 attempts began with all slots in use: 1 more in flight in task 1 than allowed"
        in found.sentence
    )
