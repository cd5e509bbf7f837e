"""Makes a day's windows from the rows as written, by the rules of Flink's WindowOperator.

A row misses a window if its end - 1 ms + the allowed lateness is at or before the watermark in
force when the row arrived (jobs/task/windows/arrival.py). Tumbling and sliding windows are columns.
Sessions depend on the order of arrival, key by key.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F  # noqa: N812  # Spark's usual alias
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from jobs.errors import TidegateError
from jobs.run.engines.engine import SparkEngine
from jobs.run.engines.spark_failures import explain_error
from jobs.run.engines.stages import Stage
from jobs.schema import columns as schema
from jobs.schema.records import DayFacts, DeclaredFacts, WindowFacts, WrittenFile, WrittenWindows
from jobs.storage.parquet_files import MapInArrow, read_schema, rows_of_files
from jobs.storage.removal import remove_folder, remove_others
from jobs.storage.stored_files import files_in
from jobs.storage.urls import below
from jobs.tables.publishing import published_columns
from jobs.task.output_files import TaskFiles
from jobs.task.windows.arrival import (
    PLACE,
    TIME,
    WATERMARK,
    Arrival,
    Numbers,
    arrivals,
    find_runs,
    rows_with_arrival,
)
from jobs.task.windows.session_windows import DROPPED, SessionsOfKey, find_dropped
from jobs.task.windows.windowless_rows import write_windowless

START, END, FIRED, RANK = "__start", "__end", "__fired", "__rank"  # ms; RANK: of a late row
SCRATCH = "_arrival"
ARRIVED = (  # columns of the rows that Spark gets
    T.StructField(TIME, T.LongType()), T.StructField(WATERMARK, T.LongType()),
    T.StructField(PLACE, T.LongType()), T.StructField(schema.SOURCE_ROW, T.LongType()),
)  # fmt: skip


def write_windows(engine: SparkEngine, facts: DayFacts) -> DayFacts:
    """Write the declared windows beside the run's files. Returns the facts that name them."""
    if not facts.declared.windows or not facts.files:
        return facts
    folder = below(facts.folder, "windows")
    day = WindowedDay.of(
        engine, facts.declared, facts.files, facts.input_files, published_columns(facts), folder
    )
    try:
        return replace(facts, windows=tuple(map(day.write, facts.declared.windows)))
    except (PySparkException, Py4JError) as error:
        raise TidegateError(
            f"{facts.declared.enrichment}: its windows could not be made: {explain_error(error)}. "
            "Mend what their sql "
            "says, then run the same again: nothing that the ledger has is asked."
        ) from error
    finally:
        remove_folder(day.scratch)


@dataclass(frozen=True)
class WindowedDay:
    """The rows of a day, and how they arrived.

    Attributes:
        engine: Runs the tasks.
        columns: The published columns, as the files have them.
        declared: As the run was declared.
        arrivals: Of the files that hold the rows.
        rows: Their number.
        untimed: Rows of these without an event time.
        folder: Gets the windows: a folder that driver and executors share, or the URL of a folder.
    """

    engine: SparkEngine
    columns: T.StructType
    declared: DeclaredFacts
    arrivals: list[Arrival]
    rows: int
    untimed: int
    folder: str

    @classmethod
    def of(  # noqa: PLR0917  # facts of a run
        cls,
        engine: SparkEngine,
        declared: DeclaredFacts,
        written: Sequence[str],
        input_files: Sequence[str],
        columns: Sequence[str],
        folder: str,
    ) -> Self:
        """Find in tasks how the rows of these written files arrived.

        Args:
            engine: Runs the tasks.
            declared: As the run was declared.
            written: Files with rows.
            input_files: The files from which the rows come, in the order of arrival.
            columns: The published columns.
            folder: Gets the windows.
        """
        assert declared.event_time is not None  # windows are refused without an event time
        file_types = read_schema(written[0])
        names = {name.lower(): name for name in file_types.names}
        types = from_arrow_schema(
            pa.schema([file_types.field(names[name.lower()]) for name in columns]),
            prefer_timestamp_ntz=True,
        )
        event_time = names[declared.event_time.column.lower()]
        bound = round(declared.event_time.max_out_of_orderness * 1000)
        runs = engine.file_stage(written).run(
            lambda file, _facts: find_runs(file, event_time), written
        )
        found = arrivals(written, runs, input_files, event_time, bound)
        rows, untimed = sum(run.rows for run in runs), sum(run.untimed for run in runs)
        return cls(engine, types, declared, found, rows, untimed, folder)

    @property
    def scratch(self) -> str:
        """A folder that is deleted when all windows are written."""
        return below(self.folder, SCRATCH)

    def write(self, window: WindowFacts) -> WrittenWindows:
        files = self._write_frame(self.windows(window), below(self.folder, window.name, "windows"))
        listed = self.write_windowless(window)
        dropped = sum(rows for _, rows in listed) - self.untimed
        return WrittenWindows(
            name=window.name,
            files=tuple(file.place for file in files),
            dropped_files=tuple(place for place, _ in listed),
            windows=sum(file.rows for file in files),
            rows=self.rows - self.untimed - dropped,
            dropped=dropped,
            no_event_time=self.untimed,
        )

    def windows(self, window: WindowFacts) -> DataFrame:
        timed = self._read_timed(window)
        inside = (
            self._sessions(timed, window) if window.kind == "session" else _fixed(timed, window)
        )
        return _fired(inside, window, self.declared.partition)

    def write_windowless(self, window: WindowFacts) -> list[tuple[str, int]]:
        """Write in tasks the rows without a window, after sessions. Returns files and rows."""
        dropped = self._dropped_by_sessions(window) if window.kind == "session" else None
        folder, names = below(self.folder, window.name, "dropped"), self.columns.names

        def write(part: tuple[Arrival, str], _facts: Any) -> tuple[str, int] | None:
            return write_windowless(part[0], names, window, part[1], dropped)

        parts = [
            (arrival, below(folder, f"part-{place}.parquet"))
            for place, arrival in enumerate(self.arrivals)
        ]
        listed = [written for written in self._stage.run(write, parts) if written is not None]
        remove_others(folder, kept=[place for place, _ in listed])  # of an interrupted `forget`
        return listed

    @property
    def _stage(self) -> Stage:
        return self.engine.file_stage([arrival.file for arrival in self.arrivals])

    def _read_timed(self, window: WindowFacts) -> DataFrame:
        """Read the rows that have an event time, with the columns that a window needs."""
        sql = window.sql.lower()
        every = "*" in sql.replace("count(*)", "")  # for example in struct(*)
        keys = {name.lower() for name in window.key}
        wanted = [
            field
            for field in self.columns
            if every or field.name.lower() in keys or field.name.lower().replace("`", "``") in sql
        ]
        read = rows_with_arrival(self.arrivals, [field.name for field in wanted])
        return self._over_files(len(self.arrivals), read, T.StructType([*ARRIVED, *wanted]))

    def _over_files(self, count: int, read: MapInArrow, types: T.StructType) -> DataFrame:
        return self.engine.spark.range(0, count, 1, count).mapInArrow(read, types)

    def _write_frame(self, frame: DataFrame, folder: str) -> list[WrittenFile]:
        """Write the rows of a frame in tasks, in place of other files in the folder."""
        files, names = TaskFiles.of(folder, frame.schema, ()), frame.columns

        def write(batches: Iterator[pa.RecordBatch], facts: Any) -> Any:
            return files.write((batch.select(names) for batch in batches), facts.partitionId())

        with files.only_of_results() as results:
            results.extend(self.engine.stage().run(write, frame))
        return [result.file for result in results]

    def _sessions(self, timed: DataFrame, window: WindowFacts) -> DataFrame:
        sessions = SessionsOfKey(window)
        added = T.StructType.fromDDL(
            ", ".join(f"`{name}` {kind}" for name, kind in SessionsOfKey.ADDED)
        )
        assert isinstance(added, T.StructType)  # a list of columns always is

        def of_key(rows: pa.Table) -> pa.Table:  # Spark counts the arguments of the function
            return sessions(rows)

        kinds = T.StructType([*timed.schema.fields, *added.fields])
        rows = timed.groupBy(*_columns(window.key)).applyInArrow(of_key, kinds)
        files = self._write_frame(rows, self._folder_of_sessions(window))  # read twice
        return self._over_files(
            len(files), rows_of_files([file.place for file in files]), kinds
        ).where(~F.col(DROPPED))

    def _dropped_by_sessions(self, window: WindowFacts) -> Numbers:
        """Return the rows that sessions dropped, by `name_rows`."""
        files = [file.place for file in files_in(self._folder_of_sessions(window))]
        found = self._stage.run(lambda file, _facts: find_dropped(file), files)
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _folder_of_sessions(self, window: WindowFacts) -> str:
        return below(self.scratch, f"{window.name}-sessions")


def _fixed(timed: DataFrame, window: WindowFacts) -> DataFrame:
    """Return each row once for every window that is open to it."""
    size, every = (F.lit(number).cast("bigint") for number in (window.size_ms, window.every_ms))
    last = F.col(TIME) - F.pmod(F.col(TIME), every)
    starts = F.transform(
        F.sequence(F.lit(0), F.lit((window.size_ms - 1) // window.every_ms)),
        lambda number: last - number * every,
    )
    start = last if window.kind == "tumbling" else F.explode(starts)
    inside = timed.withColumn(START, start).withColumn(END, F.col(START) + size)
    if window.kind == "sliding":
        inside = inside.where(F.col(END) > F.col(TIME))
    return inside.where(F.col(END) - 1 + window.lateness_ms > F.col(WATERMARK))


def _fired(inside: DataFrame, window: WindowFacts, partition: str) -> DataFrame:
    if window.panes == "last":
        return aggregated(inside, window, partition)
    if window.kind == "session":
        fired = F.col(FIRED)
        found = aggregated(inside, window, partition, (FIRED, "__pane"))
        return found.withColumns({schema.FIRED: fired, schema.PANE: F.col("__pane")}).drop(
            FIRED, "__pane"
        )
    late = F.col(END) - 1 <= F.col(WATERMARK)
    by = [*window.key, START]
    order = Over.partitionBy(*_columns(by)).orderBy(PLACE, schema.SOURCE_ROW)
    ranked = inside.where(late).withColumn(RANK, F.row_number().over(order))
    on_time = inside.where(~late).withColumn(RANK, F.lit(0))
    firings = ranked.select(
        *(F.col(f"`{name}`").alias(f"__by_{at}") for at, name in enumerate(by)), RANK
    )
    firings = firings.withColumnRenamed(RANK, "__firing")
    same = F.lit(True)
    for at, name in enumerate(by):
        same = same & F.col(f"`{name}`").eqNullSafe(F.col(f"__by_{at}"))
    again = on_time.unionByName(ranked).join(firings, same & (F.col(RANK) <= F.col("__firing")))
    again = again.withColumn(RANK, F.col("__firing")).select(*_columns(on_time.columns))
    found = aggregated(on_time.unionByName(again), window, partition, (RANK,))
    extent = Over.partitionBy(
        *_columns(window.key), schema.WINDOW_START, schema.WINDOW_END
    ).orderBy(RANK)
    kind = F.when(F.col(RANK) == 0, schema.ON_TIME).otherwise(schema.FIRED_LATE)
    pane = (F.row_number().over(extent) - 1).cast("int")
    return found.withColumns({schema.FIRED: kind, schema.PANE: pane}).drop(RANK)


def aggregated(
    rows: DataFrame, window: WindowFacts, partition: str, more: Sequence[str] = ()
) -> DataFrame:
    """Return the declared aggregates of each window of some rows.

    Args:
        rows: The rows, each with its window.
        window: The declared windows.
        partition: The partition column, which gets the date of the window's start, or the first or
            last day of the years 1 to 9999.
        more: Columns that distinguish firings of the same window.
    """
    keys = "".join(f"`{name}`, " for name in window.key)
    others = "".join(f", {name}" for name in more)
    local_start = f"from_utc_timestamp(timestamp_millis({START}), '{window.zone}')"
    # readers refuse the whole table for a date outside of these years
    day = f"greatest(DATE'0001-01-01', least(DATE'9999-12-31', CAST({local_start} AS DATE)))"
    columns = (
        f"SELECT timestamp_millis({START}) AS {schema.WINDOW_START}, timestamp_millis({END}) AS "  # noqa: S608
        f"{schema.WINDOW_END}, {keys}{window.sql}\n, count(*) AS {schema.WINDOW_ROWS}{others}, "
        f"{day} AS `{partition}` FROM "
    )
    groups = f" GROUP BY {keys}{START}, {END}{others}"
    return rows.sparkSession.sql(f"{_literal(columns)}{{rows}}{_literal(groups)}", rows=rows)


def _literal(sql: str) -> str:
    """Escape SQL for a text that Spark formats."""
    return sql.replace("{", "{{").replace("}", "}}")


def _columns(names: Iterable[str]) -> list[Column]:
    return [F.col(f"`{name}`") for name in names]
