"""The watermark in force as each row of a day arrived, whatever tasks wrote the rows.

The rows of a task leave in no fixed order, and tasks differ from run to run; so the order of
arrival is that of the input's files, and of the rows in each. A written file holds runs of
consecutive rows of the input: a task finds the runs of each file, the driver puts the runs of all
files in order, and tasks then read the rows with their watermarks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jobs.schema import columns as schema
from jobs.storage.parquet_files import ROWS_FOR_SPARK, MapInArrow, open_parquet, rows_by_number
from jobs.storage.urls import path_from_spark

Numbers = NDArray[np.int64]
Millis = NDArray[np.int64]
NEVER = np.iinfo(np.int64).min // 2  # no event time, and no watermark yet
ROWS_AT_ONCE = 1 << 17
ROW_BITS = 40  # of a number that names a row of the input: the number of its file is above them
TIME, WATERMARK, PLACE = "__time", "__watermark", "__place"  # ms, ms, number of the input file


@dataclass(frozen=True, eq=False)
class WrittenRuns:
    """The runs of consecutive input rows in a written file, by input file and row.

    Attributes:
        files: URIs of the input files.
        codes: The input file of each run, as an index into `files`.
        firsts: The number of its first row in the input file.
        latest: Its latest event time in ms, or NEVER.
        rows: The number of rows in the written file.
        untimed: The number of rows without an event time.
    """

    files: tuple[str, ...]
    codes: Numbers
    firsts: Numbers
    latest: Millis
    rows: int
    untimed: int


@dataclass(frozen=True, eq=False)
class Arrival:
    """The arrival of the rows of a written file.

    Attributes:
        file: Path or URL of the written file.
        event_time: The column of the event time.
        bound_ms: How far events are out of order at most.
        places: The number of each input file in the order of arrival, in the order of
            `WrittenRuns.files`.
        before: The latest event time before each run, or NEVER.
    """

    file: str
    event_time: str
    bound_ms: int
    places: Numbers
    before: Millis


@dataclass(frozen=True, eq=False)
class ArrivedRows:
    """The rows of a written file, in its order. Times are in ms, or NEVER."""

    places: Numbers  # of the input files that they are from
    rows: Numbers  # their numbers there
    times: Millis
    watermarks: Millis

    def take(self, at: slice | Numbers) -> ArrivedRows:
        return ArrivedRows(self.places[at], self.rows[at], self.times[at], self.watermarks[at])


def find_runs(file: str, event_time: str) -> WrittenRuns:
    """Find the runs in a written file; for a task."""
    files, codes, rows, times = _read_identity(file, event_time)
    order, starts = _cut_into_runs(codes, rows)
    at = order[starts]
    latest = np.maximum.reduceat(times[order], starts) if len(starts) else times
    return WrittenRuns(files, codes[at], rows[at], latest, len(rows), int((times == NEVER).sum()))


def arrivals(
    written: Sequence[str],
    runs: Sequence[WrittenRuns],
    input_files: Sequence[str],
    event_time: str,
    bound_ms: int,
) -> list[Arrival]:
    """Put the runs of all written files in the order of arrival.

    Args:
        written: The files.
        runs: Their runs.
        input_files: The input files in the order of arrival.
        event_time: The column of the event time.
        bound_ms: How far events are out of order at most.
    """
    numbers = {file: number for number, file in enumerate(input_files)}
    places = [
        np.array([numbers[path_from_spark(uri)] for uri in run.files], np.int64) for run in runs
    ]
    nothing = np.zeros(0, np.int64)
    place = np.concatenate(
        [*(codes[run.codes] for codes, run in zip(places, runs, strict=True)), nothing]
    )
    firsts = np.concatenate([*(run.firsts for run in runs), nothing])
    latest = np.concatenate([*(run.latest for run in runs), nothing])
    order = np.lexsort([firsts, place])
    before = np.empty_like(latest)
    before[order] = np.maximum.accumulate(np.append(NEVER, latest[order]))[:-1]
    ends = np.cumsum([len(run.codes) for run in runs])[:-1]
    return [
        Arrival(file, event_time, bound_ms, codes, part)
        for file, codes, part in zip(written, places, np.split(before, ends), strict=True)
    ]


def read_arrived(arrival: Arrival) -> ArrivedRows:
    """Read when the rows of a written file arrived; for a task."""
    _, codes, rows, times = _read_identity(arrival.file, arrival.event_time)
    order, starts = _cut_into_runs(codes, rows)
    sorted_times, latest = times[order], np.empty_like(times)
    for start, end, before in zip(
        starts, np.append(starts, len(times))[1:], arrival.before, strict=True
    ):
        latest[order[start:end]] = np.maximum.accumulate(
            np.append(before, sorted_times[start : end - 1])
        )
    watermarks = np.where(latest > NEVER, latest - arrival.bound_ms - 1, NEVER)
    return ArrivedRows(arrival.places[codes], rows, times, watermarks)


def rows_with_arrival(given: Sequence[Arrival], columns: Sequence[str]) -> MapInArrow:
    """Return a function for mapInArrow that maps numbers of written files to their rows.

    The numbers are in the column `id`. Rows without an event time are left out.

    Args:
        given: The written files.
        columns: Columns to read, in addition to TIME, WATERMARK, PLACE and the row's number in the
            input file.
    """
    return rows_by_number(lambda number: _read_timed(given[number], columns))


def _read_timed(arrival: Arrival, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    arrived, start = read_arrived(arrival), 0
    with open_parquet(arrival.file) as file:
        for batch in file.iter_batches(ROWS_FOR_SPARK, columns=[*columns, schema.SOURCE_ROW]):
            rows = arrived.take(slice(start, start + batch.num_rows))
            start += batch.num_rows
            found = {
                name: pa.array(values)
                for name, values in ((TIME, rows.times), (WATERMARK, rows.watermarks))
            }
            found |= {
                PLACE: pa.array(rows.places),
                schema.SOURCE_ROW: batch.column(schema.SOURCE_ROW),
            }
            found |= {name: batch.column(name) for name in columns}
            yield pa.RecordBatch.from_pydict(found).filter(pa.array(rows.times > NEVER))


def name_rows(places: Numbers, rows: Numbers) -> Numbers:
    """Return a unique number for each row of the input."""
    named: Numbers = (places << ROW_BITS) + rows
    return named


def _cut_into_runs(codes: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
    """Return the order of rows by file and number, and where runs begin in that order."""
    order = np.lexsort([rows, codes])
    same_file, next_row = np.diff(codes[order]) == 0, np.diff(rows[order]) == 1
    begins = np.flatnonzero(np.append(True, ~(same_file & next_row))[: len(rows)])
    return order, begins


def _read_identity(place: str, event_time: str) -> tuple[tuple[str, ...], Numbers, Numbers, Millis]:
    """Read the input files of a written file, and each row's file, number and time.

    The file is an index into the input files, the number that of the row in its input file.
    """
    files: dict[str, int] = {}
    nothing = np.zeros(0, np.int64)
    found = [(nothing, nothing, nothing)]
    columns = [schema.SOURCE_FILE, schema.SOURCE_ROW, event_time]
    with open_parquet(place, read_dictionary=[schema.SOURCE_FILE]) as file:
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
            sources = batch.column(schema.SOURCE_FILE)
            numbers = [files.setdefault(uri, len(files)) for uri in sources.dictionary.to_pylist()]
            codes = np.array(numbers, np.int64)[sources.indices.to_numpy()]
            found.append(
                (
                    codes,
                    batch.column(schema.SOURCE_ROW).to_numpy(),
                    event_times_ms(batch.column(event_time)),
                )
            )
    codes, rows, times = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return tuple(files), codes, rows, times


def event_times_ms(column: pa.Array) -> Millis:
    """Return whole milliseconds since the epoch; NEVER for null."""
    zone = column.type.tz
    micros = column.cast(pa.timestamp("us", zone)).cast(pa.int64())
    times: Millis = np.floor_divide(pc.fill_null(micros, 0).to_numpy(zero_copy_only=False), 1000)
    return np.where(column.is_null().to_numpy(zero_copy_only=False), NEVER, times)
