"""Prefetches keys before the rows, once for the whole run, by the same operators and limits.

An ordinary task shares calls only within its partition. Here the keys of all partitions are called
first; then every row finds its answer, and a single row of a key has the audit of its call.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's usual alias
from pyspark.sql.types import IntegerType, StructField, StructType

from jobs.declare.lookup import Lookup
from jobs.ledger.keyed_file import write_keyed
from jobs.ledger.plan import CallCap, run_of_keys
from jobs.run.engines.engine import Engine
from jobs.run.enrich import write_keys
from jobs.run.keys.claims.task_keys import SharedLookup
from jobs.run.keys.driver_keys import DriverKeys
from jobs.run.keys.hits import Hits, with_index, with_own_answers
from jobs.run.keys.key_texts import ROWS, TASK, TEXT, rows_without
from jobs.run.keys.prefetch_task import PLACE, SharedKeys, run_prefetch
from jobs.schema import columns as schema
from jobs.schema.columns import arrow_schema
from jobs.storage.urls import below
from jobs.task.output_files import TaskResult
from jobs.task.plan import PartitionPlan
from jobs.task.rows.asked_once import AskedFile
from jobs.task.rows.outcome_columns import ANSWER

PASSES = 3  # at most; a further pass is for keys whose answers expired during the pass before
OUTCOME = (
    schema.status,
    schema.source,
    schema.error,
    schema.attempts,
    schema.latency_ms,
    schema.paused_ms,
)


@dataclass(frozen=True)
class KeysToPrefetch:
    """The keys of a lookup that are called before the rows. keys: of `hits.missing`."""

    hits: Hits
    keys: pa.Table

    @property
    def message(self) -> str:
        rest = "" if self.keys.num_rows == self.hits.missing.num_rows else ", the other keys by row"
        return (
            f"distinct keys: {self.keys.num_rows:,} of {pc.sum(self.keys[ROWS]).as_py():,} "
            f"rows{rest}"
        )


@dataclass(frozen=True, kw_only=True)
class Prefetch:
    """Calls keys of a run before its rows.

    Attributes:
        engine: Runs the tasks.
        here: Call in this process, if `is_for_driver` allows it.
        alone: Whether this run found no other run when it began.
        seed: Of this run, which gives it a different order of calls.
        scratch: A folder for the results of the keys; the rows need it.
        sent: Receives what tasks counted; None: an answer in doubt fails its task.
    """

    engine: Engine
    here: bool
    alone: bool
    seed: int
    scratch: str
    sent: list[TaskResult] | None

    def call(
        self, plan: PartitionPlan, first: Mapping[int, KeysToPrefetch], *, certain: bool
    ) -> PartitionPlan:
        """Call for these keys once, all lookups side by side; return the plan for the rows, which
        repeats none of the calls.

        Args:
            plan: The plan of the rows.
            first: The keys, by the lookup's place in the plan.
            certain: Fail a task with answers in doubt, because keys of other lookups are made of
                them.

        Raises:
            RunStopped: As the tasks do. The ledger has the answers so far, after any error.
            RowFailed: As the tasks do.
            LedgerError: As the tasks do.
        """
        places = sorted(first)
        hits = {place: first[place].hits for place in places}
        in_ledgers = {
            place: SharedLookup(hit.plan, hit.lookup, hit.seen)
            for place, hit in hits.items()
            if hit.plan is not None
        }
        run = functools.partial(run_prefetch, SharedKeys(in_ledgers, self.alone, self.seed))
        is_here = self.here and all(isinstance(hit.keys, DriverKeys) for hit in hits.values())
        types, asked = _types(first), list[pa.Table]()
        left = dict(first)
        while left and len(asked) < PASSES:
            keys = _table(left, types) if is_here else _frame(left, types, len(plan.shares[0]))
            found, results = write_keys(
                keys, types, _plan_of_keys(plan, places, number=len(asked)),
                below(self.scratch, f"keys-{places[0]}-{len(asked)}"), _wanted(plan, places),
                engine=self.engine, run=run, refuse_doubt=certain or self.sent is None,
            )  # fmt: skip
            if self.sent is not None:
                self.sent.extend(results)
            asked.append(found)
            plan = replace(plan, cap=_left(plan, results))
            hits |= {place: with_own_answers(hits[place]) for place in left if place in in_ledgers}
            left = _open_again(left, hits, found)
        return _with_answers(plan, hits, pa.concat_tables(asked), self.scratch)


def _wanted(plan: PartitionPlan, places: Sequence[int]) -> list[str]:
    """Return the columns of called keys that the rows need."""
    wanted = [TEXT, PLACE, *schema.SOURCE_IDENTITY, schema.PARTITION]
    for place in places:
        name = plan.lookups[place].name
        wanted += [column(name) for column in (*OUTCOME, schema.published_answered_at)]
        wanted += [answer.name for answer in plan.layout.answers[place]]
    return wanted


def _with_answers(
    plan: PartitionPlan, hits: Mapping[int, Hits], asked: pa.Table, scratch: str
) -> PartitionPlan:
    """Return the plan for the rows, with files of what was called and indexes of the rest."""
    ledgers, files = list(plan.ledgers), list(plan.asked_first or (None,) * len(plan.lookups))
    for place, hit in hits.items():
        called = _called(asked, plan.lookups[place], place)
        path = below(scratch, f"asked-{place}.arrow")
        files[place] = _written(called, plan.lookups[place], hit, path)
        if hit.plan is not None:
            ledgers[place] = with_index(hit.plan, rows_without(hit.answers, "key", called[TEXT]))
    return replace(plan, ledgers=tuple(ledgers), asked_first=tuple(files))


def _open_again(
    first: Mapping[int, KeysToPrefetch], hits: Mapping[int, Hits], asked: pa.Table
) -> dict[int, KeysToPrefetch]:
    """Return the keys that were not called because another run had answered them, but whose
    answers no longer count: they were refreshed meanwhile, or have expired. Otherwise each task
    would call for them.
    """
    found = {}
    for place, asked_first in first.items():
        if hits[place].plan is not None:
            keys = rows_without(
                asked_first.keys, TEXT, asked[TEXT].filter(pc.equal(asked[PLACE], place))
            )
            keys = rows_without(keys, TEXT, hits[place].answers["key"])
            if keys.num_rows:
                found[place] = replace(asked_first, keys=keys)
    return found


def _plan_of_keys(plan: PartitionPlan, places: Sequence[int], *, number: int) -> PartitionPlan:
    """Return the plan of a pass. number: of the pass, from 0."""
    layout = replace(
        plan.layout,
        carried=(TEXT, PLACE, *schema.SOURCE_IDENTITY),
        keys=tuple(plan.layout.keys[place] for place in places),
        order_key=(),
        event_time=None,
        lookups=tuple(plan.layout.lookups[place] for place in places),
        answers=tuple(plan.layout.answers[place] for place in places),
        key_names=tuple(plan.layout.key_names[place] for place in places),
        chained=(),
        wanted=(),
        choices=(),
    )
    cap, of_pass = plan.cap and plan.cap.of_lookups(places), f"pass{number}-" if number else ""
    return replace(
        plan,
        # a row has the key of a single lookup: the keys of the others are null, whatever they
        # declare for null keys
        lookups=tuple(replace(plan.lookups[place], on_null_key="skip") for place in places),
        shares=tuple(plan.shares[place] for place in places),
        # under the run's id, a task of the rows would read these parts as an earlier attempt's
        ledgers=tuple(
            ledger and replace(ledger, run_id=run_of_keys(ledger.run_id), of_pass=of_pass)
            for ledger in (plan.ledgers[place] for place in places)
        ),
        mode="unordered",
        unit="keys",
        reads=None,
        may_call=True,
        given_up=(),
        distinct_keys=(),
        asked_first=(),  # of the rows, at other places
        layout=layout,
        cap=cap,
    )


def _types(first: Mapping[int, KeysToPrefetch]) -> StructType:
    """Return the types of the columns with the keys of all lookups: each lookup has separate
    columns, which are null for the others.
    """
    names = {
        name: asked.hits.keys.types[name].dataType
        for asked in first.values()
        for name in asked.hits.names
    }
    of_any = next(iter(first.values())).hits.keys.types
    types = {name: of_any[name].dataType for name in (TEXT, *schema.SOURCE_IDENTITY)}
    types |= {PLACE: IntegerType()} | names
    return StructType([StructField(name, kind) for name, kind in types.items()])


def _table(first: Mapping[int, KeysToPrefetch], types: StructType) -> pa.Table:
    """Return all keys, if they are in the driver, those of each lookup spread over all: behind the
    keys of a slow one the others would wait.
    """
    tables = []
    for place, asked in first.items():
        assert isinstance(asked.hits.keys, DriverKeys)
        table = asked.hits.keys.table(asked.keys)
        tables.append(table.append_column(PLACE, pa.array([place] * table.num_rows, pa.int32())))
    nothing = arrow_schema(types).empty_table()
    spread = np.concatenate([np.linspace(0, 1, len(table)) for table in tables])
    return (
        pa.concat_tables([nothing, *tables], promote_options="permissive")
        .select(types.names)
        .cast(nothing.schema)
        .take(np.argsort(spread, kind="stable"))
    )


def _frame(first: Mapping[int, KeysToPrefetch], types: StructType, tasks: int) -> DataFrame:
    """Return all keys, each in the partition of the row that will show its call, so that both
    count in the same task's share.
    """
    frames = []
    for place, asked in first.items():
        # possibly with others that need no call
        keys = asked.hits.keys.frame(asked.keys, asked.hits.missing)
        columns = [
            F.col(name)
            if name in keys.columns
            else F.lit(None).cast(types[name].dataType).alias(name)
            for name in types.names
            if name != PLACE
        ]
        frames.append(keys.select(*columns, F.lit(place).alias(PLACE), TASK))
    return _by_task(reduce(DataFrame.unionByName, frames), tasks).drop(TASK)


def _by_task(frame: DataFrame, tasks: int) -> DataFrame:
    if tasks == 1:  # on a small day a shuffle takes as long as everything else in Spark
        return frame.coalesce(1)
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(tasks, F.col(TASK))
    # Spark 4.0 partitions only by a hash: for each task, use the first number that hashes to it
    hashed = frame.sparkSession.range(64 * tasks).select(
        "id", F.pmod(F.hash("id"), F.lit(tasks)).alias(TASK)
    )
    numbers = [
        F.lit(row["id"])
        for row in hashed.groupBy(TASK).agg(F.min("id").alias("id")).sort(TASK).collect()
    ]
    return frame.repartition(tasks, F.get(F.array(*numbers), F.col(TASK)))


def _called(asked: pa.Table, lookup: Lookup, place: int) -> pa.Table:
    """Return the keys of a lookup that were called now; the ledger has the others."""
    called = asked.filter(pc.equal(asked[PLACE], place))
    return called.filter(
        pc.not_equal(pc.fill_null(called[schema.source(lookup.name)], "call"), "ledger")
    )


def _written(called: pa.Table, lookup: Lookup, hits: Hits, path: str) -> AskedFile | None:
    if not called.num_rows:
        return None
    name = lookup.name
    columns = {
        "key": called[TEXT],
        "outcome": called[schema.status(name)],
        "error": called[schema.error(name)],
        "attempts": called[schema.attempts(name)],
        "latency_ms": called[schema.latency_ms(name)],
        "paused_ms": called[schema.paused_ms(name)],
        "source_file": called[schema.SOURCE_FILE],
        "source_row": called[schema.SOURCE_ROW],
        "answered_at": called[schema.published_answered_at(name)]
        .cast(pa.timestamp("us", tz="UTC"))
        .cast(pa.int64()),
    }
    answers = {
        f"{ANSWER}{number}": called[column.name].cast(column.arrow_type)
        for number, column in enumerate(lookup.written)
    }
    write_keyed(path, pa.table(columns | answers))
    return AskedFile(path, hidden=hits.plan is not None and hits.plan.hidden)


def _left(plan: PartitionPlan, results: Sequence[TaskResult]) -> CallCap | None:
    """Return what is left of the cap after these tasks."""
    if plan.cap is None:
        return None
    left = [*plan.cap.parts]
    for result in results:
        left[result.task] = max(0.0, left[result.task] - result.spent)
    return replace(plan.cap, parts=tuple(left))
