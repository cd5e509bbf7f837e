"""The data-quality checks as Dagster knows them: declared from the catalogue, answered from the verdicts of the run."""

import warnings
from collections.abc import Iterator
from typing import Any

import dagster as dg

from data_quality import catalogue
from jobs.schema import DayRecord, Verdict
from orchestration.declared import Declared

SEVERITIES = {"error": dg.AssetCheckSeverity.ERROR, "warn": dg.AssetCheckSeverity.WARN}
EVIDENCE_ROWS = 10


def check_specs(declared: Declared) -> list[dg.AssetCheckSpec]:
    """One per check of the catalogue; those of severity error block."""
    with warnings.catch_warnings():
        # Without its partition a check has one state for all days, and a backfill overwrites it day by day.
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


def check_results(declared: Declared, record: DayRecord | None, report: str) -> Iterator[dg.AssetCheckResult]:
    """One result for every declared check: what did not run is never shown as passed."""
    verdicts = {verdict.check: verdict for verdict in record.verdicts} if record else {}
    for check in catalogue.checks(declared.facts):
        verdict = verdicts.get(check.name) or Verdict(
            check.name, "not_run", check.severity if record else "warn", "Not run: there are no files to check."
        )
        yield dg.AssetCheckResult(
            asset_key=declared.key,
            check_name=verdict.check,
            passed=verdict.status == "passed",
            severity=SEVERITIES[verdict.severity],
            description=verdict.sentence,
            metadata=_metadata(verdict, report),
        )


def check_evaluations(
    declared: Declared, record: DayRecord | None, report: str, day: str
) -> Iterator[dg.AssetCheckEvaluation]:
    """The same of a day that is not the partition of an asset's step."""
    for result in check_results(declared, record, report):
        assert result.check_name is not None
        yield dg.AssetCheckEvaluation(
            asset_key=declared.key,
            check_name=result.check_name,
            passed=result.passed,
            severity=result.severity,
            description=result.description,
            metadata=result.metadata,
            blocking=result.severity == dg.AssetCheckSeverity.ERROR,
            partition=day,
        )


def _metadata(verdict: Verdict, report: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"status": verdict.status.replace("_", " "), "report": dg.MetadataValue.url(report)}
    if verdict.status != "not_run":  # a count of nothing would be a point in Dagster's plots
        metadata |= {"unexpected_count": verdict.unexpected_count, "element_count": verdict.element_count}
    if verdict.expected:
        metadata["expected"] = verdict.expected
    if verdict.evidence:
        metadata["rows_at_fault"] = dg.MetadataValue.md(evidence_table(verdict))
    return metadata


def evidence_table(verdict: Verdict) -> str:
    """The first rows at fault as a Markdown table."""
    columns = list(dict.fromkeys(name for row in verdict.evidence for name in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[_cell(row.get(name)) for name in columns] for row in verdict.evidence[:EVIDENCE_ROWS]]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    more = len(verdict.evidence) - EVIDENCE_ROWS
    return f"{table}\n\n{more} more in the report." if more > 0 else table


def _cell(value: Any) -> str:
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", " ")
