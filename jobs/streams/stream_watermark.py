"""Keeps the watermark of a stream from batch to batch in the checkpoint's folder.

A task begins each batch without a watermark, so the column `_late` is true only for rows late
within their own task. This module counts the rows that are late against the batches before, too.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from jobs.declare.enrichment import EventTime
from jobs.schema import columns as schema
from jobs.schema.records import DayRecord
from jobs.storage import durable
from jobs.task.windows.arrival import NEVER, Millis, event_times_ms

FILE = "watermark.json"


class StreamWatermark:
    """The greatest event time of all published batches, in the declared column.

    Args:
        event_time: As declared; None: no row is late.
        checkpoint: The folder of the query's checkpoint.
    """

    def __init__(self, event_time: EventTime | None, checkpoint: Path) -> None:
        self._event_time, self._file = event_time, checkpoint / FILE
        self._greatest = NEVER
        if durable.is_there(self._file):
            stored = json.loads(self._file.read_text(encoding="utf-8"))
            column = "" if event_time is None else event_time.column.lower()
            if stored.get("column", column) == column:  # a checkpoint of 0.1.0 names no column
                self._greatest = int(stored["greatest_event_time_ms"])

    def advance(self, records: Sequence[DayRecord]) -> int:
        """Add the rows of a published batch. Returns how many of them were late, for their task or
        for the stream. Adding the same batch again leaves the watermark as it is.
        """
        if self._event_time is None:
            return 0
        bound = round(self._event_time.max_out_of_orderness.total_seconds() * 1000)
        latest_late = self._greatest - bound - 1
        late = 0
        greatest = self._greatest
        column = self._event_time.column.lower()
        for times, marked in _rows(records, column):
            late += int((marked | ((times > NEVER) & (times <= latest_late))).sum())
            greatest = max(greatest, int(times.max(initial=NEVER)))
        if greatest > self._greatest:
            stored = {"column": column, "greatest_event_time_ms": greatest}
            durable.write(self._file, json.dumps(stored).encode())
            self._greatest = greatest
        return late


def _rows(
    records: Sequence[DayRecord], column: str
) -> Iterator[tuple[Millis, np.typing.NDArray[np.bool_]]]:
    """Yield event times, and whether the row is late for its task.

    A killed process may have published files without these columns, before event_time was declared.
    """
    for file in (file for record in records for file in record.facts.files):
        with pq.ParquetFile(file) as opened:
            # a declaration ignores case
            names = {name.lower(): name for name in opened.schema_arrow.names}
            wanted = [names[name] for name in (column, schema.LATE) if name in names]
            for batch in opened.iter_batches(columns=wanted) if column in names else ():
                times = event_times_ms(batch.column(names[column]))
                late = np.zeros(len(times), np.bool_)
                if schema.LATE in names:
                    late = batch.column(schema.LATE).to_numpy(zero_copy_only=False).astype(bool)
                yield times, late
