"""Plans a run: the tasks' input rows, the task plan, and the day's facts."""

import functools
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from pyspark.sql import DataFrame, SparkSession

from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup
from jobs.errors import DeclarationError
from jobs.input.day import InputDay
from jobs.input.file_rows import FileRows
from jobs.limits.fair_shares import even_shares
from jobs.run.engines.engine import Engine, LocalEngine, SparkEngine
from jobs.run.engines.spark_facts import count_partitions, count_slots, setting
from jobs.run.plan.caps import divide_cap
from jobs.run.plan.options import RunOptions, plan_ledger
from jobs.run.plan.preflight import run_folder
from jobs.run.rows.arrow_input import file_rows, rows_of_day
from jobs.run.rows.keyed_rows import with_identity, with_keys
from jobs.run.rows.local_rows import LocalRows
from jobs.run.windows.window_sql import check_windows
from jobs.schema.records import DayFacts, DeclaredFacts
from jobs.storage.urls import absolute
from jobs.task.plan import PartitionPlan
from jobs.task.rows.arrow_batches import BatchLayout

PACKAGES = ("pyspark", "pyarrow", "deltalake", "aiohttp", "sqlalchemy", "tidegate")


@dataclass(frozen=True)
class RunOfDay:
    """The identity of a planned run.

    Attributes:
        day: Such as 2013-01-10.
        run_id: Names the run's folder, its record, and what it stores.
        started_at: ISO 8601, UTC; before the input was read.
        options: What the run may call.
        progress: Number of the driver's listener to the tasks' progress.
        in_one_task: All its rows go through a single task, ignoring Spark's split of their files.
        on_store: Its files are written on the store that holds the table, and not in the work
            folder.
    """

    day: str
    run_id: str
    started_at: str
    options: RunOptions
    progress: int
    in_one_task: bool = False
    on_store: bool = False


@dataclass(frozen=True)
class DayPlan:
    """The plan of a run of a day, before any call.

    Attributes:
        rows: The input as the tasks read it.
        tasks: What each task needs to know.
        facts: Of the day, without what is only known at its end: files, how keys were called, and
            changes of shares.
    """

    rows: DataFrame | LocalRows
    tasks: PartitionPlan
    facts: DayFacts


def plan_day(engine: Engine, enrichment: Enrichment, input_day: InputDay, run: RunOfDay) -> DayPlan:
    """Plan a run of a day of an enrichment that `preflight` has accepted.

    Raises:
        DeclarationError: The declaration does not fit the rows.
    """
    keyed: DataFrame | LocalRows
    if isinstance(engine, SparkEngine):
        keyed, tasks = plan_tasks(
            rows_of_day(enrichment.name, input_day, engine.spark), enrichment, run_id=run.run_id,
            options=run.options, progress=run.progress, in_one_task=run.in_one_task, day=input_day,
        )  # fmt: skip
        check_windows(keyed, enrichment, tasks.layout)
    else:
        assert isinstance(engine, LocalEngine)
        keyed = LocalRows.of(engine, enrichment, input_day)
        tasks = _task_plan(
            enrichment,
            keyed.layout,
            tasks=1,
            run_id=run.run_id,
            options=run.options,
            progress=run.progress,
            reads=keyed.reads,
        )
    types = input_day.spark_types()
    facts = DayFacts(
        declared=_spelled(enrichment.facts(), input_day.names),
        day=run.day,
        run_id=run.run_id,
        input_files=tuple(map(absolute, input_day.files)),
        input_columns=tuple(input_day.names),
        input_types="" if types is None else types.json(),
        input_version=input_day.version,
        input_table=input_day.table,
        unread=input_day.unread,
        files_version=input_day.files_version,
        folder=run_folder(enrichment, run.run_id, on_store=run.on_store),
        files=(),
        shares=tasks.shares,
        started_at=run.started_at,
        finished_at="",
        versions=versions(),
    )
    return DayPlan(keyed, tasks, facts)


def _spelled(declared: DeclaredFacts, columns: Iterable[str]) -> DeclaredFacts:
    """Return the declaration with its columns as the files spell them: readers of files heed case,
    and declarations do not.
    """
    names = {column.lower(): column for column in columns}
    row_id, order_key = (
        tuple(names.get(column.lower(), column) for column in given)
        for given in (declared.row_id, declared.order_key)
    )
    time = declared.event_time and replace(
        declared.event_time, column=names[declared.event_time.column.lower()]
    )
    return replace(declared, row_id=row_id, order_key=order_key, event_time=time)


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of Python and PACKAGES in this process."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def plan_tasks(
    df: DataFrame,
    enrichment: Enrichment,
    *,
    run_id: str | None = None,
    options: RunOptions | None = None,
    progress: int | None = None,
    in_one_task: bool = False,
    day: InputDay | None = None,
) -> tuple[DataFrame, PartitionPlan]:
    """Return the input as the tasks read it, and what each task needs to know.

    Args:
        df: The input.
        enrichment: As declared.
        run_id: Names what the run stores; None: nothing is stored, whatever is declared.
        options: What the run may call; None: all that it needs.
        progress: Number of the driver's listener to the tasks' progress; None without a listener.
        in_one_task: All rows go through a single task.
        day: The files from which `df` is read directly; None if it is not, or if it is unknown.

    Raises:
        DeclarationError: The declaration does not fit `df`, or the session would run a task twice
            at once.
    """
    options = options or RunOptions()
    check_speculation(enrichment, df.sparkSession)
    prepared, layout = with_keys(with_identity(df, enrichment), enrichment)
    lookups = tuple(enrichment.lookups)
    at_most = (
        1 if in_one_task else max(1, min(count_slots(df.sparkSession), *calls_in_flight(lookups)))
    )
    reads = None if day is None else file_rows(prepared, enrichment, layout, day, at_most=at_most)
    if reads is None and layout.chained and run_id is not None:
        raise DeclarationError(
            f"{enrichment.name}: lookups that read answers need input files that tasks read "
            "themselves, and here only Spark can read them: through Spark Connect, or with dates "
            "of an old calendar. Run the day with spark-submit, or with TIDEGATE_ENGINE=local."
        )
    if reads is None:
        prepared, tasks = _divided(prepared, at_most)
    else:
        tasks = len(reads.parts)
    return prepared, _task_plan(
        enrichment,
        layout,
        tasks=tasks,
        run_id=run_id,
        options=options,
        progress=progress,
        reads=reads,
    )


def _divided(rows: DataFrame, at_most: int) -> tuple[DataFrame, int]:
    """Return the rows that Spark reads in a fixed number of partitions, and that number.

    There is a share of the calls per task, whichever tasks run at once: Spark may find more slots
    than it reported, and divides files by the slots at each read.
    """
    # coalesced before the count: Spark makes a new plan for each frame whose partitions are counted
    narrowed = rows.coalesce(at_most)
    tasks = 1 if at_most == 1 else count_partitions(narrowed)
    if not tasks:  # no row, so there is nothing to divide
        return rows, 1
    return (narrowed if tasks == at_most else rows.coalesce(tasks)), tasks


def _task_plan(
    enrichment: Enrichment,
    layout: BatchLayout,
    *,
    tasks: int,
    run_id: str | None,
    options: RunOptions,
    progress: int | None,
    reads: FileRows | None,
) -> PartitionPlan:
    lookups = tuple(enrichment.lookups)
    wanted = layout.wanted or (None,) * len(lookups)
    return PartitionPlan(
        # rows outside its condition have a null key and are skipped; has_null_key finds those whose
        # key is null inside it, which fail
        lookups=tuple(
            lookup if column is None else replace(lookup, on_null_key="skip")
            for lookup, column in zip(lookups, wanted, strict=True)
        ),
        shares=tuple(even_shares(total, tasks) for total in calls_in_flight(lookups)),
        mode=enrichment.mode,
        layout=layout,
        progress=progress,
        ledgers=tuple(
            None if run_id is None else plan_ledger(enrichment, lookup, run_id, options)
            for lookup in lookups
        ),
        personal=tuple(map(enrichment.has_personal_key, lookups)),
        reads=reads,
        may_call=options.may_call,
        cap=divide_cap(options, lookups, tasks),
        budgets=tuple((enrichment.name, budget) for budget in enrichment.budget),
    )


def calls_in_flight(lookups: Sequence[Lookup]) -> tuple[int, ...]:
    """Return the calls in flight of each lookup; lookups of the same service divide its limit."""
    asking: dict[tuple[str, str], list[int]] = {}
    for place, lookup in enumerate(lookups):
        asking.setdefault(lookup.service_key, []).append(place)
    found = [0] * len(lookups)
    for places in asking.values():
        for place, share in zip(
            places, even_shares(lookups[places[0]].concurrency, len(places)), strict=True
        ):
            found[place] = share
    return tuple(found)


def check_speculation(enrichment: Enrichment, spark: SparkSession) -> None:
    """Refuse speculation for calls that must not repeat: copies do not see each other's marks."""
    once = [lookup.name for lookup in enrichment.lookups if not lookup.repeatable]
    if once and setting(spark, "spark.speculation", "false").lower() == "true":
        raise DeclarationError(
            f"{enrichment.name}: lookup {once[0]}: idempotent=False, and spark.speculation is on, "
            "which runs a task twice at once: both copies would call. Set spark.speculation=false "
            "where the session is made."
        )
