"""Computes segments and late rows from the event times, task by task."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_quality.rows.task_rows import Flags, Places, TaskRows
from jobs.arrow_values import one_chunk
from jobs.schema.columns import INPUT_SEQ
from jobs.schema.records import EventTimeFacts

NO_TIME = np.iinfo(np.int64).min // 2


@dataclass(frozen=True)
class TrueMarks:
    segment: Places
    late: Flags
    gaps: int  # places where an input_seq is missing


def event_times_ms(table: pa.Table, column: str) -> Places:
    """Return event times in whole ms since the epoch; an integer column is used unchanged."""
    values = one_chunk(table[column])
    if pa.types.is_integer(values.type):
        times = values.cast(pa.int64())
    else:
        zone = values.type.tz if pa.types.is_timestamp(values.type) else None
        times = values.cast(pa.timestamp("us", zone)).cast(pa.int64())
    whole: Places = pc.fill_null(times, 0).to_numpy(zero_copy_only=False)
    whole = whole if pa.types.is_integer(values.type) else np.floor_divide(whole, 1000)
    return np.where(values.is_null().to_numpy(zero_copy_only=False), NO_TIME, whole)


def true_marks(rows: TaskRows, declared: EventTimeFacts) -> TrueMarks:
    """Compute the marks: a watermark follows every record that raises the largest event time; a
    duplicated row counts once.
    """
    seq = np.nan_to_num(rows.numbers(INPUT_SEQ), nan=-1).astype(np.int64)
    times = event_times_ms(rows.table, declared.column)
    order = np.argsort(seq, kind="stable")
    seq, times = seq[order], times[order]
    is_first = np.diff(seq, prepend=-2) != 0
    # rows with a smaller place
    before_it = np.maximum.accumulate(np.where(is_first, np.arange(len(seq)), 0))
    largest = np.append(NO_TIME, np.maximum.accumulate(times))[before_it]
    raised = np.append(0, np.cumsum(is_first & (times > largest)))
    known = (times > NO_TIME) & (largest > NO_TIME)
    late = known & (times <= largest - round(declared.max_out_of_orderness * 1000) - 1)
    back: NDArray[np.int64] = np.argsort(order)
    gaps = int((np.diff(seq, prepend=-1) > 1).sum())
    return TrueMarks(raised[before_it][back], late[back], gaps)
