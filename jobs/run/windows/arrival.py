"""The watermark in force as each row of a day arrived: by source file and row number, whatever tasks read them.

The rows of a task leave in no fixed order, and tasks differ from run to run; so the order of arrival is that of the
files' names, and of the rows in each. 16 bytes a row in the driver, while it lasts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from jobs import schema

Millis = NDArray[np.int64]
NEVER = np.iinfo(np.int64).min // 2  # no event time, and no watermark yet
ABSENT = NEVER - 1  # in place of a time: the run has no such row
ROWS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class FileArrival:
    """The rows of one file of the input, in order. times, watermarks: ms since the epoch, NEVER or ABSENT."""

    file: str
    times: Millis
    watermarks: Millis


def read_arrival(
    written: Sequence[str], counts: Mapping[str, int], event_time: str, bound_ms: int
) -> list[FileArrival]:
    """The arrival of a day's rows, file by file in order, read from the files that a run wrote.

    counts: path of each input file -> its rows, in order of arrival. A row that is not there moves no watermark.
    """
    times = {path: np.full(rows, ABSENT, np.int64) for path, rows in counts.items()}
    names = {path: path for path in counts}
    for uri, rows, moments in _event_times(written, event_time):
        path = path_of(uri)
        names[path] = uri
        if missing := max(0, int(rows.max()) + 1 - len(times[path])):  # the file was replaced since
            times[path] = np.append(times[path], np.full(missing, ABSENT, np.int64))
        times[path][rows] = moments
    found, highest = [], NEVER
    for path, of_file in times.items():
        before = np.maximum.accumulate(np.append(highest, of_file))
        watermarks = np.where(before > NEVER, before - bound_ms - 1, NEVER)[:-1]
        found.append(FileArrival(names[path], of_file, watermarks))
        highest = max(NEVER, int(before[-1]))
    return found


def path_of(uri: str) -> str:
    """The path of a file that Spark's `_metadata.file_path` spells as file:/x or file:///x, percent-encoded."""
    return unquote(re.sub(r"^file:/+", "/", uri)) if uri.startswith("file:") else uri


def _event_times(written: Sequence[str], event_time: str) -> Iterator[tuple[str, Millis, Millis]]:
    for name in written:
        columns = [schema.SOURCE_FILE, schema.SOURCE_ROW, event_time]
        with pq.ParquetFile(name, read_dictionary=[schema.SOURCE_FILE]) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=columns):
                codes = batch.column(0).indices.to_numpy()
                rows, times = batch.column(1).to_numpy(), event_times_ms(batch.column(2))
                for code in np.unique(codes):
                    of_file = codes == code
                    yield batch.column(0).dictionary[int(code)].as_py(), rows[of_file], times[of_file]


def event_times_ms(column: pa.Array) -> Millis:
    """Whole milliseconds since the epoch; NEVER for null."""
    zone = column.type.tz
    micros = column.cast(pa.timestamp("us", zone)).cast(pa.int64())
    times: Millis = np.floor_divide(pc.fill_null(micros, 0).to_numpy(zero_copy_only=False), 1000)
    return np.where(column.is_null().to_numpy(zero_copy_only=False), NEVER, times)
