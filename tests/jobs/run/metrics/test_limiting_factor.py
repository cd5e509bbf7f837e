"""What limited a run, told from how its tasks spent their time."""

import asyncio
from dataclasses import replace

import pytest

from asyncio_core import Gate
from asyncio_core.testing import run_virtual
from jobs.run.metrics.limiting_factor import TaskLoad, limited_by, with_limits
from jobs.schema.records import DayMetrics, LookupMetrics
from jobs.task.lookup.circuit_breaker import CircuitBreaker
from tidegate import Outage

SMOOTH = LookupMetrics(
    name="weather", outcomes={}, calls=1000, retried=0, wall_s=100.0, limit_s=99.0,
    latency_p50_ms=50.0, latency_p99_ms=200.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "loop_busy", "limit"),
    [
        ({}, 0.3, "concurrency"),
        ({"retried": 300}, 0.3, "service"),
        ({}, 0.95, "cpu"),
        ({"limit_s": 40.0, "adapted_s": 60.0}, 0.3, "adaptive"),
        ({"limit_s": 40.0}, 0.3, "spark"),
        ({"limit_s": 60.0, "throttled_s": 30.0}, 0.3, "rate"),
        ({"limit_s": 40.0, "shared_s": 30.0}, 0.3, "shared limits"),
        ({"limit_s": 60.0, "throttled_s": 30.0, "down_s": 25.0}, 0.3, "outage"),
        ({"wall_s": 0.11, "limit_s": 0.04, "throttled_s": 0.04}, 0.3, "spark"),
        ({"wall_s": 0.12, "limit_s": 0.11, "shared_s": 0.07}, 0.3, "concurrency"),
        ({"calls": 0, "wall_s": 0.0, "limit_s": 0.0}, None, ""),
    ],
)
def test_the_limiting_factor_names_the_setting_to_change_first(changes, loop_busy, limit):
    assert limited_by(replace(SMOOTH, **changes), loop_busy) == limit


def message(partition, **fields):
    return {"partition": partition, "attempt": 0, "adapted_s": {}, "shared_s": {}} | fields


def test_the_last_reports_of_tasks_become_the_figures():
    tasks = [
        message(
            0,
            calls=5,
            seconds=10.0,
            loop_s=1.0,
            throttled_s={"weather": 4.0},
            down_s={"weather": 0.0},
        ),
        message(
            1,
            calls=5,
            seconds=30.0,
            loop_s=9.0,
            throttled_s={"weather": 0.0},
            down_s={"weather": 60.0},
        ),
        message(
            1,
            calls=0,
            seconds=50.0,
            loop_s=50.0,
            throttled_s={"weather": 0.0},
            down_s={"weather": 0.0},
        ),
    ]
    figures = with_limits(DayMetrics(1, 1, 0, (SMOOTH,)), TaskLoad.of(tasks))
    (weather,) = figures.lookups
    assert (weather.throttled_s, weather.down_s, weather.limited_by) == (2.0, 30.0, "outage")
    assert figures.loop_busy == 0.25
    assert DayMetrics.from_json(figures.to_json()) == figures


def test_a_run_without_reports_of_tasks_is_judged_by_its_files():
    (weather,) = with_limits(DayMetrics(1, 1, 0, (SMOOTH,)), TaskLoad.of([])).lookups
    assert weather.limited_by == "concurrency"


def test_the_time_of_a_closed_gate_counts_for_its_cause():
    async def main():
        loop = asyncio.get_running_loop()
        gate = Gate()
        watch = CircuitBreaker(Outage(after=1), "weather", gate, lambda: int(loop.time() * 1e6))
        watch.throttled("later", 5.0)
        await asyncio.sleep(6)
        assert watch.closed_seconds() == (5.0, 0.0)
        watch.failed("refused")
        await asyncio.sleep(2)
        throttled, down = watch.closed_seconds()
        watch.succeeded()
        gate.open()
        return throttled, down, watch.closed_seconds()

    throttled, down, at_the_end = run_virtual(main())
    assert (throttled, down) == (5.0, 2.0)
    assert at_the_end == (5.0, 2.0)
