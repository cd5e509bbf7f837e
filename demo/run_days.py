"""Runs days of a nightly job in this process, a Dagster run per day, until a day fails.

    python -m demo.run_days flights_enriched_nightly 2013-01-10 --outcomes FILE

It is the same job, on the same instance, as the web page and the schedule start. All days share a
process, which saves Dagster's start of some ten seconds per day. FILE gets a JSON line per day.
Exits with 1 when a day failed.
"""

import argparse
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from demo.run_end import RunEnd
from orchestration.dagster.sensors.dead_runs import STARTED_BY, end_dead_runs, identity

LOCATION = "tidegate"  # in workspace.yaml
DEFINITIONS = "orchestration.definitions"
NO_RETRY = {"dagster/max_retries": "0"}  # a person who runs days by hand also repeats them by hand
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
MORE = "Its page in Dagster says more."


def run_days(
    job: dg.JobDefinition,
    days: Iterable[str],
    instance: dg.DagsterInstance,
    tell: Callable[[RunEnd], None],
    config: Mapping[str, Any] | None = None,
) -> bool:
    """Run days until a day fails. Returns True if all succeeded.

    Args:
        job: The nightly job.
        days: The days, in order.
        instance: Dagster's instance.
        tell: Called with the end of each day's run.
        config: The run config of each run, such as its mode.
    """
    end_dead_runs(instance)
    for day in days:
        run_id = str(uuid.uuid4())
        list_under_job(instance, run_id, job.name)
        result = job.execute_in_process(
            run_id=run_id,
            partition_key=day,
            instance=instance,
            raise_on_error=False,
            tags=NO_RETRY | {STARTED_BY: identity(os.getpid())},
            run_config=QUIET | dict(config or {}),
        )
        reason, next_step = _why_not(result)
        tell(RunEnd(day, result.run_id, result.success, reason, next_step))
        if not result.success:
            return False
    return True


def list_under_job(instance: dg.DagsterInstance, run_id: str, job: str) -> None:
    """Make Dagster's pages show the run under its job as soon as it begins, as if the workspace
    had started it. A run in process has no origin, and without an origin the Overview shows no run
    at all.
    """
    location = ManagedGrpcPythonEnvCodeLocationOrigin(
        LoadableTargetOrigin(module_name=DEFINITIONS, working_directory=str(Path.cwd())), LOCATION
    )
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), job)

    def on_event(_event: object) -> None:
        run = instance.get_run_by_id(run_id)
        if run is not None and run.remote_job_origin is None:
            instance.run_storage.replace_job_origin(run, origin)

    instance.add_event_listener(run_id, on_event)


def _why_not(result: dg.ExecuteInProcessResult) -> tuple[str, str]:
    for event in result.all_events:
        if event.is_step_failure:
            failure = event.step_failure_data
            reported = failure.user_failure_data
            if reported is None or reported.description is None:
                return _root_cause(failure.error), MORE
            next_step = reported.metadata.get("next_step")
            return reported.description, str(next_step.value) if next_step else ""
    return ("", "") if result.success else ("The run failed before a step did.", MORE)


def _root_cause(error: Any) -> str:
    """Return the first error: Dagster wraps a step's exception, again after a second try."""
    while error is not None and error.cause is not None:
        error = error.cause
    lines = error.message.strip().splitlines() if error else []
    return lines[0] if lines else "A step failed without a word."


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Run days of a nightly job here and now, until one fails."
    )
    parser.add_argument("job")
    parser.add_argument("days", nargs="+", metavar="day")
    parser.add_argument("--outcomes", type=Path, required=True, help="gets one JSON line per day")
    options = parser.parse_args(arguments)
    from orchestration.definitions import defs

    try:
        job = defs.resolve_job_def(options.job)
        known = job.partitions_def
        for day in options.days:
            if known is None or not known.has_partition_key(day):
                last = f"; its last is {known.get_last_partition_key()}" if known else ""
                parser.error(f"{options.job} has no day {day!r}{last}.")
        outcomes = options.outcomes.open("a", encoding="utf-8")
    except (dg.DagsterInvariantViolationError, OSError) as error:
        parser.error(str(error))
    with outcomes as lines, dg.DagsterInstance.get() as instance:
        published = run_days(
            job,
            options.days,
            instance,
            lambda outcome: print(outcome.to_json(), file=lines, flush=True),
        )
    return 0 if published else 1


if __name__ == "__main__":
    sys.exit(main())
