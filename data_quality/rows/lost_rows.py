"""Finds the input rows that the output lacks, and their places: task and input_seq.

Within a task the rows of an input file are consecutive, so that a lost row's place is that of its
neighbour in the file, plus their distance. The following row is tried first, because there is no
place before a task's first row, but always one after its last.
"""

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from data_quality.rows.input_rows import InputRows, by_file
from data_quality.rows.run_output import RunOutput
from data_quality.rows.task_rows import Places
from data_quality.rows.watermarks import Lost, event_times_ms
from jobs.schema.columns import INPUT_SEQ, PARTITION, SOURCE_ROW
from jobs.schema.records import EventTimeFacts
from jobs.storage.urls import path_from_spark

_ROW, _TASK, _SEQ = range(3)
READ_AT_ONCE = 100_000  # input rows


def find_lost_rows(
    output: RunOutput, source: InputRows, event_time: EventTimeFacts
) -> dict[int, Lost]:
    """Returns the lost rows by task. Reads all tasks again, which happens only on a faulty day.

    A lost row is left out if no row of its file was written, or if other rows have both places that
    its neighbours give.
    """
    written, taken = _read_written(output)
    lost: dict[int, list[tuple[int, int]]] = {}
    for path, count in source.counts.items():
        placed = _place_lost(written.get(path, np.zeros((0, 3), np.int64)), count, taken)
        for _, near in groupby(placed, key=lambda place: place[_ROW] // READ_AT_ONCE):
            rows = list(near)
            first, last = rows[0][_ROW], rows[-1][_ROW]
            times = event_times_ms(source.read(path, first, last), event_time.column)
            for row, task, seq in rows:
                lost.setdefault(task, []).append((seq, int(times[row - first])))
    return {task: Lost(*np.array(rows, np.int64).T) for task, rows in lost.items()}


def _read_written(output: RunOutput) -> tuple[dict[str, Places], set[tuple[int, int]]]:
    """Returns by input file (row, task, input_seq) of the written rows in the order of the rows,
    and each (task, input_seq) that is taken.
    """
    by_file_parts: dict[str, list[Places]] = {}
    taken: set[tuple[int, int]] = set()
    for read in output.parts():
        rows = read()
        columns = np.column_stack(
            [rows.numbers(name) for name in (SOURCE_ROW, PARTITION, INPUT_SEQ)]
        )
        whole = np.nan_to_num(columns, nan=-1).astype(np.int64)
        taken.update(zip(whole[:, _TASK].tolist(), whole[:, _SEQ].tolist(), strict=True))
        for uri, at in by_file(rows).items():
            named = whole[at]
            named = named[(named >= 0).all(axis=1)]  # a null tells nothing about a neighbour
            by_file_parts.setdefault(path_from_spark(uri or ""), []).append(named)
    written = {path: np.concatenate(parts) for path, parts in by_file_parts.items()}
    return {
        path: rows[np.argsort(rows[:, _ROW], kind="stable")] for path, rows in written.items()
    }, taken


def _place_lost(
    written: Places, count: int, taken: set[tuple[int, int]]
) -> Iterator[tuple[int, int, int]]:
    """Yields the lost rows of a file, in order: row, task and input_seq. Adds them to `taken`."""
    lost = np.setdiff1d(np.arange(count), written[:, _ROW])
    after = np.searchsorted(written[:, _ROW], lost)
    for row, following in zip(lost.tolist(), after.tolist(), strict=True):
        for neighbour in (following, following - 1):
            if 0 <= neighbour < len(written):
                its_row, task, seq = written[neighbour].tolist()
                if (place := seq + row - its_row) >= 0 and (task, place) not in taken:
                    taken.add((task, place))
                    yield row, task, place
                    break
