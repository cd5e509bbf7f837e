"""The inputs of streams: the files that Spark's file source watches, and a batch's new files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.input.day import InputDay, of_files
from jobs.storage.urls import for_spark
from jobs.streams.published_sources import PublishedSources
from jobs.streams.stream_files import by_day, files_of_batch

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
        """Return the files that readers do not see yet; the caller has the day's lease."""

    def rows_of(self, files: Sequence[Path], published: pa.Schema | None) -> InputDay:
        """Return the rows of these files, in the types of the published table; maybe none."""


class StreamSource(Protocol):
    """The input of a stream.

    Methods raise DeclarationError if a stream cannot tell which of its rows are new.
    """

    def watched(self) -> Watched: ...

    def batch(self, number: int) -> Batch:
        """Return the input of a batch that has begun."""


class FolderSource:
    """Parquet files in folders of days."""

    def __init__(self, enrichment: Enrichment, checkpoint: Path) -> None:
        self._enrichment, self._checkpoint = enrichment, checkpoint
        self._published = PublishedSources(enrichment)

    def watched(self) -> Watched:
        """Return the folders of all days: the files in them, without subfolders."""
        declared = self._enrichment.input
        root = for_spark(str(Path(declared.path).absolute()))
        return Watched(f"{root}/{declared.partition}=*", PARQUET)

    def batch(self, number: int) -> Batch:
        files = by_day(files_of_batch(self._checkpoint, number), self._enrichment.input)
        return _FolderBatch(self._enrichment, files, self._published, self._checkpoint)


@dataclass(frozen=True)
class _FolderBatch:
    enrichment: Enrichment
    files: dict[str, list[Path]]
    published: PublishedSources
    checkpoint: Path

    @property
    def days(self) -> Sequence[str]:
        return list(self.files)

    def new_files(self, day: str) -> Sequence[Path]:
        new = self.published.without(self.files[day], day)
        if gone := next((file for file in new if not file.exists()), None):
            raise DeclarationError(
                f"{self.enrichment.name}: input: {gone} was deleted before the stream read it. "
                f"Restore it, or delete {self.checkpoint}: a new checkpoint leaves out the files "
                "that the table has rows of."
            )
        return new

    def rows_of(self, files: Sequence[Path], published: pa.Schema | None) -> InputDay:
        try:
            return of_files(files, published, table=self.enrichment.output.path)
        except DeclarationError as error:  # the stream has listed the file and would miss it
            error.args = (str(error).replace(", or remove it.", "."), *error.args[1:])
            raise
