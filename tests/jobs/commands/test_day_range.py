"""The days and hours of a range, as the options of commands name them."""

import dataclasses
import tracemalloc

import pytest

from enrichments.flights import flights
from jobs.commands.day_range import day_range, require_range
from jobs.declare.values.calendar import is_day
from jobs.errors import DeclarationError

HOURLY = dataclasses.replace(
    flights,
    input=dataclasses.replace(flights.input, every="hour"),
    publish_by=None,
    schedule=None,
    zone="Asia/Kolkata",
)
NAMES = ("--from", "--to")


@pytest.mark.parametrize(
    ("first", "last", "hours", "ends"),
    [
        # Kolkata's day begins at 18:30 UTC
        ("2026-01-01", "2026-01-01", 24, ["2025-12-31T19Z", "2026-01-01T18Z"]),
        ("2026-01-01T05Z", "2026-01-01T07Z", 3, ["2026-01-01T05Z", "2026-01-01T07Z"]),
        ("2026-01-01T05Z", "2026-01-01", 14, ["2026-01-01T05Z", "2026-01-01T18Z"]),
    ],
)
def test_hours_are_given_by_name_or_by_days_of_the_time_zone(first, last, hours, ends):
    found = day_range(HOURLY, first, last, names=NAMES)
    assert (len(found), found[:: len(found) - 1]) == (hours, ends)


def test_the_last_day_of_the_calendar_ends():
    assert day_range(flights, "9999-12-30", "9999-12-31", names=NAMES)[-1] == "9999-12-31"
    assert len(day_range(HOURLY, "9999-12-31", "9999-12-31", names=NAMES)) >= 24


def test_a_range_to_the_last_day_of_the_calendar_is_checked_without_a_list_of_its_hours():
    tracemalloc.start()
    try:
        require_range(HOURLY, "2026-01-01", "9999-12-31", names=NAMES)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20  # bytes, of 70 million hours
    finally:
        tracemalloc.stop()


def test_the_first_day_of_the_calendar_begins_in_each_time_zone():
    eastern = dataclasses.replace(flights, zone="Asia/Tokyo")
    assert day_range(eastern, "0001-01-01", "0001-01-01", names=NAMES) == ["0001-01-01"]


@pytest.mark.parametrize(
    ("enrichment", "first", "last", "message"),
    [
        (
            HOURLY,
            "2026-01-01T07Z",
            "2026-01-01T06Z",
            "--to is 2026-01-01T06Z, before --from, 2026-01-01T07Z; exchange them",
        ),
        (
            HOURLY,
            "2026-01-01T7Z",
            "2026-01-02",
            "--from is '2026-01-01T7Z'; it must be an hour of UTC, such as 2013-01-10T05Z",
        ),
        (
            flights,
            "2026-01-01T07Z",
            "2026-01-02",
            "--from is '2026-01-01T07Z'; it must be a date, such as 2013-01-10",
        ),
    ],
)
def test_an_empty_or_reversed_range_of_days_is_refused(enrichment, first, last, message):
    with pytest.raises(DeclarationError, match=message):
        day_range(enrichment, first, last, names=NAMES)


@pytest.mark.parametrize(
    "text", ["2026-01-01T5Z", "2026-01-01T24Z", "2026-01-01 05", "2026-01-01T05:00Z", "2026-01-01"]
)
def test_an_hour_in_another_format_is_refused(text):
    assert not is_day(text, "hour")
