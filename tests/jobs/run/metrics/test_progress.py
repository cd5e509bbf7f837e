"""What the driver tells while keys are asked first, and then the rows: nothing that was called is
forgotten.
"""

import time
from dataclasses import replace

import pytest

from jobs.limits.lease_keeper import LeaseKeeper
from jobs.limits.limits_plan import ServiceLimits
from jobs.run.coordinator.driver_coordinator import DriverCoordinator
from jobs.run.metrics.progress import RunProgress
from jobs.run.terminal import progress_line
from jobs.task.link.progress import TaskProgress
from jobs.task.runner import PartitionRun
from tests.jobs.task.link.test_driver_link import Run, connected
from tests.jobs.task.test_runner import Function, batch, lookup, plan

pytestmark = pytest.mark.process


@pytest.fixture
def driver():
    return DriverCoordinator("127.0.0.1", "127.0.0.1", lambda _: True)


@pytest.fixture
def to_driver(driver):
    """What a task of a frame says, over a link of its own."""
    links = []

    def of(progress):
        address = driver.register(progress=progress.number)
        links.append(connected(address, Run(), partition=0, stage=1))
        return links[-1]

    yield of
    for link in links:
        link.close()


def test_calls_of_the_prefetch_stay_counted_while_rows_start_at_zero(driver, to_driver, wait_for):
    with RunProgress(driver, 1000, lambda _: None) as progress:
        task = to_driver(progress)
        progress.prefetching_keys(50)
        keys = TaskProgress(0, 0, rows=50, calls=52, retries=2, unit="keys")
        keys.answered([100_000])
        task.send_progress(keys)
        wait_for(lambda: progress.figures()["calls"] == 52)
        assert {name: progress.figures()[name] for name in ("rows", "rows_total", "unit")} == {
            "rows": 50, "rows_total": 50, "unit": "keys",
        }  # fmt: skip
        progress.prefetching_keys(None)
        # a word of the phase before that comes late
        task.send_progress(TaskProgress(1, 0, rows=30, unit="keys"))
        task.send_progress(TaskProgress(0, 0, rows=400))
        wait_for(lambda: progress.figures()["rows"] == 400)
        figures = progress.figures()
        assert (figures["rows_total"], figures["unit"]) == (1000, "rows")
        assert (figures["calls"], figures["retries"]) == (52, 2)
        assert figures["p50_ms"] is not None


def test_the_last_report_of_a_task_counts_all_its_rows(driver, to_driver, wait_for):
    reported = []
    with RunProgress(driver, 30, reported.append) as progress:
        # ends before the first word is due
        quick = replace(plan(lookup(Function())), progress=progress.number)
        rows = PartitionRun(quick, 0, 0, driver=to_driver(progress)).run(iter([batch(0, 30)]))
        assert sum(found.num_rows for found in rows) == 30
        wait_for(lambda: progress.figures()["rows"] == 30)
    assert reported[-1]["rows"] == 30


def test_figures_say_why_no_call_may_start(driver, to_driver, wait_for):
    with RunProgress(driver, 30, lambda _: None) as progress:
        keeper = LeaseKeeper(ServiceLimits("geo", {}, 5.0), "a", "a run", None, time.monotonic)
        driver.register(progress=progress.number, keepers={"geo": keeper})
        assert progress.figures()["waits"] == ""
        keeper.waits = "waits for calls of a killed run to end, 9 s"
        assert progress_line(progress.figures()).endswith(
            "0 timeouts, waits for calls of a killed run to end, 9 s"
        )
        keeper.waits = ""
        keeper.close_gate(60.0, "503 Service Unavailable")
        assert progress.figures()["waits"] == "geo is paused: 503 Service Unavailable"
