"""enrich(df, enrichment): the lookups' answers and the audit columns beside every row, in one pass over the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it
from pyspark.sql import types as T  # noqa: N812

from jobs import schema
from jobs.clients import request_counter
from jobs.errors import DeclarationError, TidegateError
from jobs.run.coordinator import Given, coordinator_of
from jobs.run.preflight import check_columns
from jobs.run.quota import shares
from jobs.task.arrow_batches import BatchLayout
from jobs.task.driver_link import PARTITION_OF_FRAME
from jobs.task.output_files import NAMED, TaskFiles
from jobs.task.plan import PartitionPlan
from jobs.task.runner import run_partition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from jobs.declare.enrichment import Enrichment
    from jobs.declare.lookup import Lookup
    from jobs.run.request_metrics import RequestMetricsCollector

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]  # what mapInArrow runs

Plan = TypeVar("Plan", bound=PartitionPlan)
KEY_TYPES = (
    T.NumericType, T.StringType, T.BinaryType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType,
    T.NullType,
)  # fmt: skip


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
    return carry_out(*prepare(df, enrichment))


def prepare(df: DataFrame, enrichment: Enrichment) -> tuple[DataFrame, PartitionPlan]:
    """The input as the tasks read it, and what each of them needs to know."""
    check_columns(enrichment, df.columns)
    check_event_time(enrichment, df)
    check_speculation(enrichment, df.sparkSession)
    prepared, layout = with_keys(with_identity(df, enrichment), enrichment)
    concurrency = concurrencies(enrichment.lookups)
    partitions, slots = prepared.rdd.getNumPartitions(), df.sparkSession.sparkContext.defaultParallelism
    tasks = max(1, min(partitions, slots, *concurrency))
    if (
        partitions
    ):  # one share per task, whichever of them run at once: Spark may find more slots than it said, and files
        prepared = prepared.coalesce(tasks)  # are divided by these anew each time that they are read
    return prepared, PartitionPlan(
        lookups=tuple(enrichment.lookups),
        shares=tuple(shares(total, tasks) for total in concurrency),
        mode=enrichment.mode,
        layout=layout,
        progress=None,
    )


def carry_out(
    prepared: DataFrame,
    plan: Plan,
    sent: RequestMetricsCollector | None = None,
    *,
    run: Callable[[Plan, Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = run_partition,
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


def _with_address(prepared: DataFrame, plan: Plan, *, divides: bool = False) -> Plan:
    stored = bool(plan.ledgers) and all(ledger is not None for ledger in plan.ledgers)
    tasks = len(plan.shares[0])
    totals = [sum(of_lookup) for of_lookup in plan.shares] if divides and tasks > 1 else ()
    coordinator = coordinator_of(prepared.sparkSession)
    address = coordinator.register(once=not stored, totals=totals, tasks=tasks, progress=plan.progress)
    return replace(plan, driver=address)


def _by_tasks(prepared: DataFrame, task: Task, gives: T.StructType | str) -> DataFrame:
    return prepared.withColumn(PARTITION_OF_FRAME, F.spark_partition_id()).mapInArrow(task, gives)


def concurrencies(lookups: Sequence[Lookup]) -> tuple[int, ...]:
    """Calls in flight of each lookup; those that ask one service divide what it allows."""
    asking: dict[tuple[str, str], list[int]] = {}
    for place, lookup in enumerate(lookups):
        asking.setdefault(lookup.service_key, []).append(place)
    found = [0] * len(lookups)
    for places in asking.values():
        for place, share in zip(places, shares(lookups[places[0]].concurrency, len(places)), strict=True):
            found[place] = share
    return tuple(found)


def check_event_time(enrichment: Enrichment, df: DataFrame) -> None:
    if enrichment.event_time is not None:
        field = df.select(f"`{enrichment.event_time.column}`").schema.fields[0]
        if not isinstance(field.dataType, T.TimestampType | T.TimestampNTZType):
            raise DeclarationError(
                f"{enrichment.name}: event_time: {field.name!r} is {field.dataType.simpleString()}; "
                "it must be a timestamp."
            )


def check_speculation(enrichment: Enrichment, spark: SparkSession) -> None:
    """Two copies of a task do not see each other's marks."""
    once = [lookup.name for lookup in enrichment.lookups if not lookup.idempotent]
    if once and spark.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
        raise DeclarationError(
            f"{enrichment.name}: lookup {once[0]}: idempotent=False, and spark.speculation is on, which runs a task "
            "twice at once: both copies would call. Set spark.speculation=false where the session is made."
        )


def with_identity(df: DataFrame, enrichment: Enrichment) -> DataFrame:
    """Source file and row number of every row; null where `df` is not read from files, but row_id is declared."""
    if set(schema.SOURCE_IDENTITY) <= set(df.columns):
        return df
    try:
        return df.select(
            "*",
            F.col("_metadata.file_path").alias(schema.SOURCE_FILE),
            F.col("_metadata.row_index").alias(schema.SOURCE_ROW),
        )
    except AnalysisException as error:
        if not enrichment.input.row_id:
            raise DeclarationError(
                f"{enrichment.name}: input: row_id is not declared, and the rows are not read straight from files; "
                "name the columns that identify a row."
            ) from error
    nothing = F.lit(None)
    return df.withColumns({schema.SOURCE_FILE: nothing.cast("string"), schema.SOURCE_ROW: nothing.cast("bigint")})


def with_keys(df: DataFrame, enrichment: Enrichment) -> tuple[DataFrame, BatchLayout]:
    """The keys of every lookup as columns of their own, and what each column of a batch is."""
    expressions: dict[str, Column] = {}
    keys = []
    for place, lookup in enumerate(enrichment.lookups):  # numbers: names of lookups and keys could run into each other
        named = {f"__key_{place}_{number}": key for number, key in enumerate(lookup.keys.values())}
        expressions |= {name: F.expr(expression) for name, expression in named.items()}
        keys.append(tuple(named))
    by_lower_name = {column.lower(): column for column in df.columns}  # Spark does not mind case, Arrow does
    event_time = enrichment.event_time
    bound = 0 if event_time is None else round(event_time.max_out_of_orderness.total_seconds() * 1000)
    layout = BatchLayout(
        carried=tuple(df.columns),
        keys=tuple(keys),
        order_key=tuple(by_lower_name[name.lower()] for name in enrichment.key),
        event_time=None if event_time is None else by_lower_name[event_time.column.lower()],
        max_out_of_orderness_ms=bound,
        lookups=tuple(lookup.name for lookup in enrichment.lookups),
        answers=tuple(lookup.columns for lookup in enrichment.lookups),
        key_names=tuple(tuple(lookup.keys) for lookup in enrichment.lookups),
    )
    try:
        df.select(*map(F.struct, expressions.values()))  # in a struct nothing may give rows of its own, as explode does
        keyed = df.withColumns(expressions)
    except AnalysisException as error:
        message = next(line for line in str(error).splitlines() if line.strip())
        raise DeclarationError(f"{enrichment.name}: keys: Spark refuses them: {message}") from error
    check_key_types(enrichment, layout, keyed.schema)
    return keyed, layout


def check_key_types(enrichment: Enrichment, layout: BatchLayout, types: T.StructType) -> None:
    """Of every key a text can be made, by which the ledger and the dead letters know it."""
    for lookup, columns in zip(enrichment.lookups, layout.keys, strict=True):
        for (name, expression), column in zip(lookup.keys.items(), columns, strict=True):
            kind = types[column].dataType
            if not _has_text(kind):
                raise DeclarationError(
                    f"{enrichment.name}: lookup {lookup.name}: keys.{name}: {expression!r} is {kind.simpleString()}, "
                    f'which no key can hold. Cast it: "cast({expression} as string)".'
                )


def _has_text(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _has_text(kind.elementType)
    if isinstance(kind, T.StructType):
        return all(_has_text(field.dataType) for field in kind.fields)
    return isinstance(kind, KEY_TYPES)


def written_schema(carried: T.StructType, layout: BatchLayout) -> T.StructType:
    """Carried columns; per lookup its answers, status and time; then the audit columns: as Assembler writes them."""
    known = {field.name: field for field in carried.fields}
    names = [name for name in layout.carried if name not in schema.SOURCE_IDENTITY]
    ddl = []
    for lookup, answers in zip(layout.lookups, layout.answers, strict=True):
        ddl += [f"`{answer.name}` {answer.spark_type}" for answer in answers]
        ddl += [column.ddl for column in schema.published_columns(lookup)]
    ddl += [column.ddl for column in schema.ROW_TABLE]
    ddl += [column.of(lookup).ddl for lookup in layout.lookups for column in schema.AUDIT_TABLE]
    added = T.StructType.fromDDL(", ".join(ddl))
    assert isinstance(added, T.StructType)
    keys = [
        T.StructField(
            schema.key(lookup),
            T.StructType([T.StructField(name, known[key].dataType) for name, key in zip(named, parts, strict=True)]),
        )
        for lookup, parts, named in zip(layout.lookups, layout.keys, layout.key_names, strict=False)
    ]
    return T.StructType([known[name] for name in names] + added.fields + keys)
