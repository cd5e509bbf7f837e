"""Keeps the watermark of a stream from batch to batch in the checkpoint's folder.

A task begins each batch without a watermark, so `_late` compares a row only with the rows of its
task. This module counts rows that are late against the watermark of the batches before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from jobs.schema import columns as schema
from jobs.storage import durable
from jobs.task.windows.arrival import NEVER, Millis, event_times_ms

if TYPE_CHECKING:
    from jobs.declare.enrichment import EventTime
    from jobs.schema.records import DayRecord

FILE = "watermark.json"


class StreamWatermark:
    """The greatest event time of all published batches.

    Args:
        event_time: As declared; None: no row is late.
        checkpoint: The folder of the query's checkpoint.
    """

    def __init__(self, event_time: EventTime | None, checkpoint: Path) -> None:
        self._event_time, self._file = event_time, checkpoint / FILE
        self._greatest = NEVER
        if durable.is_there(self._file):
            self._greatest = int(json.loads(self._file.read_text())["greatest_event_time_ms"])

    def advance(self, records: Sequence[DayRecord]) -> int:
        """Adds the rows of a published batch. Returns how many of them were late, for their task or
        for the stream. Adding the same batch again changes nothing.
        """
        if self._event_time is None:
            return 0
        bound = round(self._event_time.max_out_of_orderness.total_seconds() * 1000)
        before, late, greatest = self._greatest - bound - 1, 0, self._greatest
        for times, marked in _rows(records, self._event_time.column):
            late += int((marked | ((times > NEVER) & (times <= before))).sum())
            greatest = max(greatest, int(times.max(initial=NEVER)))
        if greatest > self._greatest:
            durable.write(self._file, json.dumps({"greatest_event_time_ms": greatest}).encode())
            self._greatest = greatest
        return late


def _rows(
    records: Sequence[DayRecord], column: str
) -> Iterator[tuple[Millis, np.typing.NDArray[np.bool_]]]:
    """Yields event times, and whether the row is late for its task."""
    for file in (file for record in records for file in record.facts.files):
        with pq.ParquetFile(file) as opened:
            # a declaration ignores case
            names = {name.lower(): name for name in opened.schema_arrow.names}
            for batch in opened.iter_batches(columns=[names[column.lower()], schema.LATE]):
                times, late = batch.column(names[column.lower()]), batch.column(schema.LATE)
                yield event_times_ms(times), late.to_numpy(zero_copy_only=False).astype(bool)
