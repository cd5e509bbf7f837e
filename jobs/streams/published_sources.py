"""Finds input files whose rows the table already has, which a stream must not enrich again."""

from collections.abc import Sequence
from pathlib import Path, PurePath

import pyarrow.compute as pc

from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.schema.columns import SOURCE_FILE
from jobs.storage.parquet_files import open_parquet, read_schema
from jobs.storage.urls import path_from_spark
from jobs.tables.delta.asked_keys import files_of_days


class PublishedSources:
    """Finds input files by the rows that batches of any stream or a day's run have published.

    Reads a single column, which has few values, of each file of the table, once.
    """

    def __init__(self, enrichment: Enrichment) -> None:
        self._enrichment = enrichment
        self._known: dict[str, frozenset[str]] = {}

    def without(self, files: Sequence[Path], day: str) -> list[Path]:
        """Return the files of a day whose rows no reader sees yet.

        Raises:
            DeclarationError: The table has rows of a file of the same name in another folder, which
                may be the same file; or another program rewrote the table's files.
        """
        published = self._day_sources(day)
        new = [file for file in files if str(file.resolve()) not in published]
        names = {PurePath(source).parts[-2:]: source for source in published}
        for file in new:
            if (source := names.get(file.parts[-2:])) is not None:
                raise DeclarationError(
                    f"{self._enrichment.name}: input: the table has rows of {source}, which may be "
                    f"{file} before its folder was moved; {self._cure(day)}"
                )
        return new

    def _cure(self, day: str) -> str:
        return (
            f"run the day, `tidegate run {self._enrichment.name} --day {day}`, and start the "
            "stream again."
        )

    def _day_sources(self, day: str) -> set[str]:
        files = list(files_of_days(self._enrichment))
        self._known = {
            file: known for _, file in files if (known := self._known.get(file)) is not None
        }
        for file_day, file in files:
            if file_day == day and file not in self._known:
                if SOURCE_FILE not in read_schema(file).names:
                    raise DeclarationError(
                        f"{self._enrichment.name}: output: another program rewrote {file}, as "
                        "OPTIMIZE does, so that the table no longer tells which input files it has "
                        f"rows of; {self._cure(day)}"
                    )
                self._known[file] = sources(file)
        return {
            source for file_day, file in files if file_day == day for source in self._known[file]
        }


def sources(file: str) -> frozenset[str]:
    with open_parquet(file, read_dictionary=[SOURCE_FILE]) as opened:
        column = opened.read([SOURCE_FILE])[SOURCE_FILE]
    return frozenset(
        path_from_spark(uri) for uri in pc.unique(column).to_pylist() if uri is not None
    )
