"""Every row of the input exactly once in the files, with what it had there: judged against the input read again."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it

from data_quality.findings import ROWS_OF_EVIDENCE, Finding, missing, plain, rows
from data_quality.run_output import read_input
from data_quality.same_values import UNCHANGED, Same, spelled_once, to_compare
from jobs.schema import INPUT_SEQ, OUTPUT_SEQ, PARTITION, SOURCE_FILE, SOURCE_IDENTITY, SOURCE_ROW, DayFacts

CHECK = "every_row_once"


def judge(frame: DataFrame, facts: DayFacts) -> dict[str, Any]:
    """The findings, and the number of rows of the input.

    The rows of an input file are numbered from 0, so a bitmap per file says whether each is there, and a count beside
    it whether one is there twice; a mark per file, whether all have the values that they had: no join, no shuffle of
    rows. Only a fault is worth the join that names the rows.
    """
    source = read_input(frame.sparkSession, facts)
    why_not = missing(frame, SOURCE_IDENTITY)
    compared = [] if why_not else to_compare(source, frame, facts)
    given = _given(source, compared)
    expected = {file: found["rows"] for file, found in given.items()}
    rows_in = sum(expected.values())
    if why_not:
        return {"rows_in": rows_in, CHECK: Finding.not_run(why_not), UNCHANGED: Finding.not_run(why_not)}
    written = _written(frame, compared)
    rows_out = sum(found["rows"] for found in written.values())
    whole = set(written) <= set(expected) and all(
        file in written
        and written[file]["rows"] == written[file]["different"] == count
        and written[file]["lowest"] == 0
        and written[file]["highest"] == count - 1
        for file, count in expected.items()
    )
    holds = f"{rows(rows_in)} in, {rows(rows_out)} out, each exactly once"
    promise = "each row of the input exactly once, by source file and row number"
    once = Finding(True, holds, 0, rows_in, promise) if whole else _named(frame, source, facts, rows_in, promise)
    found = {"rows_in": rows_in, CHECK: once}
    for same in compared:
        equal = all(file in written and written[file][same.finding] == one[same.finding] for file, one in given.items())
        found[same.finding] = same.found(rows_in, equal=equal, source=source, frame=frame, facts=facts)
    return found


def _given(source: DataFrame, compared: list[Same]) -> dict[str, dict[str, int]]:
    """Per file of the input: rows, and the marks of what is compared."""
    marks = [same.mark(same.given).alias(same.finding) for same in compared]
    files = source.groupBy(SOURCE_FILE).agg(F.count("*").alias("rows"), *marks)
    return {row[0]: row.asDict() for row in files.collect()}


def _written(frame: DataFrame, compared: list[Same]) -> dict[str | None, dict[str, int]]:
    """Per source file: rows, different row numbers, lowest and highest row number, marks."""
    number = F.col(SOURCE_ROW)
    buckets = frame.groupBy(spelled_once().alias(SOURCE_FILE), F.bitmap_bucket_number(number).alias("bucket")).agg(
        F.count("*").alias("rows"),
        F.bitmap_count(F.bitmap_construct_agg(F.bitmap_bit_position(number))).alias("different"),
        F.min(number).alias("lowest"),
        F.max(number).alias("highest"),
        *(same.mark(same.written).alias(same.finding) for same in compared),
    )
    files = buckets.groupBy(SOURCE_FILE).agg(
        F.sum("rows").alias("rows"),
        F.sum("different").alias("different"),
        F.min("lowest").alias("lowest"),
        F.max("highest").alias("highest"),
        *(F.bit_xor(same.finding).alias(same.finding) for same in compared),
    )
    return {row[0]: row.asDict() for row in files.collect()}


def _named(frame: DataFrame, source: DataFrame, facts: DayFacts, rows_in: int, promise: str) -> Finding:
    """The rows that are not there exactly once."""
    row_id = [name for name in facts.declared.row_id if name in source.columns and name not in SOURCE_IDENTITY]
    places = [name for name in (PARTITION, INPUT_SEQ, OUTPUT_SEQ) if name in frame.columns]
    written = frame.groupBy(spelled_once().alias(SOURCE_FILE), SOURCE_ROW).agg(
        F.count("*").alias("times_in_files"), *(F.min(name).alias(name) for name in places)
    )
    given = source.select(*SOURCE_IDENTITY, F.lit(1).alias("times_in_input"), *row_id)
    same = [given[name].eqNullSafe(written[name]) for name in SOURCE_IDENTITY]
    both = given.join(written, same, "full_outer").select(
        *row_id,
        *(F.coalesce(given[name], written[name]).alias(name) for name in SOURCE_IDENTITY),
        F.coalesce("times_in_input", F.lit(0)).alias("times_in_input"),
        F.coalesce("times_in_files", F.lit(0)).alias("times_in_files"),
        *places,
    )
    wrong = both.where("times_in_input <> times_in_files")
    counted = wrong.agg(
        F.count_if(F.expr("times_in_files < times_in_input")).alias("lost"),
        F.count_if(F.expr("times_in_input = 1 and times_in_files > 1")).alias("doubled"),
        F.count_if(F.expr("times_in_input = 0")).alias("foreign"),
    ).collect()[0]
    sample = wrong.orderBy(*SOURCE_IDENTITY).limit(ROWS_OF_EVIDENCE).collect()
    parts = [f"{rows(counted['lost'])} lost", f"{counted['doubled']:,} doubled"]
    if counted["foreign"]:
        parts.append(f"{rows(counted['foreign'])} that the input does not have")
    unexpected = sum(counted)
    finding = Finding(False, ", ".join(parts), unexpected, rows_in, promise)
    return finding.with_evidence(plain(row.asDict(recursive=True)) for row in sample)
