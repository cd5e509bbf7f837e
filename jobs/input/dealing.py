"""Deals the row groups of a day's files to tasks: consecutive rows, about as many to each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.input.file_rows import FilePart
from jobs.storage.urls import absolute, is_url

if TYPE_CHECKING:
    from jobs.input.day import InputDay

Parts = Sequence[Sequence[FilePart]]  # of each task

BYTES_PER_TASK = 4 << 20  # of columns, below which rows of one file are not worth a second task
ROW_BITS = 40  # of a number that names a row of a day: the number of its file is above them
# characters of a path that Java writes as escapes: ASCII that a URI cannot have, spaces, controls
QUOTED = re.compile(r"[^\w/\-.!~*'(),;:$&+=@\u00a1-\U0010ffff]|[\s\u0080-\u00a0]")


def deal(day: InputDay, at_most: int) -> tuple[tuple[FilePart, ...], ...]:
    """Divide the rows of a day.

    Rows go to tasks in the order of their files' URLs, and in the order of each file.

    Args:
        day: A day of files whose row groups are known.
        at_most: The most tasks.

    Returns:
        The parts of each task, at least of one. No task is without rows unless the day has none.
    """
    tasks = max(1, min(at_most, max(len(day.files), -(-day.bytes // BYTES_PER_TASK))))
    dealt: dict[int, list[FilePart]] = {}
    done, total = 0, sum(map(sum, day.groups))
    for url, number in sorted((spark_url(file), number) for number, file in enumerate(day.files)):
        row = 0
        place = absolute(day.files[number])
        for group, rows in enumerate(day.groups[number]):
            if not rows:
                continue
            of_task = dealt.setdefault((done + rows // 2) * tasks // total, [])
            if of_task and of_task[-1].file == number:
                before = of_task.pop()
                of_task.append(
                    FilePart(place, url, number, (before.groups[0], group + 1), before.row)
                )
            else:
                of_task.append(FilePart(place, url, number, (group, group + 1), row))
            row += rows
            done += rows
    return tuple(map(tuple, dealt.values())) or ((),)


def find_tasks(
    parts: Parts, files: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Return the task of each row, and the URL of its file.

    Args:
        parts: The parts of each task.
        files: The number of each row's file in the day.
        rows: The number of each row in its file.
    """
    dealt = sorted(
        (part.file << ROW_BITS | part.row, task, part.url)
        for task, own in enumerate(parts)
        for part in own
    )
    firsts = np.array([first for first, _, _ in dealt], np.int64)
    at = np.searchsorted(firsts, files.astype(np.int64) << ROW_BITS | rows, side="right") - 1
    tasks = np.array([task for _, task, _ in dealt], np.int32)
    return tasks[at], pa.array([url for _, _, url in dealt], pa.string()).take(pa.array(at))


def spark_url(file: str) -> str:
    """Name the file as Spark's `_metadata.file_path` does, with one slash; keep a URL as it is."""
    path = absolute(file)
    return (
        path if is_url(path) else f"file:{QUOTED.sub(lambda found: quote(found[0], safe=''), path)}"
    )
