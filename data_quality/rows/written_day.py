"""A written day, the input of the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from data_quality.history import earlier_days
from data_quality.rows import lost_rows
from data_quality.rows.input_rows import InputRows
from data_quality.rows.run_output import RunOutput
from data_quality.rows.watermarks import Lost
from jobs.schema.records import DayFacts, DayMetrics, DeclaredFacts, LookupFacts, LookupMetrics
from jobs.storage.parquet_files import open_parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Returns, for a lookup's name, the stored responses of the answers in the files, or None. The table
# has a row for each key and answer time: schema.key, published_answered_at, published_status, and
# the answers that the stored response gives today: ok, miss or error; NONE without a response, GONE
# if the response may be missing for a good reason; and schema.BY_RUN.
Stored = Callable[[str], pa.Table | None]

# Returns the values of a Spark SQL expression over rows; None where only Spark can evaluate it.
Evaluate = Callable[[str, pa.Table], pa.Array | None]


@dataclass(frozen=True)
class WrittenDay:
    spark: SparkSession | None  # evaluates the user's expectations, and what `evaluate` cannot
    facts: DayFacts
    output: RunOutput
    input: InputRows
    metrics: DayMetrics | None = None  # the run's counts
    stored: Stored | None = None
    evaluate: Evaluate | None = None
    earlier: dict[str, DayMetrics] = field(default_factory=dict)  # published days before it

    @classmethod
    def of_run(cls, spark: SparkSession | None, facts: DayFacts, **more: Any) -> WrittenDay:
        """Returns the day of a run's files; more: further fields."""
        return cls.of(spark, facts, RunOutput.of_files(facts.declared, facts.files), **more)

    @classmethod
    def of_table(
        cls, spark: SparkSession | None, facts: DayFacts, table: pa.Table, **more: Any
    ) -> WrittenDay:
        return cls.of(spark, facts, RunOutput.of_table(facts.declared, table), **more)

    @classmethod
    def of(
        cls, spark: SparkSession | None, facts: DayFacts, output: RunOutput, **more: Any
    ) -> WrittenDay:
        earlier = earlier_days(facts.declared.enrichment, facts.day)
        return cls(spark, facts, output, InputRows(spark, facts), earlier=earlier, **more)

    @property
    def declared(self) -> DeclaredFacts:
        return self.facts.declared

    @property
    def rows_kept(self) -> int:
        """Rows published again unchanged; each has an answer, a miss, or a null key."""
        return self.facts.changes.kept if self.facts.changes else 0

    def kept_rows(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yields these columns of the rows that are published again unchanged."""
        for file in self.facts.kept_files:
            with open_parquet(file) as opened:
                yield opened.read(list(names))

    @cached_property
    def lost(self) -> dict[int, Lost]:
        assert self.declared.event_time is not None
        return lost_rows.find(self.output, self.input, self.declared.event_time)

    def find_metrics(self, lookup: LookupFacts) -> LookupMetrics | None:
        return (
            next((one for one in self.metrics.lookups if one.name == lookup.name), None)
            if self.metrics
            else None
        )
