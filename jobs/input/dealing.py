"""Deals the row groups of a day's files to tasks: consecutive rows, about as many to each."""

import re
from collections.abc import Sequence
from urllib.parse import quote

from jobs.input.day import InputDay
from jobs.input.file_rows import FilePart
from jobs.storage.urls import absolute, is_url

Parts = Sequence[Sequence[FilePart]]  # of each task

BYTES_PER_TASK = 4 << 20  # of columns, below which rows of one file are not worth a second task
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


def spark_url(file: str) -> str:
    """Name the file as Spark's `_metadata.file_path` does, with one slash; keep a URL as it is."""
    path = absolute(file)
    return (
        path if is_url(path) else f"file:{QUOTED.sub(lambda found: quote(found[0], safe=''), path)}"
    )
