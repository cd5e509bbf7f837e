"""Enriches rows: tasks call the lookups and write files with answers and audit columns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812

from jobs.input.file_rows import ROWS_AT_ONCE
from jobs.run.coordinator.run_leases import build_keepers, leased_limits
from jobs.run.engines.engine import Engine
from jobs.run.rows.keyed_rows import written_schema
from jobs.run.rows.local_rows import LocalRows, engine_for
from jobs.schema import columns as schema
from jobs.schema.records import ShareGiven, WrittenFile
from jobs.storage.parquet_files import open_parquet
from jobs.task.link.driver_link import TaskFacts
from jobs.task.output_files import TaskFiles, TaskResult, without_doubt
from jobs.task.plan import PartitionPlan
from jobs.task.rows.arrow_batches import BatchLayout
from jobs.task.runner import run_partition

RunOfKeys = Callable[
    [PartitionPlan, Iterator[pa.RecordBatch], TaskFacts | None], Iterator[pa.RecordBatch]
]  # as run_partition


@dataclass(frozen=True)
class WrittenRows:
    facts: tuple[WrittenFile, ...]  # of the files, in the order of tasks
    shares_given: tuple[ShareGiven, ...]  # to the tasks, of the calls in flight
    attempts: tuple[int, ...]  # by task number: the attempt that wrote the file

    @property
    def files(self) -> tuple[str, ...]:
        """The absolute places of the files."""
        return tuple(file.place for file in self.facts)


def write_out(
    prepared: DataFrame | LocalRows,
    plan: PartitionPlan,
    folder: str,
    sent: list[TaskResult] | None = None,
    *,
    here: bool = False,
) -> WrittenRows:
    """Run the plan, with tasks that write Parquet files into `folder`. Other tasks get the calls
    in flight of an ended task.

    Args:
        prepared: The rows.
        plan: What each task needs to know.
        folder: Gets the files.
        sent: Receives what tasks counted; without it no check sees answers in doubt, and they fail
            their task.
        here: Run in this process, if `is_for_driver` allows it.

    Raises:
        Exception: The tasks' errors; their files are then in no list.
    """
    engine, tasks = engine_for(prepared), len(plan.shares[0])
    plan = _with_address(engine, plan, divides=True)
    assert plan.driver is not None
    files = TaskFiles.of(
        folder,
        written_schema(prepared.schema, plan.layout),
        distinct_columns(plan.layout),
        plan.meters,
    )
    # not a function of this module, which the task would then load
    checked = without_doubt if sent is None else iter

    def task(part: Any, facts: TaskFacts) -> TaskResult:
        rows = part if plan.reads is None else plan.reads.of(part)
        written = run_partition(plan, rows, facts)
        return files.write(checked(written), facts.partitionId(), attempt=facts.taskAttemptId())

    coordinator = engine.coordinator
    # Spark, or a task, reads the rows
    parts: Any = prepared if plan.reads is None else range(tasks)
    try:
        stage = engine.stage(plan.driver, here=here)
        with files.only_of_results() as results:
            results.extend(stage.run(task, parts))
        given = coordinator.shares_given(plan.driver)
    finally:
        coordinator.end(plan.driver)
    if sent is not None:
        sent.extend(results)
    return WrittenRows(
        tuple(result.file for result in results),
        tuple(given),
        tuple(result.attempt for result in results),
    )


def write_keys(
    keys: DataFrame | pa.Table,
    types: T.StructType,
    plan: PartitionPlan,
    folder: str,
    columns: Sequence[str],
    *,
    engine: Engine,
    run: RunOfKeys,
    refuse_doubt: bool,
) -> tuple[pa.Table, Sequence[TaskResult]]:
    """Run the plan over keys, and return these columns of all keys, and what the tasks counted.

    Each task keeps its share of the calls in flight, which is the share of the rows that show its
    calls. Raises the tasks' errors.

    Args:
        keys: The keys; a table runs in this process, if `is_for_driver` allows it.
        types: Types of the keys' columns.
        plan: What each task needs to know.
        folder: The tasks write their files into it.
        columns: The columns to return.
        engine: Runs the tasks.
        run: Runs the keys of a task.
        refuse_doubt: Fail a task with answers in doubt, instead of leaving them to a check.
    """
    plan = _with_address(engine, plan)
    assert plan.driver is not None
    written = written_schema(types, plan.layout)
    files = TaskFiles.of(folder, T.StructType([written[name] for name in columns]), (), plan.meters)
    checked = without_doubt if refuse_doubt else iter
    here = isinstance(keys, pa.Table)

    def task(part: Any, facts: TaskFacts) -> TaskResult:
        number = facts.partitionId()
        batches = iter(part.to_batches(ROWS_AT_ONCE)) if here else part
        done = run(plan, batches, facts)
        asked = (batch.select(columns) for batch in checked(done))
        return files.write(asked, number)

    try:
        with files.only_of_results() as results:
            results.extend(engine.stage(plan.driver, here=here).run(task, [keys] if here else keys))
    finally:
        engine.coordinator.end(plan.driver)
    tables = []
    for result in results:
        with open_parquet(result.file.place) as file:
            tables.append(file.read())
    return pa.concat_tables(tables), results


def distinct_columns(layout: BatchLayout) -> Iterator[str]:
    """Yield the written columns with mostly distinct values."""
    yield from (schema.INPUT_SEQ, schema.OUTPUT_SEQ, schema.SOURCE_ROW)
    for lookup in layout.lookups:
        yield from (
            schema.published_answered_at(lookup),
            schema.attempts(lookup),
            schema.latency_ms(lookup),
        )


def _with_address(engine: Engine, plan: PartitionPlan, *, divides: bool = False) -> PartitionPlan:
    tasks = len(plan.shares[0])
    totals = [sum(of_lookup) for of_lookup in plan.shares] if divides and tasks > 1 else ()
    if plan.meters is None:
        limits = leased_limits(plan.lookups, plan.budgets)
        keepers = build_keepers(limits, engine.name)
    else:
        limits = leased_limits(plan.lookups, plan.budgets, now=plan.meters.run_began)
        keepers = build_keepers(limits, engine.name, run_id=plan.meters.run_id)
    address = engine.coordinator.register(
        totals=totals, tasks=tasks, progress=plan.progress, keepers=keepers
    )
    return replace(plan, driver=address, limits=limits)
