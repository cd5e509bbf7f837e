"""Finds input rows that the files lack, by the gap between their neighbours in the task.

Within a task the rows of an input file are consecutive, so the nearest following row of that file,
or else the nearest preceding row, determines task and input_seq: a task always has room after its
last row, and none before its first.
"""

from collections.abc import Iterator

import numpy as np

from data_quality.rows.input_rows import InputRows, by_file, path_of
from data_quality.rows.run_output import Places, RunOutput
from data_quality.rows.watermarks import Lost, event_times_ms
from jobs.schema.columns import INPUT_SEQ, PARTITION, SOURCE_ROW
from jobs.schema.records import EventTimeFacts

_ROW, _TASK, _SEQ = range(3)


def find(output: RunOutput, source: InputRows, event_time: EventTimeFacts) -> dict[int, Lost]:
    """Returns the lost rows by task. Reads all tasks again, which happens only on a faulty day."""
    there, taken = _there(output)
    found: dict[int, list[tuple[int, int]]] = {}
    for path, count in source.counts.items():
        known = there.get(path, np.zeros((0, 3), np.int64))
        for row, task, seq in _placed(known, count, taken):
            given = source.read(path, row, row)
            found.setdefault(task, []).append(
                (seq, int(event_times_ms(given, event_time.column)[0]))
            )
    return {task: Lost(*np.array(rows, np.int64).T) for task, rows in found.items()}


def _there(output: RunOutput) -> tuple[dict[str, Places], set[tuple[int, int]]]:
    files: dict[str, list[Places]] = {}
    taken: set[tuple[int, int]] = set()
    for read in output.parts():
        rows = read()
        columns = np.column_stack(
            [rows.numbers(name) for name in (SOURCE_ROW, PARTITION, INPUT_SEQ)]
        )
        whole = np.nan_to_num(columns, nan=-1).astype(np.int64)
        taken.update(zip(whole[:, _TASK].tolist(), whole[:, _SEQ].tolist(), strict=True))
        for uri, at in by_file(rows).items():
            files.setdefault(path_of(uri or ""), []).append(whole[at])
    ordered = {path: np.concatenate(parts) for path, parts in files.items()}
    return {
        path: rows[np.argsort(rows[:, _ROW], kind="stable")] for path, rows in ordered.items()
    }, taken


def _placed(
    known: Places, count: int, taken: set[tuple[int, int]]
) -> Iterator[tuple[int, int, int]]:
    lost = np.setdiff1d(np.arange(count), known[:, _ROW])
    after = np.searchsorted(known[:, _ROW], lost)
    for row, following in zip(lost.tolist(), after.tolist(), strict=True):
        for neighbour in (following, following - 1):
            if 0 <= neighbour < len(known):
                beside, task, seq = known[neighbour].tolist()
                if (place := seq + row - beside) >= 0 and (task, place) not in taken:
                    yield row, task, place
                    break
