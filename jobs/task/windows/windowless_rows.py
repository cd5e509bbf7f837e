"""The rows of a written file that are late for every window or have no event time."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from jobs.schema import columns as schema
from jobs.schema.records import WindowFacts
from jobs.storage.new_files import new_file
from jobs.storage.parquet_files import open_parquet
from jobs.task.windows.arrival import (
    NEVER,
    ROWS_AT_ONCE,
    Arrival,
    ArrivedRows,
    Numbers,
    name_rows,
    read_arrived,
)

Flags = NDArray[np.bool_]
MOMENT = pa.timestamp("us", "UTC")


def window_starts(window: WindowFacts, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the start, in ms, of the last window of each time, or of the session that it opens."""
    return times - times % window.every_ms if window.every_ms else times


def find_dropped_rows(window: WindowFacts, arrived: ArrivedRows) -> Flags:
    """Return the rows that arrived after all their tumbling or sliding windows had closed."""
    ends = window_starts(window, arrived.times) + window.size_ms
    dropped: Flags = (arrived.times > NEVER) & (ends - 1 + window.lateness_ms <= arrived.watermarks)
    return dropped


def write_windowless(
    arrival: Arrival,
    columns: Sequence[str],
    window: WindowFacts,
    target: str,
    dropped: Numbers | None = None,
) -> tuple[str, int] | None:
    """Write the rows to a file, with their identity and the reason why they are in no window.

    Args:
        arrival: The arrival of the written file's rows.
        columns: The columns to write.
        window: The declared window.
        target: The new file's path or URL.
        dropped: Names of the rows that sessions dropped, by `name_rows`; None where the windows are
            not sessions.

    Returns:
        The new file and its number of rows; None if no row is without a window.
    """
    arrived = read_arrived(arrival)
    is_dropped = (
        find_dropped_rows(window, arrived)
        if dropped is None
        else np.isin(name_rows(arrived.places, arrived.rows), dropped)
    )
    wanted = is_dropped | (arrived.times == NEVER)
    if not wanted.any():
        return None
    start = 0
    with open_parquet(arrival.file) as file, new_file(target) as new:
        empty = file.schema_arrow.empty_table().select([*columns, *schema.SOURCE_IDENTITY])
        with pq.ParquetWriter(
            new, _with_reasons(empty, window, arrived.take(slice(0))).schema
        ) as writer:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=empty.column_names):
                at = start + np.flatnonzero(wanted[start : start + batch.num_rows])
                if len(at):
                    rows = (
                        pa.Table.from_batches([batch])
                        .select(empty.column_names)
                        .take(pa.array(at - start))
                    )
                    writer.write_table(_with_reasons(rows, window, arrived.take(at)))
                start += batch.num_rows
    return target, int(wanted.sum())


def _with_reasons(found: pa.Table, window: WindowFacts, arrived: ArrivedRows) -> pa.Table:
    untimed = arrived.times == NEVER
    starts = window_starts(window, arrived.times)
    moments = {
        schema.WINDOW_START: starts,
        schema.WINDOW_END: starts + window.size_ms,
        schema.WATERMARK: arrived.watermarks,
    }
    for name, millis in moments.items():
        micros = pa.array(np.where(untimed, 0, millis) * 1000, pa.int64(), mask=untimed)
        found = found.append_column(name, micros.cast(MOMENT))
    reasons = pc.if_else(pa.array(untimed, pa.bool_()), schema.NO_EVENT_TIME, schema.TOO_LATE)
    return found.append_column(schema.REASON, pa.array(reasons, pa.string()))
