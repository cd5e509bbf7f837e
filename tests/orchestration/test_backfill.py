"""A week asked for at once: one run per day, through Dagster's own daemon, queue and workers; one
day is bad.
"""

import contextlib
import datetime as dt
import itertools
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from dagster import DagsterEventType, DagsterRunStatus, RunsFilter
from deltalake import DeltaTable

from demo import data
from tests.support.daemons import BIN, WORKSPACE, daemon

pytestmark = [pytest.mark.spark, pytest.mark.proof]

WEEK = [f"2013-01-{number}" for number in range(10, 17)]
BAD, PLANE = "2013-01-14", "N12163"  # which flies on that day only, three times
FOUND = (
    "3 rows with an answer out of range (seats 1 .. 900) or out of place; first: carrier EV, "
    "flight 4636, "
)


@pytest.fixture(scope="module")
def bad_week(dagster_project):
    """Its planes have one of 9,999 seats, where the declaration has 900 at most."""
    data.prepare(Path("data"), [dt.date.fromisoformat(day) for day in WEEK])
    with contextlib.closing(sqlite3.connect("data/demo/planes.db")) as planes, planes:
        planes.execute("UPDATE planes SET seats = 9999 WHERE tailnum = ?", [PLANE])
    return dagster_project


def test_in_a_week_with_a_bad_day_six_days_are_published_and_the_bad_day_says_why(
    bad_week,
):
    with daemon():
        asked = [*("job", "backfill", "-w", WORKSPACE), *("-j", "flights_enriched_nightly")]
        subprocess.run(
            [BIN / "dagster", *asked, "--partitions", ",".join(WEEK), "--noprompt"], check=True
        )
        deadline = time.monotonic() + 2_400
        while len(finished := ended_runs(bad_week)) < len(WEEK):
            assert time.monotonic() < deadline, f"{len(finished)} of {len(WEEK)} runs ended in time"
            time.sleep(1)
    good = [day for day in WEEK if day != BAD]
    assert {run.tags["dagster/partition"]: run.status for run in finished} == {
        **dict.fromkeys(good, DagsterRunStatus.SUCCESS),
        BAD: DagsterRunStatus.FAILURE,
    }
    assert (
        sorted(
            partition["date"]
            for partition in DeltaTable("data/published/flights_enriched").partitions()
        )
        == good
    )

    (red,) = (run for run in finished if run.status == DagsterRunStatus.FAILURE)
    # on the asset's page; the run's page says the same
    reported = bad_week.observed(red.run_id)[-1]
    assert reported["state"] == "held back"
    assert reported["reason"].startswith(f"plane__answers_in_range: {FOUND}")
    assert "seats 9999" in reported["reason"]
    assert reported["next_step"].startswith("Fix the cause. The ledger keeps wrong answers")
    assert reported["readers_see"].startswith(f"nothing of {BAD}; newest day ")
    (failure,) = bad_week.events(red.run_id, DagsterEventType.STEP_FAILURE)
    assert failure.user_failure_data.description == f"Not published: {reported['reason']}"
    assert failure.user_failure_data.metadata["next_step"].value == reported["next_step"]

    times = sorted(spark_times(bad_week, run.run_id) for run in finished)
    assert all(ended <= started for (_, ended), (started, _) in itertools.pairwise(times))


def ended_runs(project):
    return project.instance.get_runs(
        RunsFilter(
            statuses=[DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]
        )
    )


def spark_times(project, run_id: str) -> tuple[float, float]:
    (step,) = (
        step
        for step in project.instance.get_run_step_stats(run_id)
        if step.step_key == "flights_enriched"
    )
    return step.start_time, step.end_time
