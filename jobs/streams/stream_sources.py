"""The inputs of streams: the files that Spark's file source watches, and a batch's new files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jobs.declare.enrichment import Enrichment
from jobs.input.day import InputDay, of_files
from jobs.streams.published_sources import PublishedSources
from jobs.streams.stream_files import by_day, files_of_batch
from jobs.tables.delta.type_check import published_columns, published_table

PARQUET = "*.[pP][aA][rR][qQ][uU][eE][tT]"


@dataclass(frozen=True)
class Watched:
    """Where Spark's file source looks for files, each seen once. Both are globs."""

    folders: str
    names: str


class Batch(Protocol):
    """The input of a batch."""

    @property
    def days(self) -> Sequence[str]:
        """The days in order; a day may have nothing new."""

    def new_files(self, day: str) -> Sequence[Path]:
        """Returns the files that readers do not see yet; the caller has the day's lease."""

    def rows_of(self, files: Sequence[Path]) -> InputDay:
        """Returns the rows of these files, in the types of the table; it may have no rows."""


class StreamSource(Protocol):
    """The input of a stream.

    Methods raise DeclarationError if a stream cannot tell which of its rows are new.
    """

    def watched(self) -> Watched: ...

    def batch(self, number: int) -> Batch:
        """Returns the input of a batch that has begun."""


class FolderSource:
    """Parquet files in folders of days."""

    def __init__(self, enrichment: Enrichment, checkpoint: Path) -> None:
        self._enrichment, self._declared, self._checkpoint = (
            enrichment,
            enrichment.input,
            checkpoint,
        )
        self._published = PublishedSources(enrichment)

    def watched(self) -> Watched:
        """Returns the folders of all days: the files in them, without subfolders."""
        return Watched(
            f"{Path(self._declared.path).absolute()}/{self._declared.partition}=*", PARQUET
        )

    def batch(self, number: int) -> Batch:
        files = by_day(files_of_batch(self._checkpoint, number), self._declared)
        return _FolderBatch(self._enrichment, files, self._published)


@dataclass(frozen=True)
class _FolderBatch:
    enrichment: Enrichment
    files: dict[str, list[Path]]
    published: PublishedSources

    @property
    def days(self) -> Sequence[str]:
        return list(self.files)

    def new_files(self, day: str) -> Sequence[Path]:
        return self.published.without(self.files[day], day)

    def rows_of(self, files: Sequence[Path]) -> InputDay:
        columns = published_columns(published_table(self.enrichment))
        return of_files(files, columns, table=self.enrichment.output.path)
