"""What Dagster shows of checks under Checks, Partitions: read as its page reads it."""

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionResolvedStatus

from data_quality import catalogue
from orchestration.dagster.declared import Declared


def checks_of_days(
    instance: dg.DagsterInstance, declared: Declared, status: str
) -> dict[str, set[str]]:
    """Check -> the days for which it has this status: SUCCEEDED, FAILED, EXECUTION_FAILED,
    IN_PROGRESS or SKIPPED.
    """
    keys = [
        dg.AssetCheckKey(declared.key, check.name) for check in catalogue.checks(declared.facts)
    ]
    states = instance.event_log_storage.get_asset_check_state(
        [(key, declared.days) for key in keys]
    )
    found = {
        key.name: set(
            state.subsets[
                AssetCheckExecutionResolvedStatus(status)
            ].subset_value.get_partition_keys()
        )
        for key, state in states.items()
        if state.subsets
    }
    return {name: days for name, days in found.items() if days}
