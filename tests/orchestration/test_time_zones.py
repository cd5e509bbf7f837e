"""Days in a time zone of one's own: schedule, deadline and partitions follow it, when clocks change
too.
"""

import dataclasses
import datetime as dt
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from enrichments.flights import flights
from jobs.commands.day_range import day_range, has_day
from jobs.errors import DeclarationError
from orchestration.common.deadlines import day_awaited, day_due, deadline, local_time
from orchestration.dagster.declared import Declared
from orchestration.dagster.schedules import day_job, nightly_schedule

BERLIN = dataclasses.replace(
    flights, zone="Europe/Berlin", start="2026-10-01", end=None, publish_by="06:30"
)
TOKYO = dataclasses.replace(BERLIN, zone="Asia/Tokyo")
HOURLY = dataclasses.replace(
    BERLIN,
    input=dataclasses.replace(BERLIN.input, every="hour"),
    publish_by=None,
    schedule="5 * * * *",
    start="2026-03-01",
)


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(f"{text}:00+00:00")


def asked_at(enrichment, moment: str) -> str:
    """The day that the schedule asks for at a moment in UTC."""
    declared = Declared("a:one", enrichment)
    schedule = nightly_schedule(declared, "15 0 * * *", day_job(declared))
    return schedule(dg.build_schedule_context(scheduled_execution_time=utc(moment))).partition_key


def test_the_schedule_requests_the_day_before_in_its_time_zone():
    assert asked_at(BERLIN, "2026-11-19T23:15") == "2026-11-19"  # 00:15 on the 20th in Berlin
    assert asked_at(TOKYO, "2026-11-19T15:15") == "2026-11-19"
    declared = Declared("a:one", BERLIN)
    assert (
        nightly_schedule(declared, "15 0 * * *", day_job(declared)).execution_timezone
        == "Europe/Berlin"
    )


def test_a_day_becomes_a_partition_when_it_ends_in_its_time_zone():
    days = Declared("a:one", TOKYO).days
    assert days.get_partition_keys(current_time=utc("2026-11-20T14:59"))[-1] == "2026-11-19"
    assert days.get_partition_keys(current_time=utc("2026-11-20T15:00"))[-1] == "2026-11-20"


def test_the_nights_of_a_clock_change_are_one_day_each():
    days = Declared("a:one", BERLIN).days.get_partition_keys(current_time=utc("2027-04-01T00:00"))
    assert [day for day in days if "2026-10-24" <= day <= "2026-10-26"] == [
        "2026-10-24",
        "2026-10-25",
        "2026-10-26",
    ]
    assert [day for day in days if "2027-03-27" <= day <= "2027-03-29"] == [
        "2027-03-27",
        "2027-03-28",
        "2027-03-29",
    ]
    hours = {
        day: (deadline(BERLIN, day) - deadline(BERLIN, before)) // dt.timedelta(hours=1)
        for before, day in (
            ("2026-10-23", "2026-10-24"),
            ("2026-10-24", "2026-10-25"),
            ("2027-03-26", "2027-03-27"),
        )
    }
    # each on the morning after
    assert hours == {"2026-10-24": 25, "2026-10-25": 24, "2027-03-27": 23}


def test_days_of_a_clock_change_have_23_and_25_hours():
    declared = Declared("a:one", HOURLY)
    schedule = nightly_schedule(declared, "5 * * * *", day_job(declared))
    partitions = declared.days.get_partition_keys(current_time=utc("2026-11-01T00:00"))
    for day, begin, hours in (
        ("2026-10-25", "2026-10-24T22", 25),
        ("2026-03-29", "2026-03-28T23", 23),
    ):
        moments = [utc(f"{begin}:00") + dt.timedelta(hours=number) for number in range(hours)]
        wanted = [f"{moment:%Y-%m-%dT%HZ}" for moment in moments]
        assert [
            moment.astimezone(ZoneInfo("Europe/Berlin")).date().isoformat() for moment in moments
        ] == [day] * hours
        ticks = [moment + dt.timedelta(hours=1, minutes=5) for moment in moments]
        asked = [
            schedule(dg.build_schedule_context(scheduled_execution_time=tick)) for tick in ticks
        ]
        assert [request.partition_key for request in asked] == wanted
        assert len({request.run_key for request in asked}) == hours
        assert day_range(HOURLY, day, day, names=("--from", "--to")) == wanted
        place = partitions.index(wanted[0])
        assert partitions[place : place + hours] == wanted
    assert len(set(partitions)) == len(partitions)
    assert partitions == sorted(partitions)


def test_named_partitions_are_requested_in_both_repeated_hours_of_a_clock_change():
    named = dataclasses.replace(
        BERLIN, input=dataclasses.replace(BERLIN.input, every=["eu"]), publish_by=None
    )
    declared = Declared("a:one", named)
    schedule = nightly_schedule(declared, "5 * * * *", day_job(declared))
    ticks = [
        utc(moment).astimezone(ZoneInfo("Europe/Berlin"))
        for moment in ("2026-10-25T00:05", "2026-10-25T01:05")
    ]
    assert len({f"{tick:%H:%M}" for tick in ticks}) == 1
    contexts = [dg.build_schedule_context(scheduled_execution_time=tick) for tick in ticks]
    keys = {request.run_key for context in contexts for request in schedule(context)}
    assert len(keys) == len(ticks)


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/St_Johns", "Europe/Berlin"])
def test_hours_of_a_half_hour_time_zone_are_partitions_up_to_the_last_complete_hour(zone):
    table = dataclasses.replace(HOURLY, zone=zone, start="2026-10-01", end="2026-10-03")
    partitions = Declared("a:one", table).days.get_partition_keys(
        current_time=utc("2026-11-01T00:00")
    )
    assert partitions == day_range(table, "2026-10-01", "2026-10-02", names=("--from", "--to"))


def test_an_hour_becomes_a_partition_when_it_ends_in_its_time_zone():
    hours = Declared("a:one", HOURLY).days
    assert hours.get_partition_keys(current_time=utc("2026-10-02T05:59"))[-1] == "2026-10-02T04Z"
    assert hours.get_partition_keys(current_time=utc("2026-10-02T06:00"))[-1] == "2026-10-02T05Z"
    assert hours.get_first_partition_key() == "2026-02-28T23Z"
    assert [has_day(HOURLY, hour) for hour in ("2026-02-28T22Z", "2026-02-28T23Z")] == [False, True]
    assert day_due(HOURLY, utc("2026-10-02T06:00")) is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"schedule": "15 2 * * *"},
            (
                r"schedule is '15 2 \* \* \*'.*its second field must be \*, "
                r"as in '5 \* "
            ),
        ),
        (
            {"publish_by": "06:30"},
            (
                r"publish_by is given, and needs days; leave it out with "
                r'Input\(every="hour"\)'
            ),
        ),
    ],
)
def test_a_declaration_that_needs_whole_days_is_refused_with_hours(fields, message):
    with pytest.raises(DeclarationError, match=message):
        dataclasses.replace(HOURLY, **fields)


def test_a_deadline_keeps_its_local_time_in_summer_and_winter():
    assert deadline(BERLIN, "2026-10-10") == utc("2026-10-11T04:30")
    assert deadline(BERLIN, "2026-11-10") == utc("2026-11-11T05:30")
    assert day_awaited(BERLIN, utc("2026-11-11T05:29")) == "2026-11-10"
    assert day_awaited(BERLIN, utc("2026-11-11T05:30")) is None
    assert day_due(BERLIN, utc("2026-11-11T05:30")) == "2026-11-10"
    assert local_time(BERLIN, utc("2026-11-11T05:30")) == "06:30 Europe/Berlin"


def test_a_deadline_skipped_by_the_clock_is_an_hour_later():
    at_half_past_two = dataclasses.replace(BERLIN, publish_by="02:30")
    assert deadline(at_half_past_two, "2027-03-27") == utc("2027-03-28T01:30")  # 03:30 in Berlin
    assert deadline(at_half_past_two, "2026-10-24") == utc("2026-10-25T00:30")  # the first of two


def test_an_unknown_time_zone_is_refused_with_the_nearest_name():
    with pytest.raises(
        DeclarationError,
        match=(
            r"zone is 'Europe/Berln'; it must name a time zone.* There is "
            r"'Europe/Berlin'"
        ),
    ):
        dataclasses.replace(flights, zone="Europe/Berln")


def test_the_time_zone_changes_no_fingerprint():
    assert (
        dataclasses.replace(flights, zone="UTC").fingerprint
        == flights.fingerprint
        != BERLIN.fingerprint
    )
