"""Finds input files whose rows the table already has, which a stream must not enrich again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from jobs.schema.columns import SOURCE_FILE
from jobs.storage.parquet_files import open_parquet
from jobs.storage.urls import path_from_spark
from jobs.tables.delta.asked_keys import files_of_days

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment


class PublishedSources:
    """Finds input files by the rows that batches of any stream or a day's run have published.

    Reads a single column, which has few values, of each file of the table, once.
    """

    def __init__(self, enrichment: Enrichment) -> None:
        self._enrichment = enrichment
        self._known: dict[str, frozenset[str]] = {}

    def without(self, files: Sequence[Path], day: str) -> list[Path]:
        """Returns the files of a day whose rows no reader sees yet."""
        there = self._day_sources(day)
        return [file for file in files if str(file.resolve()) not in there]

    def _day_sources(self, day: str) -> set[str]:
        files = list(files_of_days(self._enrichment))
        self._known = {
            file: known for _, file in files if (known := self._known.get(file)) is not None
        }
        for of, file in files:
            if of == day and file not in self._known:
                self._known[file] = sources(file)
        return {source for of, file in files if of == day for source in self._known[file]}


def sources(file: str) -> frozenset[str]:
    with open_parquet(file, read_dictionary=[SOURCE_FILE]) as opened:
        column = opened.read([SOURCE_FILE])[SOURCE_FILE]
    return frozenset(
        path_from_spark(uri) for uri in pc.unique(column).to_pylist() if uri is not None
    )
