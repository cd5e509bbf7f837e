"""A written day as the checks see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from data_quality import lost_rows
from data_quality.history import earlier_days
from data_quality.input_rows import InputRows
from data_quality.run_output import RunOutput
from data_quality.watermarks import Lost
from jobs.schema import DayFacts, DayMetrics, DeclaredFacts, LookupFacts, LookupMetrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# By a lookup's name, what is stored of the answers in the files; None where nothing is. One row for each key and time
# of an answer: schema.key, published_answered_at, published_status, and the answers, as the stored response gives them
# today: ok, miss or error; NONE where there is no response, GONE where that need not mean anything.
Stored = Callable[[str], pa.Table | None]


@dataclass(frozen=True)
class WrittenDay:
    """What a run wrote, what it read, and what else is known of the day."""

    spark: SparkSession  # evaluates the expressions of keys, and the user's own expectations
    facts: DayFacts
    output: RunOutput
    input: InputRows
    metrics: DayMetrics | None = None  # as the run counted them
    stored: Stored | None = None
    earlier: dict[str, DayMetrics] = field(default_factory=dict)  # published days before it

    @classmethod
    def of_run(cls, spark: SparkSession, facts: DayFacts, **more: Any) -> WrittenDay:
        """The files that the run wrote; more: fields."""
        return cls.of(spark, facts, RunOutput.of_files(facts.declared, facts.files), **more)

    @classmethod
    def of_table(cls, spark: SparkSession, facts: DayFacts, table: pa.Table, **more: Any) -> WrittenDay:
        """Any table with the audit columns, whose rows stand in the order in which they were written."""
        return cls.of(spark, facts, RunOutput.of_table(facts.declared, table), **more)

    @classmethod
    def of(cls, spark: SparkSession, facts: DayFacts, output: RunOutput, **more: Any) -> WrittenDay:
        earlier = earlier_days(facts.declared.enrichment, facts.day)
        return cls(spark, facts, output, InputRows(spark, facts), earlier=earlier, **more)

    @property
    def declared(self) -> DeclaredFacts:
        return self.facts.declared

    @cached_property
    def lost(self) -> dict[int, Lost]:
        """By task, the rows that are not in its files; of a day with an event time."""
        assert self.declared.event_time is not None
        return lost_rows.find(self.output, self.input, self.declared.event_time)

    def metrics_of(self, lookup: LookupFacts) -> LookupMetrics | None:
        return next((one for one in self.metrics.lookups if one.name == lookup.name), None) if self.metrics else None
