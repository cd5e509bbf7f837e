from dataclasses import replace

import pytest
from honest_day import WEATHER, declare

from asyncio_core import exponential_backoff
from data_quality.checks.retries_held import RetriesHeld


@pytest.mark.parametrize(("retries", "multiplier"), [(0, 2.0), (1, 1.0), (9, 2.5), (400, 10.0)])
def test_the_pauses_judged_are_those_that_a_run_makes(retries, multiplier):
    retry = {"initial_delay": 0.5, "max_delay": 30.0, "multiplier": multiplier}
    check = RetriesHeld(declare(), replace(WEATHER, retries=retries, **retry))
    made = exponential_backoff(max_retries=max(1, retries), on_result=bool, **retry)
    pauses = [int(made.delay(attempt) * 1e6) for attempt in range(1, retries + 1)]
    assert check._pauses_us(retries + 1) == pytest.approx(pauses)


def test_more_retries_than_memory_holds_are_judged_by_the_attempts_that_were_made():
    check = RetriesHeld(declare(), replace(WEATHER, retries=2**63))
    assert len(check._pauses_us(3)) == 3
