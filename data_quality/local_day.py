"""Judges a day that the local engine wrote, by the checks of every day, without Spark."""

from data_quality.catalogue import checks
from data_quality.judging import QualityResult, judge
from data_quality.rows.written_day import Evaluate, Stored, WrittenDay
from jobs.schema.records import DayFacts, DayMetrics


def check(
    spark: None,
    facts: DayFacts,
    metrics: DayMetrics | None = None,
    stored: Stored | None = None,
    evaluate: Evaluate | None = None,
    *,
    scratch: str | None = None,
) -> QualityResult:
    """Judge a day as `data_quality.day.check` does, with the same verdicts.

    The local engine refuses the user's expectations, so Great Expectations has nothing to evaluate;
    importing it takes longer than a small day.
    """
    day = WrittenDay.of_run(
        spark, facts, metrics=metrics, stored=stored, evaluate=evaluate, scratch=scratch
    )
    return judge(checks(facts.declared), day)
