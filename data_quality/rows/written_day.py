"""A written day, the input of the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from data_quality.history import EarlierDay, earlier_days, published_day
from data_quality.rows.input_rows import InputRows, NeedsSpark
from data_quality.rows.run_output import RunOutput
from data_quality.rows.task_rows import TaskRows
from jobs.schema.records import DayFacts, DayMetrics, DeclaredFacts, LookupFacts, LookupMetrics
from jobs.storage.parquet_files import open_parquet
from jobs.wording import one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = TypeVar("P")
T = TypeVar("T")

LONGEST = 300  # characters of an error

# Returns, for a lookup's name and some keys and answer times (with schema.BY_LEDGER), what the
# ledger holds of them; None for a lookup without a ledger. The table has a row for each key and
# answer time: schema.key, published_answered_at, published_status, and the answers that the stored
# response gives today: ok, miss or error; NONE without a response, GONE if the response may be
# missing for a good reason; and schema.BY_RUN.
Stored = Callable[[str, pa.Table], pa.Table | None]

# Returns the values of a Spark SQL expression over rows; None where only Spark can evaluate it.
Evaluate = Callable[[str, pa.Table], pa.Array | None]


class Tasks(Protocol):
    """Runs a function on each part in tasks of a cluster."""

    def run(self, task: Callable[[Any, Any], Any], parts: Sequence[Any]) -> list[Any]: ...


@dataclass(frozen=True)
class WrittenDay:
    """A written day, with what its checks need besides its rows.

    Attributes:
        tasks: Reads the files; None: this process reads them.
        scratch: A folder for what a check gathers of many rows; None keeps it in memory.
    """

    spark: SparkSession | None  # evaluates the user's expectations, and what `evaluate` cannot
    facts: DayFacts
    output: RunOutput
    input: InputRows
    metrics: DayMetrics | None = None  # the run's counts
    stored: Stored | None = None
    evaluate: Evaluate | None = None
    earlier: dict[str, EarlierDay] = field(default_factory=dict)  # published days before it
    published: EarlierDay | None = None  # the same day as readers see it
    tasks: Tasks | None = None
    scratch: str | None = None

    @classmethod
    def of_run(cls, spark: SparkSession | None, facts: DayFacts, **more: Any) -> WrittenDay:
        """Return the day of a run's files; `more` are further fields of the day."""
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
        name = facts.declared.enrichment
        more = {
            "earlier": earlier_days(name, facts.day),
            "published": published_day(name, facts.day, table=facts.declared.table),
            **more,
        }
        return cls(spark, facts, output, InputRows(spark, facts), **more)

    @property
    def declared(self) -> DeclaredFacts:
        return self.facts.declared

    def kept_rows(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield these columns of the rows that are published again unchanged."""
        for file in self.facts.kept_files:
            with open_parquet(file) as opened:
                yield opened.read(list(names))

    def for_tasks(self) -> WrittenDay:
        """Return the day as tasks get it: without Spark."""
        return replace(self, spark=None, tasks=None, input=self.input.for_tasks())

    def run(self, work: Callable[[P], T], parts: Sequence[P]) -> list[T]:
        """Return what `work` returns for each part, from tasks if there are any."""
        if self.tasks is None:
            return [work(part) for part in parts]
        found = self.tasks.run(lambda part, _facts: guarded(partial(work, part)), parts)
        for result in found:
            if isinstance(result, Exception):
                raise result
        return found

    def each(
        self, work: Callable[[TaskRows, WrittenDay], T], reads: Iterable[Callable[[], TaskRows]]
    ) -> list[T]:
        """Return what `work` returns for the rows of each read."""
        day = self if self.tasks is None else self.for_tasks()
        return self.run(lambda read: work(read(), day), list(reads))

    def find_metrics(self, lookup: LookupFacts) -> LookupMetrics | None:
        lookups = () if self.metrics is None else self.metrics.lookups
        return next((metrics for metrics in lookups if metrics.name == lookup.name), None)


def guarded(work: Callable[[], Any]) -> Any:
    """Return the result of `work`, or the error that it raised.

    The error is returned as a plain error with its message: an error of files, the ledger or Spark
    may hold a lock, which cannot be pickled.
    """
    try:
        return work()
    except NeedsSpark as error:
        return error
    except OSError as error:
        return OSError(message(error))
    except Exception as error:  # noqa: BLE001
        return ValueError(message(error))


def message(error: object) -> str:
    return one_line(str(error), LONGEST) or repr(error)
