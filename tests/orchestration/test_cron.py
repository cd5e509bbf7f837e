"""Schedules that `check` takes, judged by Dagster, which loads no asset if it cannot read one."""

import random

import pytest
from dagster._utils.schedules import is_valid_cron_schedule

from jobs.declare.values.calendar import is_cron

NAMES = ("", "", "l", "jan mar Dec", "sun Fri sat")
RANGES = ((0, 59), (0, 23), (1, 28), (1, 12), (0, 7))


def drawn_field(draw, place):
    def value():
        names = NAMES[place].split()
        return draw.choice([*names, *(str(draw.randint(*RANGES[place])) for _ in range(3))])

    def item():
        step = draw.choice(["", "", "/5", "/0", f"/{draw.randint(0, 40)}"])
        whole = draw.choice(["*", value(), f"{value()}-{value()}", "-", "?", f"{value()}-"])
        return draw.choice([whole + step, whole + step, f"{value()}#{draw.randint(0, 6)}"])

    return ",".join(item() for _ in range(draw.choice([1, 1, 2])))


def test_dagster_reads_each_schedule_that_a_declaration_may_have():
    draw, taken = random.Random(5), 0
    for _ in range(8000):
        schedule = " ".join(
            drawn_field(draw, at) if draw.random() < 0.4 else "*" for at in range(5)
        )
        if is_cron(schedule):
            taken += 1
            assert is_valid_cron_schedule(schedule), schedule
    assert taken > 1000


@pytest.mark.parametrize("schedule", ["*/0 * * * *", "foo , - # *", "0 2 * * 5#6", "H 2 * * *"])
def test_a_schedule_that_dagster_cannot_read_is_refused(schedule):
    assert not is_cron(schedule)


@pytest.mark.parametrize(
    "schedule", ["15 2 * * *", "*/5 * * * *", "0 6 * JAN-mar mon-fri", "0 2 l * *", "0 2 * * 5#3"]
)
def test_common_cron_schedules_are_accepted(schedule):
    assert is_cron(schedule)
    assert is_valid_cron_schedule(schedule)
