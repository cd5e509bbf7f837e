"""enrich(df, enrichment): the lookups' answers and the audit columns beside every row, in one pass over the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it
from pyspark.sql import types as T  # noqa: N812

from jobs import schema
from jobs.declare.function_lookup import AsyncFunctionLookup
from jobs.errors import DeclarationError
from jobs.run.keyed_rows import written_schema
from jobs.run.planner import plan_tasks
from jobs.run.preflight import check_columns
from jobs.run.run_leases import keepers_of, limits_of
from jobs.run.spark_coordinator import coordinator_of
from jobs.run.spark_facts import setting
from jobs.task.answers_in_doubt import without_doubt
from jobs.task.arrow_batches import BatchLayout
from jobs.task.driver_link import LocalLink
from jobs.task.input_files import read_rows
from jobs.task.link_protocol import PARTITION_OF_FRAME
from jobs.task.output_files import RESULT, TaskFiles
from jobs.task.plan import PartitionPlan
from jobs.task.runner import PartitionRun, run_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.declare.enrichment import Enrichment
    from jobs.run.request_metrics import RequestMetricsCollector
    from jobs.schema import ShareGiven

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]  # what mapInArrow runs


def enrich(df: DataFrame, enrichment: Enrichment) -> DataFrame:
    """The rows of `df`, each once, with answers, published columns and audit columns (jobs.schema).

    Lazy like Spark. Write the result first, then read the written files: a later count(), a sort (Spark samples its
    input first) or a union with itself would repeat the calls, and fails with ComputedBefore instead. Spark's own retry
    of a task or stage does not fail; a recomputation of shuffle output lost after its job does, because it looks like a
    second use. Only a day's run (jobs/run/enrich_day.py) stores answers; with stored answers nothing is refused.

    With spark.speculation both copies of a task call; a lookup with idempotent=False is refused then.

    Raises DeclarationError when the declaration does not fit `df`. A task fails on RunStopped (a service is down or
    denies access) and RowFailed (the policy "fail"). After a cancellation, or a reached limit, its calls stop within
    about half a second of Spark's decision.
    """
    check_columns(enrichment, df.columns)
    check_event_time(enrichment, df)
    return carry_out(*plan_tasks(df, enrichment))


def check_event_time(enrichment: Enrichment, df: DataFrame) -> None:
    if enrichment.event_time is not None:
        field = df.select(f"`{enrichment.event_time.column}`").schema.fields[0]
        if not isinstance(field.dataType, T.TimestampType | T.TimestampNTZType):
            raise DeclarationError(
                f"{enrichment.name}: event_time: {field.name!r} is {field.dataType.simpleString()}; "
                "it must be a timestamp."
            )


def carry_out(prepared: DataFrame, plan: PartitionPlan) -> DataFrame:
    """Run the plan over the prepared rows, one task per partition.

    A user of the DataFrame may compute several partitions in one task, or some never, so each keeps its share of the
    calls in flight.
    """
    plan = _with_address(prepared, plan)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return without_doubt(run_partition(plan, batches))

    return _by_tasks(prepared, task, written_schema(prepared.schema, plan.layout))


@dataclass(frozen=True)
class WrittenRows:
    files: tuple[str, ...]  # absolute paths, in the order of tasks
    shares_given: tuple[ShareGiven, ...]  # to the tasks, of the calls in flight


def write_out(
    prepared: DataFrame, plan: PartitionPlan, folder: str, sent: RequestMetricsCollector | None = None
) -> WrittenRows:
    """Run the plan, with tasks that write Parquet files into `folder`. Other tasks get the calls in flight of an ended
    one.

    Raises the tasks' errors; their files are then in no list.
    """
    plan = _with_address(prepared, plan, divides=True)
    files = TaskFiles.of(folder, written_schema(prepared.schema, plan.layout), distinct_columns(plan.layout))

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = batches if plan.reads is None else read_rows(plan.reads, batches)
        return files.written(run_partition(plan, rows))

    tasks = len(plan.shares[0])
    frame = prepared if plan.reads is None else prepared.sparkSession.range(0, tasks, 1, tasks)
    assert plan.driver is not None
    results = files.taken(_by_tasks(frame, task, RESULT))
    if sent is not None:
        sent.add(results)
    coordinator = coordinator_of(prepared.sparkSession)
    given = coordinator.shares_given(plan.driver)
    coordinator.release(plan.driver)
    return WrittenRows(tuple(result.path for result in results), tuple(given))


def may_run_here(plan: PartitionPlan) -> bool:
    """Whether it is one task that reads its files itself. Not with limits over runs or a cap, because the lost answer
    of a call that may be repeated by now is asked again; nor with a user's function, which may open only where it is
    called.
    """
    is_limited = plan.cap is not None or any(limits_of(plan.lookups, plan.budgets))
    has_function = any(isinstance(lookup, AsyncFunctionLookup) for lookup in plan.lookups)
    return plan.reads is not None and len(plan.shares[0]) == 1 and not is_limited and not has_function


def write_here(
    plan: PartitionPlan,
    folder: str,
    columns: T.StructType,
    report: Callable[[dict[str, Any]], None],
    sent: RequestMetricsCollector,
) -> WrittenRows:
    """Run the one task of the plan in this process, as `write_out` has Spark run it. For few rows without a call: to
    start a worker takes as long as the rest of their run.

    columns: of the prepared rows. report: told of the progress.
    """
    files = TaskFiles.of(folder, written_schema(columns, plan.layout), distinct_columns(plan.layout))
    assert plan.reads is not None
    run = PartitionRun(plan, 0, 0, driver=LocalLink(report))
    rows = read_rows(plan.reads, iter([pa.record_batch({PARTITION_OF_FRAME: pa.array([0], pa.int32())})]))
    results = files.results(row for batch in files.written(run.run(rows)) for row in batch.to_pylist())
    sent.add(results)
    return WrittenRows(tuple(result.path for result in results), ())


def write_keys(
    prepared: DataFrame,
    plan: PartitionPlan,
    folder: str,
    columns: Sequence[str],
    *,
    run: Callable[[PartitionPlan, Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    sent: RequestMetricsCollector | None = None,
) -> pa.Table:
    """Run the plan over prepared keys. Returns these columns of all keys, which the tasks write into `folder`.

    Each task keeps its share of the calls in flight, which is the share of the rows that show its calls. Raises the
    tasks' errors.
    """
    plan = _with_address(prepared, plan)
    types = written_schema(prepared.schema, plan.layout)
    files = TaskFiles.of(folder, T.StructType([types[name] for name in columns]), ())

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = run(plan, batches)
        return files.written(batch.select(columns) for batch in (without_doubt(keys) if sent is None else keys))

    assert plan.driver is not None
    results = files.taken(_by_tasks(prepared, task, RESULT))
    coordinator_of(prepared.sparkSession).release(plan.driver)
    if sent is not None:
        sent.add(results)
    return pa.concat_tables([pq.read_table(result.path, partitioning=None) for result in results])


def distinct_columns(layout: BatchLayout) -> Iterator[str]:
    """The written columns with mostly distinct values."""
    yield from (schema.INPUT_SEQ, schema.OUTPUT_SEQ, schema.SOURCE_ROW)
    for lookup in layout.lookups:
        yield from (schema.published_answered_at(lookup), schema.attempts(lookup), schema.latency_ms(lookup))


def _with_address(prepared: DataFrame, plan: PartitionPlan, *, divides: bool = False) -> PartitionPlan:
    stored = bool(plan.ledgers) and all(ledger is not None for ledger in plan.ledgers)
    tasks = len(plan.shares[0])
    totals = [sum(of_lookup) for of_lookup in plan.shares] if divides and tasks > 1 else ()
    coordinator = coordinator_of(prepared.sparkSession)
    limits = limits_of(plan.lookups, plan.budgets)
    keepers = keepers_of(limits, setting(prepared.sparkSession, "spark.app.name"))
    address = coordinator.register(once=not stored, totals=totals, tasks=tasks, progress=plan.progress, keepers=keepers)
    return replace(plan, driver=address, limits=limits)


def _by_tasks(prepared: DataFrame, task: Task, gives: T.StructType) -> DataFrame:
    return prepared.withColumn(PARTITION_OF_FRAME, F.spark_partition_id()).mapInArrow(task, gives)
