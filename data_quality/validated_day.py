"""Judges a written day in a validation of Great Expectations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from pyspark.sql import DataFrame

from data_quality.catalogue import CheckSpec
from data_quality.findings import (
    ROWS_OF_EVIDENCE,
    Finding,
    identity_columns,
    names_personal,
    personal_columns,
)
from data_quality.judging import Judging, QualityResult, make_verdict
from data_quality.rows.written_day import WrittenDay
from data_quality.slow_imports import OF_GREAT_EXPECTATIONS, import_when_used, quiet
from jobs.schema.facts import plain
from jobs.schema.personal import HIDDEN
from jobs.schema.records import DeclaredFacts, Verdict
from jobs.storage.parquet_files import rows_of_files
from jobs.storage.urls import for_spark, is_url
from jobs.wording import counted, one_line

import_when_used(*OF_GREAT_EXPECTATIONS)
with quiet():
    from data_quality.suite import find_exception, validate
    from data_quality.users_expectations import is_of_rows, is_query


NO_ROWS = "the day has no rows to judge"
WITHHELD = "its error may repeat a personal value; Spark's log on the run's machine has it"


def judge_validated(specs: Sequence[CheckSpec], day: WrittenDay) -> QualityResult:
    """Judge a written day as `data_quality.day.check` does."""
    judging = Judging([spec.check for spec in specs if spec.check is not None], day)
    empty = {spec.name for spec in specs if is_of_rows(spec)} if not _rows(day) else set()
    with quiet():
        asked, frame = [spec for spec in specs if spec.name not in empty], _frame(day)
        there = () if frame is None else frame.columns
        identity = [name for name in identity_columns(day.declared, there) if name in there]
        results, refused = validate(asked, judging.findings, frame, identity)
    if day.facts.input_files and not day.facts.files and not results["every_row_once"].success:
        refused = {
            spec.name: "no files to check" for spec in specs if spec.name != "every_row_once"
        }
    verdicts = tuple(
        Verdict(spec.name, "not_run", spec.severity, f"not run: {refused[spec.name]}")
        if spec.name in refused
        else Verdict(spec.name, "passed", spec.severity, NO_ROWS, 0, 0, spec.description)
        if spec.name in empty
        else _verdict(spec, results[spec.name], day.declared)
        for spec in specs
    )
    return QualityResult(verdicts, judging.pictures)


def _rows(day: WrittenDay) -> int:
    return day.output.rows + day.facts.rows_kept


def _frame(day: WrittenDay) -> DataFrame | None:
    from pyspark.sql.pandas.types import from_arrow_schema

    from data_quality.expectation_trials import output_types

    if not day.declared.expectations:
        return None
    assert day.spark is not None  # the local engine refuses expectations
    if day.output.table is not None:
        return day.spark.createDataFrame(day.output.table)
    if day.facts.files:
        types = from_arrow_schema(day.output.columns, prefer_timestamp_ntz=True)
        files = day.facts.published_files  # a rule may be about all rows, as that none repeats
        if any(map(is_url, files)):
            count, columns = len(files), day.output.columns.remove_metadata()
            return day.spark.range(0, count, 1, count).mapInArrow(
                rows_of_files(files, columns), types
            )
        return day.spark.read.schema(types).parquet(*map(for_spark, files))
    return day.spark.createDataFrame([], output_types(day.declared, day.input.spark_types))


def _verdict(spec: CheckSpec, result: Any, declared: DeclaredFacts) -> Verdict:
    if broken := find_exception(result.exception_info):
        why = WITHHELD if _is_personal(spec, declared) else broken
        return Verdict(spec.name, "not_run", spec.severity, f"not run: {why}")
    found = result.result
    if "sentence" not in found:
        return _verdict_of_a_stock_expectation(spec, result, declared)
    return make_verdict(
        spec, Finding(**{field.name: found[field.name] for field in fields(Finding)})
    )


def _is_personal(spec: CheckSpec, declared: DeclaredFacts) -> bool:
    """Return whether an expectation names a personal column, even in a condition or a list."""
    return names_personal(str(spec.expectation.arguments if spec.expectation else ""), declared)


def _verdict_of_a_stock_expectation(
    spec: CheckSpec, result: Any, declared: DeclaredFacts
) -> Verdict:
    found, is_personal = result.result, _is_personal(spec, declared)
    unexpected, elements = found.get("unexpected_count") or 0, found.get("element_count") or 0
    rows: Iterable[Mapping[str, Any]] = ()
    if is_query(spec):
        unexpected = found["observed_value"]
        sentence = f"the query finds {counted(unexpected, 'row') if unexpected else 'no row'}"
        # a query can give a personal value any name
        if not personal_columns(declared):
            rows = found.get("details", {}).get("unexpected_rows", ())[:ROWS_OF_EVIDENCE]
    elif "unexpected_count" in found:
        sentence = f"{unexpected:,} of {elements:,} unexpected"
        if not is_personal:
            values = found.get("partial_unexpected_list") or ()
            rows = found.get("partial_unexpected_index_list") or ({"value": at} for at in values)
    else:
        observed = HIDDEN if is_personal else one_line(str(plain(found.get("observed_value"))))
        sentence = f"observed {observed}"
    finding = Finding(bool(result.success), sentence, unexpected, elements, spec.description)
    return make_verdict(spec, finding.with_evidence(map(plain, rows), declared))
