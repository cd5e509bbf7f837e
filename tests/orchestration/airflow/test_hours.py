"""Airflow's timetables: which day, or hour, each run is of."""

import pytest

from orchestration.airflow import copy_plugin
from tests.support.airflow_home import printed_by

pytestmark = pytest.mark.process
AUTUMN = """
import pendulum
from airflow.serialization.decoders import decode_timetable
from airflow.serialization.encoders import encode_timetable
from airflow.timetables.base import TimeRestriction
from tidegate_airflow import _timetable

entry = {"name": "orders", "schedule": "5 * * * *", "zone": "Europe/Berlin", "every": "hour"}
of_the_scheduler = decode_timetable(encode_timetable(_timetable(entry)))
since = TimeRestriction(earliest=pendulum.datetime(2026, 10, 24, 23, 10), latest=None, catchup=True)
run = None
for _ in range(3):
    run = of_the_scheduler.next_dagrun_info_v2(last_dagrun_info=run, restriction=since)
    print("run", f"{run.run_after:%Y-%m-%dT%H:%M}", run.partition_key)
try:
    _timetable(entry | {"schedule": "15 2 * * *"})
except ValueError as error:
    print("refused", error)
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What a process of Airflow prints for an autumn and for a spring."""
    home = tmp_path_factory.mktemp("hours")
    copy_plugin(home / "plugins")
    return printed_by(AUTUMN + SPRING, home, ("run ", "refused ", "runs "))


@pytest.mark.proof
def test_a_run_covers_the_hour_before_also_when_the_clock_is_put_back(printed):
    lines = [line for line in printed if not line.startswith("runs ")]
    assert lines[:3] == [
        "run 2026-10-25T00:05 2026-10-24T23Z", "run 2026-10-25T01:05 2026-10-25T00Z",
        "run 2026-10-25T02:05 2026-10-25T01Z",
    ]  # fmt: skip
    assert "it must be one time an hour, such as 5 * * * *" in lines[3]


RUNS = """
import pendulum
from airflow.serialization.decoders import decode_timetable
from airflow.serialization.encoders import encode_timetable
from airflow.timetables.base import TimeRestriction
from tidegate_airflow import _arguments, _timetable

declared = {"name": "orders", "zone": "Europe/Berlin", "start": "2026-01-10", "end": "2026-01-12", "description": ""}
declared |= {"publish_by": None, "runbook": None, "modes": ["nightly"], "lookups": ["city"]}
for every, cron, zone in (
    ("hour", "5 * * * *", "Europe/Berlin"), ("hour", "0 * * * *", "Europe/Berlin"),
    ("day", "15 2 * * *", "Europe/Berlin"), ("day", "0 0 * * *", "Europe/Berlin"),
    ("hour", "0 * * * *", "Asia/Kolkata"), ("hour", "45 * * * *", "Asia/Kolkata"),
):
    entry = declared | {"every": every, "schedule": cron, "zone": zone}
    bounds = [pendulum.instance(_arguments(entry, None)[name]) for name in ("start_date", "end_date")]
    restriction, run, keys = TimeRestriction(*bounds, catchup=True), None, []
    timetable = decode_timetable(encode_timetable(_timetable(entry)))
    while run := timetable.next_dagrun_info_v2(last_dagrun_info=run, restriction=restriction):
        keys.append(run.partition_key)
    print("runs", len(keys), keys[0], keys[-1])
"""


@pytest.mark.proof
def test_airflow_schedules_only_the_declared_days_and_hours(tmp_path):
    copy_plugin(tmp_path / "plugins")
    runs = printed_by(RUNS, tmp_path, "runs")
    assert (
        runs[:4]
        == ["runs 48 2026-01-09T23Z 2026-01-11T22Z"] * 2 + ["runs 2 2026-01-10 2026-01-11"] * 2
    )
    # days begin at half past: the first whole hour, and the last that begins before `end`
    assert runs[4:] == ["runs 48 2026-01-09T19Z 2026-01-11T18Z"] * 2


SPRING = """
import pendulum
from airflow.serialization.decoders import decode_timetable
from airflow.serialization.encoders import encode_timetable
from airflow.timetables.base import TimeRestriction
from tidegate_airflow import _timetable

for zone, cron, day in (
    ("Europe/Berlin", "15 2 * * *", "2026-03-29"),
    ("America/New_York", "30 2 * * *", "2026-03-08"),
    ("Africa/Cairo", "0 0 * * *", "2026-04-24"),
    ("Europe/Berlin", "15 2 * * *", "2026-10-25"),
):
    timetable = _timetable({"name": "orders", "schedule": cron, "zone": zone, "every": "day"})
    timetable = decode_timetable(encode_timetable(timetable))
    change = pendulum.parse(day)
    bounds = [change.subtract(days=1, hours=4), change.add(days=2, hours=8)]
    run, runs = None, []
    while run := timetable.next_dagrun_info_v2(
        last_dagrun_info=run, restriction=TimeRestriction(*bounds, catchup=True)
    ):
        of_run = pendulum.parse(run.partition_key)
        end = pendulum.parse(of_run.add(days=1).to_date_string(), tz=zone)
        backfill = timetable.iter_partition_dagrun_infos(
            earliest=of_run.subtract(days=5), latest=of_run.add(hours=23)
        )
        dates = {one.partition_key: one.partition_date for one in backfill}
        is_same = dates[run.partition_key] == run.partition_date
        runs += [(of_run - change).days, end <= run.run_after and is_same]
    print("runs", *runs)
"""


def test_a_day_has_its_run_after_its_end_also_if_the_clock_skips_the_scheduled_time(printed):
    """The date of a run is that of a backfill of its day: Airflow goes on after the last date, and
    would make the runs before a backfill once more.
    """
    runs = [line for line in printed if line.startswith("runs ")]
    assert runs == ["runs -2 True -1 True 0 True 1 True"] * 4
