"""A week asked for at once: one run and one Spark, through Dagster's own daemon, queue and worker; one day is bad."""

import contextlib
import datetime as dt
import sqlite3
import subprocess
import time
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterEventType, DagsterRunStatus, RunsFilter
from deltalake import DeltaTable

from demo import data
from tests.support.daemons import BIN, WORKSPACE, daemon

pytestmark = [pytest.mark.spark, pytest.mark.proof]

WEEK = [f"2013-01-{number}" for number in range(10, 17)]
BAD, PLANE = "2013-01-14", "N12163"  # which flies on that day only, three times
FOUND = "3 rows with an answer out of range (seats 1 .. 900) or out of place; first: carrier EV, flight 4636, "


@pytest.fixture(scope="module")
def bad_week(dagster_project):
    """Its planes have one of 9,999 seats, where the declaration has 900 at most."""
    data.prepare(Path("data"), [dt.date.fromisoformat(day) for day in WEEK])
    with contextlib.closing(sqlite3.connect("data/demo/planes.db")) as planes, planes:
        planes.execute("UPDATE planes SET seats = 9999 WHERE tailnum = ?", [PLANE])
    return dagster_project


def test_of_a_week_with_one_bad_day_six_are_published_and_the_bad_one_says_why_in_one_place(bad_week):
    with daemon():
        asked = [*("job", "backfill", "-w", WORKSPACE), *("-j", "flights_enriched_nightly")]
        subprocess.run([BIN / "dagster", *asked, "--partitions", ",".join(WEEK), "--noprompt"], check=True)
        deadline = time.monotonic() + 2_400
        while not (finished := ended_runs(bad_week)):
            assert time.monotonic() < deadline, "the run did not end in time"
            time.sleep(1)
    (run,) = finished
    assert run.status == DagsterRunStatus.FAILURE
    good = [day for day in WEEK if day != BAD]
    assert sorted(partition["date"] for partition in DeltaTable("data/published/flights_enriched").partitions()) == good
    for asset in ("flights_enriched", "delays_by_weather"):
        assert bad_week.instance.get_materialized_partitions(dg.AssetKey(asset)) == set(good)

    (reported,) = (one for one in bad_week.observed(run.run_id) if one["state"] == "held back")
    assert reported["partition"] == BAD
    assert reported["reason"].startswith(FOUND)
    assert "seats 9999" in reported["reason"]
    assert reported["next_step"].startswith("Open the report, mend the cause")
    assert reported["readers_see"].startswith(f"nothing of {BAD}; newest day ")
    (failure,) = bad_week.events(run.run_id, DagsterEventType.STEP_FAILURE)
    named = f"Not published: {BAD}: {reported['reason'].rstrip('.')}."
    assert failure.user_failure_data.description == f"6 of 7 days published. {named}"


def ended_runs(project):
    return project.instance.get_runs(
        RunsFilter(statuses=[DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED])
    )
