"""The data-quality checks in Dagster, made from the catalogue; verdicts are their results."""

import warnings
from collections.abc import Iterator
from typing import Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData as TargetMaterialization,
)
from dagster._core.instance.utils import RUNLESS_RUN_ID
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable as Executions
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from sqlalchemy import ColumnElement

from data_quality import catalogue
from data_quality.next_step import next_step
from jobs.schema.records import DayRecord, Verdict
from orchestration.dagster.declared import Declared

SEVERITIES = {"error": dg.AssetCheckSeverity.ERROR, "warn": dg.AssetCheckSeverity.WARN}
EVIDENCE_ROWS = 10
PLANNED = AssetCheckExecutionRecordStatus.PLANNED.value


def check_specs(declared: Declared) -> list[dg.AssetCheckSpec]:
    """Return a spec per check of the catalogue; checks of severity error block."""
    with warnings.catch_warnings():
        # Without its partition a check has the same state for all days, and a backfill overwrites
        # it day by day.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [
            dg.AssetCheckSpec(
                name=check.name,
                asset=declared.key,
                description=check.description,
                blocking=check.severity == "error",
                partitions_def=declared.days,
            )
            for check in catalogue.checks(declared.facts)
        ]


def judged(declared: Declared, record: DayRecord) -> list[Verdict]:
    """Return the verdicts that are results: of each check that ran, and of a check that holds the
    day back because it did not run.

    Any other check has no result for the day: Dagster knows only passed and failed, and the check
    did neither.
    """
    names = {check.name for check in catalogue.checks(declared.facts)}
    return [
        verdict
        for verdict in record.verdicts
        if verdict.check in names and (verdict.status != "not_run" or verdict.holds_back)
    ]


def outputs_of_checks(context: dg.OpExecutionContext) -> Iterator[dg.Output[None]]:
    """Yield the outputs of a step with logged results: Dagster wants an output per check."""
    for output in context.assets_def.check_specs_by_output_name:
        yield dg.Output(None, output_name=output)


def check_evaluations(
    instance: dg.DagsterInstance, declared: Declared, record: DayRecord, report: str
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the results of a day, for its last materialization."""
    last = last_materialization(instance, declared, record.facts.day)
    # a result must name it to count in Dagster
    target = last and TargetMaterialization(
        storage_id=last.storage_id, run_id=last.run_id, timestamp=last.timestamp
    )
    for verdict in judged(declared, record):
        yield dg.AssetCheckEvaluation(
            asset_key=declared.key,
            check_name=verdict.check,
            passed=verdict.status == "passed",
            severity=SEVERITIES[verdict.severity],
            description=f"{verdict.sentence.rstrip('.')}. Next: {next_step(record)}"
            if verdict.holds_back
            else verdict.sentence,
            metadata=_metadata(verdict, report),
            blocking=verdict.severity == "error",
            partition=record.facts.day,
            target_materialization_data=target,
        )


def last_materialization(
    instance: dg.DagsterInstance, declared: Declared, day: str
) -> dg.EventLogRecord | None:
    of_day = dg.AssetRecordsFilter(declared.key, asset_partitions=[day])
    return next(iter(instance.fetch_materializations(of_day, limit=1).records), None)


def withdraw_planned(
    instance: dg.DagsterInstance, declared: Declared, day: str, run_id: str
) -> None:
    """Withdraw the run's plan to check the day, for the checks without a result from it.

    Dagster shows a check that a failed run had planned as failed, and has no call that withdraws
    the plan. A run does so at its end, and for a killed run the sensor `reports_days`.
    """
    _delete(instance, declared, day, run_id, Executions.c.execution_status == PLANNED)


def withdraw_results_without_run(
    instance: dg.DagsterInstance, declared: Declared, day: str
) -> None:
    """Make room for new results that belong to no run: Dagster keeps a single such result per
    check and day, and refuses the next.
    """
    _delete(instance, declared, day, RUNLESS_RUN_ID)


def _delete(
    instance: dg.DagsterInstance,
    declared: Declared,
    day: str,
    run_id: str,
    *conditions: ColumnElement[bool],
) -> None:
    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)  # home.py knows only SQLite and PostgreSQL
    of_day = (
        Executions.c.asset_key == declared.key.to_string(),
        Executions.c.partition == day,
        Executions.c.run_id == run_id,
    )
    with storage.index_connection() as connection:
        connection.execute(Executions.delete().where(*of_day, *conditions))


def _metadata(verdict: Verdict, report: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"report": dg.MetadataValue.url(report)}
    if verdict.status != "not_run":  # a count of nothing would be a point in Dagster's plots
        metadata |= {
            "unexpected_count": verdict.unexpected_count,
            "element_count": verdict.element_count,
        }
    if verdict.expected:
        metadata["expected"] = verdict.expected
    if verdict.evidence:
        metadata["rows_at_fault"] = dg.MetadataValue.md(evidence_table(verdict))
    return metadata


def evidence_table(verdict: Verdict) -> str:
    columns = list(dict.fromkeys(name for row in verdict.evidence for name in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [
        [_cell(row.get(name)) for name in columns] for row in verdict.evidence[:EVIDENCE_ROWS]
    ]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    more = len(verdict.evidence) - EVIDENCE_ROWS
    return f"{table}\n\n{more} more in the report." if more > 0 else table


def _cell(value: Any) -> str:
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", " ")
