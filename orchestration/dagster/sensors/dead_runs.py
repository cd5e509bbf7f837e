"""Ends runs whose process vanished, as when the machine went down, and frees their slots.

Dagster's monitoring notices a killed worker through the server that started it. If that server is
gone too, nothing would notice for hours (max_runtime_seconds), and the slot would stay taken.
"""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import DagsterRunStatus, RunsFilter, multi_or_in_process_executor
from dagster._core.execution.retries import RetryMode
from dagster._core.execution.step_dependency_config import StepDependencyConfig
from dagster._core.executor.base import Executor

STARTED_BY = "tidegate/started_by"  # tag of a run: host:pid:start time of its process
AT_WORK = [
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]


def identity(pid: int) -> str:
    """Return host, process and its start time, because process numbers are reused."""
    try:
        start = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        start = "ended"
    return f"{socket.gethostname()}:{pid}:{start}"


def sign(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    instance.add_run_tags(run.run_id, {STARTED_BY: identity(os.getpid())})


class SigningExecutor(Executor):
    """Signs the run in its worker, before its first step. A step may wait for its slot for hours,
    and a run with a dead worker keeps all others waiting.
    """

    def __init__(self, steps: Executor) -> None:
        self._steps = steps

    @property
    def retries(self) -> RetryMode:
        return self._steps.retries

    @property
    def step_dependency_config(self) -> StepDependencyConfig:
        return self._steps.step_dependency_config

    def execute(self, plan_context: Any, execution_plan: Any) -> Iterator[dg.DagsterEvent]:
        sign(plan_context.instance, plan_context.dagster_run)
        return self._steps.execute(plan_context, execution_plan)


def _signing(context: dg.InitExecutorContext) -> SigningExecutor:
    create = multi_or_in_process_executor.executor_creation_fn
    assert create is not None  # this executor has a creation function
    return SigningExecutor(create(context))


# Dagster's executor, except that each run names its process
signing_executor = dg.ExecutorDefinition(
    name="signing",
    config_schema=multi_or_in_process_executor.config_schema.as_field(),
    requirements=multi_or_in_process_executor.get_requirements,
    executor_creation_fn=_signing,
)


def end_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Fail runs of killed processes of this machine, free their slots, and return their ids.

    Dagster then restarts them once, as it does with every killed run.
    """
    ended = []
    for run in instance.get_runs(RunsFilter(statuses=AT_WORK)):
        started_by = run.tags.get(STARTED_BY, "")
        if not started_by.startswith(f"{socket.gethostname()}:") or _is_inherited(instance, run):
            continue  # on another machine, or not signed yet
        if started_by != identity(int(started_by.split(":")[1])):
            instance.report_run_failed(run, "The process that ran it is gone.")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            ended.append(run.run_id)
    return ended


def _is_inherited(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Return whether the process tag is that of the run it retries: Dagster copies all tags."""
    before = instance.get_run_by_id(run.parent_run_id) if run.parent_run_id else None
    return before is not None and before.tags.get(STARTED_BY) == run.tags.get(STARTED_BY)
