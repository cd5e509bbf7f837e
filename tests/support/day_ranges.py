"""Several days in one run of Dagster, as a backfill asks for them."""

import dagster as dg
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
)


def range_tags(first: str, last: str) -> dict[str, str]:
    return {ASSET_PARTITION_RANGE_START_TAG: first, ASSET_PARTITION_RANGE_END_TAG: last}


def run_range(
    definitions: dg.Definitions,
    job: str,
    first: str,
    last: str,
    instance: dg.DagsterInstance,
    **tags: str,
) -> dg.ExecuteInProcessResult:
    return definitions.resolve_job_def(job).execute_in_process(
        tags=range_tags(first, last) | tags, instance=instance, raise_on_error=False
    )


def why_red(run: dg.ExecuteInProcessResult) -> str:
    """The reason of the step that failed; empty for a green run."""
    failures = [
        event.step_failure_data.user_failure_data
        for event in run.all_events
        if event.is_step_failure
    ]
    return "".join(failure.description or "" for failure in failures if failure is not None)
