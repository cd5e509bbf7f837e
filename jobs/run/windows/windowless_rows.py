"""The rows of a day that are in no window: late for every one, or without an event time; found by Arrow, in the driver.

A Spark job of its own would read all rows a second time, for a few.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from jobs import schema
from jobs.run.windows.arrival import NEVER, ROWS_AT_ONCE, FileArrival
from jobs.schema import WindowFacts

Flags = NDArray[np.bool_]
MOMENT = pa.timestamp("us", "UTC")


def window_starts(window: WindowFacts, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each time, the start of the last window that it is in, ms; of a session that it opens."""
    return times - times % window.every_ms if window.every_ms else times


def find_dropped_rows(window: WindowFacts, one: FileArrival) -> Flags:
    """The rows of a file that every tumbling or sliding window was closed to as they arrived."""
    ends = window_starts(window, one.times) + window.size_ms
    dropped: Flags = (one.times > NEVER) & (ends - 1 + window.lateness_ms <= one.watermarks)
    return dropped


def write_windowless(
    written: Sequence[str],
    columns: Sequence[str],
    window: WindowFacts,
    arrival: Iterable[tuple[FileArrival, Flags]],
    target: Path,
) -> tuple[str, ...]:
    """Write them to one file, with what names them and why they are in no window. Returns it, if there is a row.

    arrival: of each file of the input, with the rows that are dropped.
    """
    by_file = {one.file: (one, dropped) for one, dropped in arrival}
    if not any((dropped | (one.times == NEVER)).any() for one, dropped in by_file.values()):
        return ()
    writer = None
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        for name in written:
            with pq.ParquetFile(name) as file:
                for batch in file.iter_batches(ROWS_AT_ONCE, columns=[*columns, *schema.SOURCE_IDENTITY]):
                    for found in _read_batch(batch, window, by_file):
                        writer = writer or pq.ParquetWriter(target, found.schema)
                        writer.write_batch(found)
    finally:
        if writer is not None:
            writer.close()
    return (str(target),)


def _read_batch(
    batch: pa.RecordBatch, window: WindowFacts, by_file: Mapping[str, tuple[FileArrival, Flags]]
) -> Iterator[pa.RecordBatch]:
    files = batch.column(schema.SOURCE_FILE).dictionary_encode()
    codes, rows = files.indices.to_numpy(), batch.column(schema.SOURCE_ROW).to_numpy()
    for code, name in enumerate(files.dictionary.to_pylist()):
        one, dropped = by_file[name]
        of_file = np.flatnonzero(codes == code)
        at = of_file[dropped[rows[of_file]] | (one.times[rows[of_file]] == NEVER)]
        if len(at):
            yield _with_reasons(batch.take(pa.array(at)), window, one.times[rows[at]], one.watermarks[rows[at]])


def _with_reasons(
    found: pa.RecordBatch, window: WindowFacts, times: NDArray[np.int64], watermarks: NDArray[np.int64]
) -> pa.RecordBatch:
    untimed = times == NEVER
    starts = window_starts(window, times)
    moments = {
        schema.WINDOW_START: starts, schema.WINDOW_END: starts + window.size_ms, schema.WATERMARK: watermarks,
    }  # fmt: skip
    for name, millis in moments.items():
        micros = pa.array(np.where(untimed, 0, millis) * 1000, pa.int64(), mask=untimed)
        found = found.append_column(name, micros.cast(MOMENT))
    reasons = pc.if_else(pa.array(untimed), schema.NO_EVENT_TIME, schema.TOO_LATE)
    return found.append_column(schema.REASON, reasons)
