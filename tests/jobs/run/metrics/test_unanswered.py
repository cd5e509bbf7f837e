"""The warning of a day on which a lookup has no answer."""

import pytest

from enrichments.flights import flights
from jobs.run.metrics.run_metrics import unanswered
from jobs.schema.columns import OUTCOMES
from jobs.schema.records import DayMetrics, LookupMetrics

RIGHT = "is the address right, and the request?"


@pytest.mark.parametrize(
    ("outcomes", "sentences"),
    [
        (
            {"skipped": 10},
            ["weather skipped all rows: a key of each is null or its condition does not hold"],
        ),
        ({"miss": 10}, [f"weather has no answer, each row that asked is a miss: {RIGHT}"]),
        (
            {"miss": 9, "skipped": 1},
            [f"weather has no answer, each row that asked is a miss: {RIGHT}"],
        ),
        ({"miss": 9, "ok": 1}, []),
        ({"miss": 9, "error": 1}, []),
        ({}, []),
    ],
)
def test_a_day_on_which_a_lookup_has_no_answer_at_all_warns_with_the_likely_cause(
    outcomes, sentences
):
    counts = dict.fromkeys(OUTCOMES, 0) | outcomes
    weather = LookupMetrics("weather", counts, 0, 0, 0.0, 0.0, None, None)
    assert [*unanswered(DayMetrics(10, 10, 0, (weather,)), flights.facts())] == sentences
