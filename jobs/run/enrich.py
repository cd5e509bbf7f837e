"""enrich(df, enrichment): the lookups' answers and the audit columns beside every row, in one pass over the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it
from pyspark.sql import types as T  # noqa: N812

from jobs import schema
from jobs.clients import request_counter
from jobs.errors import DeclarationError, TidegateError
from jobs.run.coordinator import Given, coordinator_of
from jobs.run.keyed_rows import written_schema
from jobs.run.planner import plan_tasks
from jobs.run.preflight import check_columns
from jobs.run.run_leases import limits_of, run_leases
from jobs.task.arrow_batches import BatchLayout
from jobs.task.driver_link import PARTITION_OF_FRAME
from jobs.task.output_files import NAMED, TaskFiles
from jobs.task.plan import PartitionPlan
from jobs.task.runner import run_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.declare.enrichment import Enrichment
    from jobs.limits.lease_keeper import LeaseKeeper
    from jobs.run.request_metrics import RequestMetricsCollector

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]  # what mapInArrow runs


def enrich(df: DataFrame, enrichment: Enrichment) -> DataFrame:
    """The rows of `df`, each once, with answers, published columns and audit columns (jobs.schema).

    Lazy, as Spark is. Write the result first, then read what was written: a later count(), a sort (Spark samples what
    it sorts first) or a union with itself would call the services again, and fails with ComputedBefore instead. Spark's
    own retry of a task or stage does not; output of a shuffle that was lost after its job had ended does, as it cannot
    be told from a second use. Answers are kept by a day's run (jobs/run/enrich_day.py), not by this function alone;
    where they are, nothing is refused.

    Where Spark runs a task twice at once (spark.speculation) both call; a lookup with idempotent=False is refused then.

    Raises DeclarationError when the declaration does not fit `df`. A task fails on RunStopped (a service is down or
    refuses us) and RowFailed (a policy says "fail"). Cancelled, or with enough rows seen (limit), its calls stop within
    about half a second of Spark's own decision.
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


def carry_out(
    prepared: DataFrame,
    plan: PartitionPlan,
    sent: RequestMetricsCollector | None = None,
    *,
    run: Callable[[PartitionPlan, Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = run_partition,
) -> DataFrame:
    """The prepared rows through the plan, one task per partition; `sent` is told of the requests.

    Whoever has the DataFrame may compute several of its partitions in one task, or some of them never: so each keeps
    its share of the calls in flight.
    """
    plan = _with_address(prepared, plan)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = run(plan, batches)
        return without_doubt(rows) if sent is None else sent.counted(rows)

    return _by_tasks(prepared, task, written_schema(prepared.schema, plan.layout))


def without_doubt(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task whose requests nobody is told of, so that no check can hold its rows back: it fails instead."""
    request_counter.begin()
    yield from rows
    for lookup, counts in request_counter.counted().items():
        if counts.in_doubt:
            raise TidegateError(
                f"lookup {lookup}: {counts.in_doubt:,} answers are in doubt, as their connections brought a response "
                "too many: they may be other keys'. Compute it again."
            )


@dataclass(frozen=True)
class WrittenRows:
    files: tuple[str, ...]  # absolute paths, in the order of tasks
    given: list[Given]  # to the tasks, of the calls in flight


def write_out(
    prepared: DataFrame, plan: PartitionPlan, folder: str, sent: RequestMetricsCollector | None = None
) -> WrittenRows:
    """The same, and its rows to Parquet files in `folder`, by the tasks themselves. What a task that has ended leaves
    of the calls in flight, the others have.

    Raises what the tasks raise; what they wrote until then is in no list of files.
    """
    plan = _with_address(prepared, plan, divides=True)
    files = TaskFiles.of(folder, written_schema(prepared.schema, plan.layout), distinct_columns(plan.layout))

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = run_partition(plan, batches)
        return files.written(rows if sent is None else sent.counted(rows))

    assert plan.driver is not None
    written = files.taken(_by_tasks(prepared, task, NAMED))
    return WrittenRows(written, coordinator_of(prepared.sparkSession).given(plan.driver))


def distinct_columns(layout: BatchLayout) -> Iterator[str]:
    """Those written columns whose values hardly repeat."""
    yield from (schema.INPUT_SEQ, schema.OUTPUT_SEQ, schema.SOURCE_ROW)
    for lookup in layout.lookups:
        yield from (schema.published_answered_at(lookup), schema.attempts(lookup), schema.latency_ms(lookup))


def _with_address(prepared: DataFrame, plan: PartitionPlan, *, divides: bool = False) -> PartitionPlan:
    stored = bool(plan.ledgers) and all(ledger is not None for ledger in plan.ledgers)
    tasks = len(plan.shares[0])
    totals = [sum(of_lookup) for of_lookup in plan.shares] if divides and tasks > 1 else ()
    coordinator = coordinator_of(prepared.sparkSession)
    limits = limits_of(plan.lookups)
    keepers: dict[str, LeaseKeeper] = {}
    if limits:
        leases = run_leases(str(prepared.sparkSession.sparkContext.appName))
        keepers = leases.keepers(one for one in limits if one is not None)
    address = coordinator.register(once=not stored, totals=totals, tasks=tasks, progress=plan.progress, keepers=keepers)
    return replace(plan, driver=address, limits=limits)


def _by_tasks(prepared: DataFrame, task: Task, gives: T.StructType | str) -> DataFrame:
    return prepared.withColumn(PARTITION_OF_FRAME, F.spark_partition_id()).mapInArrow(task, gives)
