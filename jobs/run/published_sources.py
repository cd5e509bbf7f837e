"""The input files whose rows readers of the table see already: a stream never enriches one twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.run.arrival import path_of
from jobs.schema import SOURCE_FILE
from jobs.tables.asked_keys import files_of_days

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment


class PublishedSources:
    """Finds the input files by the rows themselves, which batches of any stream or a day's run have published.

    Reads each file of the table once, and of it one column, which has few values.
    """

    def __init__(self, enrichment: Enrichment) -> None:
        self._enrichment = enrichment
        self._known: dict[str, frozenset[str]] = {}

    def without(self, files: Sequence[Path], day: str) -> list[Path]:
        """Those of the files of a day whose rows nobody sees yet."""
        there = self._of_day(day)
        return [file for file in files if str(file.resolve()) not in there]

    def _of_day(self, day: str) -> set[str]:
        found: set[str] = set()
        for of, file in files_of_days(self._enrichment):
            if of == day:
                if file not in self._known:
                    self._known[file] = _sources(file)
                found |= self._known[file]
        return found


def _sources(file: str) -> frozenset[str]:
    column = pq.read_table(file, columns=[SOURCE_FILE], read_dictionary=[SOURCE_FILE], partitioning=None)[SOURCE_FILE]
    return frozenset(path_of(uri) for uri in pc.unique(column).to_pylist() if uri is not None)
