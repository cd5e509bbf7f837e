"""Days asked for together: one run each, through Dagster's own daemon, queue and workers."""

import itertools
import subprocess
import time

import pytest
from dagster import DagsterRunStatus, RunsFilter
from deltalake import DeltaTable

from tests.orchestration.daemons import BIN, WORKSPACE, daemon

pytestmark = [pytest.mark.spark, pytest.mark.proof]

DAYS = ["2013-01-10", "2013-01-11", "2013-01-12"]


def test_a_backfill_runs_each_day_by_itself_and_one_spark_at_a_time(dagster_project):
    with daemon():
        asked = [*("job", "backfill", "-w", WORKSPACE), *("-j", "flights_enriched_nightly")]
        subprocess.run([BIN / "dagster", *asked, "--partitions", ",".join(DAYS), "--noprompt"], check=True)
        deadline = time.monotonic() + 1_200
        while len(finished := ended_runs(dagster_project)) < len(DAYS):
            assert time.monotonic() < deadline, f"{len(finished)} of {len(DAYS)} runs ended in time"
            time.sleep(1)
    assert {run.tags["dagster/partition"]: run.status for run in finished} == dict.fromkeys(
        DAYS, DagsterRunStatus.SUCCESS
    )
    assert sorted(partition["date"] for partition in DeltaTable("data/published/flights_enriched").partitions()) == DAYS
    times = sorted(spark_times(dagster_project, run.run_id) for run in finished)
    assert all(ended <= started for (_, ended), (started, _) in itertools.pairwise(times))


def ended_runs(project):
    return project.instance.get_runs(
        RunsFilter(statuses=[DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED])
    )


def spark_times(project, run_id: str) -> tuple[float, float]:
    (step,) = (step for step in project.instance.get_run_step_stats(run_id) if step.step_key == "flights_enriched")
    return step.start_time, step.end_time
