"""Which task reads which row of a day's files, as Spark has planned it: its tasks, the parts of files in each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from jobs.input.file_rows import FilePart, middle_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# as Spark's PartitionedFile writes itself
SPLIT = re.compile(r"path: (?P<url>.*), range: (?P<start>\d+)-(?P<end>\d+), partition values: .*")


@dataclass(frozen=True)
class Split:
    task: int
    url: str  # of its file, as Spark's _metadata.file_path has it
    start: int  # byte of the file
    end: int

    @property
    def path(self) -> Path:
        return Path(unquote(self.url.removeprefix("file:")))


def splits_of(prepared: DataFrame) -> list[Split]:
    """Ask Spark for the plan of a DataFrame that is read straight from files."""
    jvm: Any = prepared.sparkSession._jvm  # noqa: SLF001  # Spark shows partitions to Scala only
    planned = prepared._jdf.queryExecution().toRdd().partitions()  # noqa: SLF001
    found = []
    for task, partition in enumerate(planned):
        for read in _read_by(partition):
            if read.getClass().getSimpleName() != "FilePartition":  # of a reader that is not Spark's own
                continue
            for line in jvm.scala.collection.mutable.ArraySeq.make(read.files()).mkString("\n").split("\n"):
                split = SPLIT.fullmatch(line)
                assert split is not None, line
                url = split["url"].replace("file:///", "file:/", 1)
                found.append(Split(task, url, int(split["start"]), int(split["end"])))
    return found


def _read_by(partition: Any) -> list[Any]:
    """The file partitions behind one of a DataFrame: several where they were coalesced."""
    if partition.getClass().getSimpleName() != "CoalescedRDDPartition":
        return [partition]
    parents = partition.parents()
    return [parents.apply(number) for number in range(parents.size())]


@dataclass(frozen=True)
class FilePlaces:
    """The rows of one file: from `first[n]` on they are read by `tasks[n]`."""

    url: str
    first: npt.NDArray[np.int64]
    tasks: npt.NDArray[np.int32]

    def tasks_of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        found: npt.NDArray[np.int32] = self.tasks[np.searchsorted(self.first, rows, side="right") - 1]
        return found


def places_in(path: Path, splits: list[Split]) -> FilePlaces:
    """splits: all of this file. Of several, a row group belongs to the one in which its middle byte lies."""
    own = [split for split in splits if split.path == path]
    tasks = {split.task for split in own}
    if len(tasks) == 1:
        return FilePlaces(own[0].url, np.zeros(1, np.int64), np.array([own[0].task], np.int32))
    first, of_groups, row = [], [], 0
    footer = pq.read_metadata(path)
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        first.append(row)
        of_groups.append(next(split.task for split in own if split.start <= middle_of(group) < split.end))
        row += group.num_rows
    return FilePlaces(own[0].url, np.array(first, np.int64), np.array(of_groups, np.int32))


def parts_of(splits: list[Split], tasks: int) -> tuple[tuple[FilePart, ...], ...]:
    """What each task reads, in Spark's order."""
    found: list[list[FilePart]] = [[] for _ in range(tasks)]
    for split in splits:
        found[split.task].append(FilePart(str(split.path), split.url, split.start, split.end))
    return tuple(map(tuple, found))
