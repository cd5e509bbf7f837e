"""Judges a run before it is published: the hook of all engines, and of a stream's batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_quality.catalogue import checks
from data_quality.judging import QualityResult, judge
from data_quality.rows.written_day import Evaluate, Stored, Tasks, WrittenDay
from jobs.schema.records import DayFacts, DayMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(
    spark: SparkSession | None,
    facts: DayFacts,
    metrics: DayMetrics | None = None,
    stored: Stored | None = None,
    evaluate: Evaluate | None = None,
    *,
    tasks: Tasks | None = None,
    scratch: str | None = None,
    whole_day: bool = True,
    validate: bool = True,
) -> QualityResult:
    """Judge a run on exactly its files: a verdict per check of the catalogue.

    A check that could not run is `not_run`, with the reason, and does not stop the others. Stores
    no verdict and publish nothing.

    Args:
        spark: Evaluates the user's expectations, and the key expressions that `evaluate` cannot.
        facts: The run and its files.
        metrics: The run's counts, which are checked too.
        stored: Returns the stored answers of a lookup. Without it, answers are compared only with
            each other.
        evaluate: Returns the values of a key expression, without Spark.
        tasks: Read the files; None reads them in the driver.
        scratch: A folder for what is gathered of many rows; None keeps it in memory.
        whole_day: Whether the files are all of the day; others skip the checks of whole days.
        validate: Whether Great Expectations runs the checks, as the user's expectations need.
    """
    day = WrittenDay.of_run(
        spark, facts, metrics=metrics, stored=stored, evaluate=evaluate, tasks=tasks,
        scratch=scratch,
    )  # fmt: skip
    specs = [
        spec
        for spec in checks(facts.declared)
        if whole_day or spec.check is None or not spec.check.whole_day
    ]
    if not validate:
        return judge(specs, day)
    from data_quality.validated_day import judge_validated

    return judge_validated(specs, day)
