"""Enriches a frame in a program or notebook: calls at once, puts answers beside its rows."""

from __future__ import annotations

import datetime as dt
import logging
import re
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.clients.billing_meter import Meters, metered
from jobs.commands.frames.frame_bills import billed
from jobs.commands.frames.frame_kinds import as_input, frame_kind, is_spark
from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.extras import require_extra
from jobs.declare.values.calendar import FRAME
from jobs.declare.vendor_jobs import refuse_jobs
from jobs.errors import DeclarationError, TidegateError
from jobs.input.day import of_files
from jobs.run.engines.engine import LocalEngine, SparkEngine
from jobs.run.metrics.progress import RunProgress
from jobs.run.plan.column_checks import check_columns, check_frame, check_spark_frame
from jobs.run.plan.options import RunOptions
from jobs.run.plan.preflight import run_folder, steps
from jobs.schema import columns as schema
from jobs.schema.columns import SOURCE_ROW, arrow_schema
from jobs.schema.costs import sum_by_currency
from jobs.storage.locked_folders import temporary_folder
from jobs.storage.urls import for_spark
from jobs.storage.work_folders import KEYS
from jobs.tables.records import run_bills, run_records
from jobs.wording import counted, priced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from jobs.input.day import InputDay
    from jobs.run.rows.local_rows import LocalRows
    from jobs.task.plan import PartitionPlan

Report = Callable[[dict[str, Any]], None]

_log = logging.getLogger("tidegate.frames")

FRAME_CURE = "Convert the column, or give a frame of Spark."
NUMBER = "tidegate_row"  # column of row numbers in the file of a frame whose columns are not read


def enrich_frame(
    frame: Any,
    enrichment: Enrichment,
    rules: RunOptions,
    report: Report,
    *,
    new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> Any:
    """Return the frame with all lookups' answers, status and time as further columns.

    Args:
        frame: A frame of Spark, pandas, Polars or Arrow.
        enrichment: Its lookups are called with its ledger, limits and budgets; nothing is
            published.
        rules: What may be called.
        report: Receives the events of the run.
        new_id: Makes the id of the run.
        now: Returns the time.

    Raises:
        DeclarationError: The frame does not fit the declaration, or PySpark is not installed;
            nothing was called.
        RunStopped: A service is down or denies access, or a cap is reached.
        RowFailed: A row failed whose policy is "fail".
    """
    require_extra("spark", "tidegate.enrich")
    run = _Run(_without_days(enrichment), new_id().hex, run_records.now(now), rules, report)
    if is_spark(frame):
        return _by_spark(frame, run)
    kind = frame_kind(frame)
    names = check_frame(run.enrichment, kind.names(frame))
    columns = as_input(kind.read(frame, names))
    errors = {schema.error(lookup.name): lookup.name for lookup in run.enrichment.lookups}
    answers = _answers(columns, len(frame), run, [*errors])
    for column, lookup in errors.items():
        _warn_of_errors(lookup, answers[column])
    return kind.put_beside(frame, answers.drop_columns([*errors]))


def _warn_of_errors(lookup: str, errors: pa.ChunkedArray) -> None:
    """Log how many rows failed, with the commonest reason: a frame has no column for reasons."""
    reasons = Counter(errors.drop_null().to_pylist())
    for reason, _ in reasons.most_common(1):
        failed = counted(reasons.total(), "row")
        _log.warning("lookup %s: %s failed, most often: %s", lookup, failed, reason)


@dataclass(frozen=True)
class AskedRows:
    """The answers to the rows of a table.

    Attributes:
        rows: The added columns, and audit columns, in the order of the rows.
        costs: What the calls of each lookup cost.
    """

    rows: pa.Table
    costs: Mapping[str, Decimal]


def ask_rows(
    rows: pa.Table,
    enrichment: Enrichment,
    audit: Sequence[str],
    report: Report,
    *,
    new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> AskedRows:
    """Return the answers to the rows of a table, as `enrich_frame` gets them.

    Args:
        rows: The rows.
        enrichment: As in `enrich_frame`.
        audit: Audit columns to return too.
        report: Receives the events of the run.
        new_id: Makes the id of the run.
        now: Returns the time.
    """
    began = run_records.now(now)
    run = _Run(_without_days(enrichment), new_id().hex, began, RunOptions(), report)
    answers = _answers(rows, rows.num_rows, run, audit)
    return AskedRows(answers, run.costs())


def check_rows(rows: pa.Table, enrichment: Enrichment) -> None:
    """Refuse what `ask_rows` refuses. Raises DeclarationError or RunStopped."""
    declared = _without_days(enrichment)
    check_columns(declared, rows.column_names)
    _check(declared)


@dataclass
class _Run:
    enrichment: Enrichment
    id: str
    started_at: str
    rules: RunOptions
    report: Report
    meters: Meters | None = None

    def tell(self, event: dict[str, Any]) -> None:
        """Report an event of progress, with the cost of the run so far."""
        self.report(event | {"cost": self._cost()})

    def _cost(self) -> str:
        """Return the cost as "0.18 USD", or "0.18 USD, 2 EUR"; empty if no lookup has a price."""
        currencies = {
            lookup.name: lookup.prices[0].currency
            for lookup in self.enrichment.lookups
            if lookup.prices
        }
        costs = self.costs().items()
        return priced(sum_by_currency((currencies[name], cost) for name, cost in costs))

    def costs(self) -> Mapping[str, Decimal]:
        """Return the cost so far of each lookup with a price."""
        if self.meters is None:
            return {}
        usage = metered(Path(self.meters.folder))
        priced = [lookup for lookup in self.enrichment.facts().lookups if lookup.prices]
        return {
            lookup.name: Decimal(run_bills.billed(lookup, usage.get(lookup.name, Counter())).cost)
            for lookup in priced
        }


def _without_days(enrichment: Enrichment) -> Enrichment:
    """Return the declaration without its parts about days: order, windows, identity of rows."""
    refuse_jobs(enrichment.lookups, "tidegate.enrich")
    declared = replace(enrichment.input, row_id=(), rows="all")
    return replace(
        enrichment,
        input=declared,
        mode="unordered",
        key=(),
        event_time=None,
        windows=(),
        expectations=(),
        summaries=(),
    )


def _check(enrichment: Enrichment, *, calls: bool = True) -> None:
    """Check secrets, services and limits in a thread, because notebooks run an event loop."""
    with ThreadPoolExecutor(1) as pool:
        for step in steps(enrichment, None, None, calls=calls):
            pool.submit(step).result()


# -- without Spark ---------------------------------------------------------------------------------
def _answers(columns: pa.Table, rows: int, run: _Run, audit: Sequence[str] = ()) -> pa.Table:
    """Return the answers, and audit columns, for the rows of a table, in its order."""
    from jobs.run.plan.planner import RunOfDay, plan_day

    if not columns.num_columns:
        columns = pa.table({NUMBER: pa.array(range(rows), pa.int64())})
    with temporary_folder() as folder, _in_words_of_frames(file := folder / "rows.parquet"):
        pq.write_table(columns, file)
        day, engine = of_files([file]), LocalEngine(f"tidegate {run.enrichment.name}")
        with RunProgress(engine.coordinator, rows, run.tell) as progress:
            plan = plan_day(
                engine,
                run.enrichment,
                day,
                RunOfDay(FRAME, run.id, run.started_at, run.rules, progress.number),
            )
            _check(run.enrichment, calls=run.rules.calls)
            files = _ask(
                plan.rows, plan.tasks, str(folder / "answers"), run, progress, day=day, here=True
            )
        wanted = [SOURCE_ROW, *_added(run.enrichment), *audit]
        found = pa.concat_tables(
            [pq.read_table(path, columns=wanted, partitioning=None) for path in files]
        )
    assert found.num_rows == rows
    return found.sort_by(SOURCE_ROW).drop_columns([SOURCE_ROW])


@contextmanager
def _in_words_of_frames(file: Path) -> Iterator[None]:
    """Name the frame in errors, in place of the file with its rows, and cures for frames."""
    from jobs.run.rows.local_rows import CURE

    try:
        yield
    except TidegateError as error:
        text = re.sub(f"(file:)?{re.escape(str(file))}", "the frame", str(error))
        text = text.replace(CURE, FRAME_CURE)
        error.args = (text, *error.args[1:])
        raise


# -- by Spark --------------------------------------------------------------------------------------
def _by_spark(frame: DataFrame, run: _Run) -> DataFrame:
    """Return the frame over files that the tasks wrote, so that no later use of it calls again."""
    from jobs.run.plan.planner import plan_tasks
    from jobs.run.rows.keyed_rows import without_identity, written_schema

    spark, columns = frame.sparkSession, frame.columns
    check_spark_frame(run.enrichment, columns)
    _check_types(frame)
    # otherwise only rows of files have an identity
    named = replace(run.enrichment, input=replace(run.enrichment.input, row_id=columns[:1]))
    engine = SparkEngine(spark)
    with RunProgress(engine.coordinator, 0, run.tell) as progress:
        # PySpark logs an error where it looks in vain for the files of the rows
        identified = without_identity(frame)
        rows, tasks = plan_tasks(
            identified, named, run_id=run.id, options=run.rules, progress=progress.number
        )
        _check(run.enrichment, calls=run.rules.calls)
        with _in_words_of_workers():
            files = _ask(rows, tasks, run_folder(named, run.id), run, progress)
    types = written_schema(rows.schema, tasks.layout)
    written = spark.read.schema(types).parquet(*map(for_spark, files))
    return written.select(*(f"`{name}`" for name in (*columns, *_added(named))))


@contextmanager
def _in_words_of_workers() -> Iterator[None]:
    """Say what to do where the Python of Spark's workers lacks the package, as another one does
    that the program's session started.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        if "No module named 'tidegate'" not in str(error):
            raise
        raise DeclarationError(
            "the Python of Spark's workers has no package tidegate. Set PYSPARK_PYTHON to a Python "
            f"that has it, such as {sys.executable}, before the session is made."
        ) from error


def _check_types(frame: DataFrame) -> None:
    from pyspark.errors import PySparkException

    for field in frame.schema:
        try:
            arrow_schema(type(frame.schema)([field]))
        except (PySparkException, ValueError) as error:
            raise DeclarationError(
                f"frame: {field.name!r} is {field.dataType.simpleString()}, which no Python worker "
                "of Spark reads. Cast it, or leave it out."
            ) from error
        if "struct<>" in field.dataType.simpleString():
            raise DeclarationError(
                f"frame: {field.name!r} is {field.dataType.simpleString()}, and Parquet has no "
                "struct without fields. Cast it, or leave it out."
            )


# -- both ------------------------------------------------------------------------------------------
def _added(enrichment: Enrichment) -> list[str]:
    return [column.name for column in enrichment.facts().published_answers()]


def _ask(
    rows: DataFrame | LocalRows,
    tasks: PartitionPlan,
    folder: str,
    run: _Run,
    progress: RunProgress,
    *,
    day: InputDay | None = None,
    here: bool = False,
) -> tuple[str, ...]:
    """Call for what the ledger does not have. Returns the files that the tasks wrote."""
    from jobs.run.enrich import write_out
    from jobs.run.keys.preparation import prepare_keys
    from jobs.run.rows.local_rows import engine_for

    scratch, asking = f"{folder}{KEYS}", progress.prefetching_keys
    with ExitStack() as stack:
        elsewhere = engine_for(rows).is_elsewhere
        plan = stack.enter_context(
            billed(run.enrichment, tasks, run.id, run.started_at, elsewhere=elsewhere)
        )
        run.meters = plan.meters
        known = stack.enter_context(
            prepare_keys(rows, plan, scratch=scratch, day=day, here=here, asking=asking)
        )
        return write_out(rows, known.plan, folder, here=here).files
