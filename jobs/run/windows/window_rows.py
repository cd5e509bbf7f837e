"""The windows of a day, made from the rows as the run wrote them, by the rules of Flink's WindowOperator.

A row misses a window if its end - 1 ms + the allowed lateness is at or before the watermark in force as the row
arrived (jobs/run/windows/arrival.py). Tumbling and sliding windows are columns; only the rows for which a watermark
decides anything are looked up. Sessions depend on the order of arrival, key by key.
"""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as Over
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it
from pyspark.sql import types as T  # noqa: N812

from jobs import schema
from jobs.errors import TidegateError
from jobs.run.engines.spark_failures import explain_error
from jobs.run.windows.arrival import NEVER, FileArrival, read_arrival
from jobs.run.windows.windowless_rows import Flags, find_dropped_rows, window_starts, write_windowless
from jobs.schema import DayFacts, DeclaredFacts, WindowFacts, WrittenWindows
from jobs.storage.stored_files import is_there, read_footer
from jobs.tables.publishing import published_columns
from jobs.task.session_windows import SessionsOfKey

TIME, START, END, FIRED, RANK = "__time", "__start", "__end", "__fired", "__rank"  # ms; RANK: of a late row
WATERMARK, DROPPED, PLACE = "__watermark", "__dropped", "__place"
SCRATCH = "_arrival"
MARKS = (
    f"`{schema.SOURCE_FILE}` STRING, `{schema.SOURCE_ROW}` BIGINT, {PLACE} INT, {WATERMARK} BIGINT, {DROPPED} BOOLEAN"
)
BROADCAST_AT_MOST = 1_000_000  # rows, of about 100 bytes in each executor


def write_windows(spark: SparkSession, facts: DayFacts) -> DayFacts:
    """Write the declared windows beside the run's files. Returns the facts that name them."""
    declared = facts.declared
    if not declared.windows or not facts.files:
        return facts
    frame = spark.read.parquet(*facts.files)
    assert declared.event_time is not None  # windows are refused without one
    by_lower_name = {name.lower(): name for name in frame.columns}
    counts = {file: read_footer(file).num_rows if is_there(file) else 0 for file in facts.input_files}
    bound = round(declared.event_time.max_out_of_orderness * 1000)
    arrival = read_arrival(facts.files, counts, by_lower_name[declared.event_time.column.lower()], bound)
    folder = Path(facts.folder, "windows")
    columns = [by_lower_name[name.lower()] for name in published_columns(facts)]
    day = WindowedDay(frame.select(*_columns(columns), *schema.SOURCE_IDENTITY), facts.files, declared, arrival, folder)
    try:
        return replace(facts, windows=tuple(map(day.write, declared.windows)))
    except (PySparkException, Py4JError) as error:
        raise TidegateError(
            f"{declared.enrichment}: its windows could not be made: {explain_error(error)}. Mend what their sql says, "
            "then run the same again: nothing that the ledger has is asked."
        ) from error
    finally:
        shutil.rmtree(day.scratch, ignore_errors=True)


@dataclass(frozen=True)
class WindowedDay:
    """The rows of a day, and how they arrived. folder: one that driver and executors share."""

    rows: DataFrame  # published columns and schema.SOURCE_IDENTITY
    files: Sequence[str]  # that hold them
    declared: DeclaredFacts
    arrival: Sequence[FileArrival]
    folder: Path

    @property
    def scratch(self) -> Path:
        """A folder to be deleted when all windows are written."""
        return self.folder / SCRATCH

    def write(self, window: WindowFacts) -> WrittenWindows:
        total = sum(int((one.times >= NEVER).sum()) for one in self.arrival)
        no_time = sum(int((one.times == NEVER).sum()) for one in self.arrival)
        folder = self.folder / window.name
        shutil.rmtree(folder, ignore_errors=True)  # of a `forget` that was broken off
        self.windows(window).write.parquet(str(folder / "windows"))
        dropped_files = self.write_windowless(window, folder / "dropped" / "part-0.parquet")
        files = tuple(str(path) for path in sorted((folder / "windows").glob("*.parquet")))
        dropped = _count_file_rows(dropped_files) - no_time
        return WrittenWindows(
            name=window.name,
            files=files,
            dropped_files=dropped_files,
            windows=_count_file_rows(files),
            rows=total - no_time - dropped,
            dropped=dropped,
            no_event_time=no_time,
        )

    def windows(self, window: WindowFacts) -> DataFrame:
        self.scratch.mkdir(parents=True, exist_ok=True)
        event_time = F.col(f"`{self.declared.event_time.column}`")  # type: ignore[union-attr]  # there is one
        timed = self.rows.withColumn(TIME, F.unix_millis(event_time.cast("timestamp"))).where(F.col(TIME).isNotNull())
        inside = self._sessions(timed, window) if window.kind == "session" else self._fixed(timed, window)
        return _fired(inside, window, self.declared.partition)

    def write_windowless(self, window: WindowFacts, target: Path) -> tuple[str, ...]:
        columns = [name for name in self.rows.columns if name not in schema.SOURCE_IDENTITY]
        dropped = [find_dropped_rows(window, one) for one in self.arrival]
        if window.kind == "session":
            dropped = self._dropped_by_sessions(window)
        return write_windowless(self.files, columns, window, zip(self.arrival, dropped, strict=True), target)

    def _fixed(self, timed: DataFrame, window: WindowFacts) -> DataFrame:
        """Each row once for every window that is open to it."""
        marks = find_closed_rows(window, self.arrival)
        size, every = (F.lit(number).cast("bigint") for number in (window.size_ms, window.every_ms))
        last = F.col(TIME) - F.pmod(F.col(TIME), every)
        if len(marks):
            path = str(self.scratch / f"{window.name}.parquet")
            pq.write_table(marks, path)
            known = timed.sparkSession.read.schema(MARKS).parquet(path)
            known = F.broadcast(known) if len(marks) <= BROADCAST_AT_MOST else known
            marked = timed.join(known, [*schema.SOURCE_IDENTITY], "left")
        else:
            marked = timed.withColumns({WATERMARK: F.lit(None).cast("bigint"), PLACE: F.lit(0)})
        starts = F.transform(
            F.sequence(F.lit(0), F.lit((window.size_ms - 1) // window.every_ms)), lambda number: last - number * every
        )
        start = last if window.kind == "tumbling" else F.explode(starts)
        inside = marked.withColumn(START, start).withColumn(END, F.col(START) + size)
        if window.kind == "sliding":
            inside = inside.where(F.col(END) > F.col(TIME))
        if len(marks):
            open_to_it = F.col(END) - 1 + window.lateness_ms > F.col(WATERMARK)
            inside = inside.where(F.col(WATERMARK).isNull() | open_to_it)
        return inside

    def _sessions(self, timed: DataFrame, window: WindowFacts) -> DataFrame:
        arrival = {}
        for place, one in enumerate(self.arrival):
            path = self.scratch / f"{place}.npy"
            if not path.exists():
                np.save(path, one.watermarks)
            arrival[one.file] = (place, str(path.resolve()))
        sessions = SessionsOfKey(window, arrival, TIME)
        added = T.StructType.fromDDL(", ".join(f"`{name}` {kind}" for name, kind in SessionsOfKey.ADDED))
        assert isinstance(added, T.StructType)  # a list of columns always is
        wanted = {TIME, *schema.SOURCE_IDENTITY, *(name.lower() for name in window.key)}
        sql = window.sql.lower()
        timed = timed.select(*_columns(name for name in timed.columns if name.lower() in wanted or name.lower() in sql))

        def of_key(rows: pa.Table) -> pa.Table:  # Spark counts the arguments of what it is given
            return sessions(rows)

        kinds = T.StructType([*timed.schema.fields, *added.fields])
        rows = timed.groupBy(*_columns(window.key)).applyInArrow(of_key, kinds)
        rows.write.parquet(self._path_of_sessions(window))  # read twice
        return timed.sparkSession.read.schema(kinds).parquet(self._path_of_sessions(window)).where(~F.col(DROPPED))

    def _dropped_by_sessions(self, window: WindowFacts) -> list[Flags]:
        dropped = {one.file: np.zeros(len(one.times), np.bool_) for one in self.arrival}
        rows = ds.dataset(self._path_of_sessions(window), format="parquet")
        for batch in rows.to_batches(columns=[*schema.SOURCE_IDENTITY], filter=ds.field(DROPPED)):
            for file, row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                dropped[file][row] = True
        return list(dropped.values())

    def _path_of_sessions(self, window: WindowFacts) -> str:
        return str(self.scratch / f"{window.name}-sessions")


def find_closed_rows(window: WindowFacts, arrival: Iterable[FileArrival]) -> pa.Table:
    """The rows to which a window of theirs is closed or, with all panes, has fired before. Of fixed windows only."""
    parts = []
    for place, one in enumerate(arrival):
        last = window_starts(window, one.times)
        first = last - (window.size_ms - 1 - (one.times - last)) // window.every_ms * window.every_ms
        grace = 0 if window.panes == "all" else window.lateness_ms
        at = np.flatnonzero((one.times > NEVER) & (first + window.size_ms - 1 + grace <= one.watermarks))
        columns = {
            schema.SOURCE_FILE: pa.array([one.file] * len(at), pa.string()),
            schema.SOURCE_ROW: pa.array(at, pa.int64()),
            PLACE: pa.array([place] * len(at), pa.int32()),
            WATERMARK: pa.array(one.watermarks[at], pa.int64()),
            DROPPED: pa.array(find_dropped_rows(window, one)[at], pa.bool_()),
        }
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def _fired(inside: DataFrame, window: WindowFacts, partition: str) -> DataFrame:
    if window.panes == "last":
        return aggregated(inside, window, partition)
    if window.kind == "session":
        fired = F.col(FIRED)
        found = aggregated(inside, window, partition, (FIRED, "__pane"))
        return found.withColumns({schema.FIRED: fired, schema.PANE: F.col("__pane")}).drop(FIRED, "__pane")
    late = F.col(WATERMARK).isNotNull() & (F.col(END) - 1 <= F.col(WATERMARK))
    by = [*window.key, START]
    order = Over.partitionBy(*_columns(by)).orderBy(PLACE, schema.SOURCE_ROW)
    ranked = inside.where(late).withColumn(RANK, F.row_number().over(order))
    on_time = inside.where(~late).withColumn(RANK, F.lit(0))
    firings = ranked.select(*(F.col(f"`{name}`").alias(f"__by_{at}") for at, name in enumerate(by)), RANK)
    firings = firings.withColumnRenamed(RANK, "__firing")
    same = F.lit(True)
    for at, name in enumerate(by):
        same = same & F.col(f"`{name}`").eqNullSafe(F.col(f"__by_{at}"))
    again = on_time.unionByName(ranked).join(firings, same & (F.col(RANK) <= F.col("__firing")))
    again = again.withColumn(RANK, F.col("__firing")).select(*_columns(on_time.columns))
    found = aggregated(on_time.unionByName(again), window, partition, (RANK,))
    extent = Over.partitionBy(*_columns(window.key), schema.WINDOW_START, schema.WINDOW_END).orderBy(RANK)
    kind = F.when(F.col(RANK) == 0, schema.ON_TIME).otherwise(schema.FIRED_LATE)
    pane = (F.row_number().over(extent) - 1).cast("int")
    return found.withColumns({schema.FIRED: kind, schema.PANE: pane}).drop(RANK)


def aggregated(rows: DataFrame, window: WindowFacts, partition: str, more: Sequence[str] = ()) -> DataFrame:
    """The declared aggregates of each window of `rows`. more: columns that tell firings of one window apart."""
    keys = "".join(f"`{name}`, " for name in window.key)
    others = "".join(f", {name}" for name in more)
    local_start = f"from_utc_timestamp(timestamp_millis({START}), '{window.zone}')"
    columns = (
        f"SELECT timestamp_millis({START}) AS {schema.WINDOW_START}, timestamp_millis({END}) AS "  # noqa: S608
        f"{schema.WINDOW_END}, {keys}{window.sql}\n, count(*) AS {schema.WINDOW_ROWS}{others}, "
        f"CAST({local_start} AS DATE) AS `{partition}` FROM "
    )
    groups = f" GROUP BY {keys}{START}, {END}{others}"
    return rows.sparkSession.sql(f"{_literal(columns)}{{rows}}{_literal(groups)}", rows=rows)


def _literal(sql: str) -> str:
    """SQL in a text that Spark formats."""
    return sql.replace("{", "{{").replace("}", "}}")


def _columns(names: Iterable[str]) -> list[Column]:
    return [F.col(f"`{name}`") for name in names]


def _count_file_rows(files: Iterable[str]) -> int:
    return sum(pq.read_metadata(file).num_rows for file in files)
