"""Finds the distinct keys that days would call for: by Arrow if possible, else by Spark."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.arrow_values import is_unambiguous
from jobs.declare.chains import levels
from jobs.input.dealing import deal
from jobs.input.file_rows import FileRows
from jobs.input.keys.arrow_expressions import COMPARABLE, MOST_ROWS, arrow_keys
from jobs.input.keys.key_values import read_by
from jobs.run.keys.key_texts import ROWS, TEXT, table_texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from jobs.declare.enrichment import Enrichment
    from jobs.declare.lookup import Lookup
    from jobs.input.day import InputDay
    from jobs.ledger.plan import LedgerPlan
    from jobs.task.plan import PartitionPlan

CALLS = "__key_calls"  # long: calls that a key takes over all days, without a stored answer
_DAY = "__key_day"


@dataclass(frozen=True)
class PlannedKeys:
    """The keys of some days.

    Attributes:
        enrichment: The enrichment.
        days: The days.
        spark: Starts a session, or returns the current session; not called if Arrow evaluates the
            keys.
        answered: By the place of a lookup that others read: its ledger, with an index of its stored
            answers.
        unknown: Set by `of`, by place: the rows whose key is made of an answer that is not stored.
    """

    enrichment: Enrichment
    days: Sequence[InputDay]
    spark: Callable[[], SparkSession]
    answered: dict[int, LedgerPlan] = field(default_factory=dict)
    unknown: dict[int, int] = field(default_factory=dict)

    def of(self, number: int, *, has_ledger: bool) -> pa.Table:
        """Return TEXT, ROWS and CALLS of each key of this lookup. A day calls for a key once, or
        by row; a ledger serves later days.
        """
        lookup = self.enrichment.lookups[number]
        by_day = self._by_answers(number) or self._by_arrow(lookup)
        if by_day is None:
            return self._by_spark(number, has_ledger=has_ledger)
        rows = pa.concat_tables(by_day)
        calls = rows[ROWS] if lookup.cache is None else pa.array(np.ones(rows.num_rows, np.int64))
        how = "first" if has_ledger else "sum"
        # so that `first` belongs to a day
        groups = rows.append_column(CALLS, calls).group_by(TEXT, use_threads=False)
        counted = groups.aggregate([(ROWS, "sum"), (CALLS, how)])
        return counted.select([TEXT, f"{ROWS}_sum", f"{CALLS}_{how}"]).rename_columns(
            [TEXT, ROWS, CALLS]
        )

    def _by_answers(self, number: int) -> list[pa.Table] | None:
        """Return TEXT and ROWS of each key of a day; None for a lookup that reads no answer."""
        if not levels(self.enrichment.lookups)[number]:
            return None
        from jobs.run.keys.key_rows import key_batches
        from jobs.run.rows.chain_check import plan_of_answers

        lookup, found, unknown = self.enrichment.lookups[number], list[pa.Table](), 0
        hidden = self.enrichment.has_personal_key(lookup)
        for day in self.days:
            plan = plan_of_answers(self.enrichment, day, self.answered)
            names, keys = plan.layout.keys[number], []
            for _, batch, are_open in key_batches(plan, number):
                unknown += pc.sum(are_open).as_py() or 0
                keys.append(batch.select(names).filter(pc.invert(are_open)))
            types = [(name, values.kind) for name, values in plan.layout.made(number).items()]
            rows = pa.Table.from_batches(keys, pa.schema(types[: len(names)]))
            found.append(_counted(rows, names, hidden=hidden))
        self.unknown[number] = unknown
        return found

    def _by_arrow(self, lookup: Lookup) -> list[pa.Table] | None:
        hidden = self.enrichment.has_personal_key(lookup)
        found = []
        for day in self.days:
            rows = key_rows(day, lookup)
            if rows is None:
                return None
            found.append(_counted(rows, part_names(lookup), hidden=hidden))
        return found

    @functools.cached_property
    def _frames(self) -> list[tuple[DataFrame, PartitionPlan]]:
        from jobs.run.plan.planner import plan_tasks

        return [plan_tasks(day.read(self.spark()), self.enrichment) for day in self.days]

    def _by_spark(self, number: int, *, has_ledger: bool) -> pa.Table:
        self.spark()  # reports a missing Spark better than the imports would
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F  # noqa: N812  # Spark's usual alias

        from jobs.run.keys.day_keys import day_keys

        lookup, names = self.enrichment.lookups[number], self._frames[0][1].layout.keys[number]
        hidden = self.enrichment.has_personal_key(lookup)
        by_day = (
            day_keys(prepared, names, task=F.lit(0), hidden=hidden, seed=0).select(
                TEXT, ROWS, F.lit(place).alias(_DAY)
            )
            for place, (prepared, _) in enumerate(self._frames)
        )
        of_day = F.col(ROWS) if lookup.cache is None else F.lit(1)
        calls = F.min_by(of_day, _DAY) if has_ledger else F.sum(of_day)
        together = functools.reduce(DataFrame.unionAll, by_day).groupBy(TEXT)
        return together.agg(F.sum(ROWS).alias(ROWS), calls.cast("bigint").alias(CALLS)).toArrow()


def key_rows(day: InputDay, lookup: Lookup) -> pa.Table | None:
    """Return the key of each row of a day, a column per part, in an order that is the same for all
    lookups; None if Arrow may see other keys than Spark.

    Raises:
        TidegateError: A file cannot be read.
    """
    values = arrow_keys(lookup, part_names(lookup), day.schema)
    if values is None or day.rows > MOST_ROWS:
        return None
    read = read_by(values.values())
    by_spark = any(column.spark_field for column in day.columns if column.name in read)
    spark_knows_more = by_spark and day.only_in_spark
    if spark_knows_more or any(value.kind not in COMPARABLE for value in values.values()):
        return None
    reads, batches = FileRows(deal(day, 1), day.schema, {}, day.row_bytes).only(values), []
    for batch in reads.of(0):
        if day.has_old_dates and not all(is_unambiguous(batch[name]) for name in reads.types.names):
            return None
        batches.append(batch.select([*values]))
    types = pa.schema([(name, value.kind) for name, value in values.items()])
    return pa.Table.from_batches(batches, types)


def part_names(lookup: Lookup) -> list[str]:
    """Return the columns of `key_rows` with the parts of the key."""
    return [f"__part_{place}" for place in range(len(lookup.keys))]


def _counted(keys: pa.Table, parts: Sequence[str], *, hidden: bool) -> pa.Table:
    """Return TEXT and ROWS of each key."""
    once = keys.drop_null().group_by(list(parts)).aggregate([([], "count_all")])
    return pa.table([table_texts(once, parts, hidden=hidden), once["count_all"]], [TEXT, ROWS])
