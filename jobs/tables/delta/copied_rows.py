"""Copies rows of published files to new files with all columns, also those only in files."""

import contextlib
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.storage.parquet_files import parquet_source
from jobs.storage.urls import is_url
from jobs.tables.delta.asked_keys import ROWS_AT_ONCE

LEAST_ROWS = 100_000  # of a file that is taken over whole; smaller files are joined
MOST_ROWS = 1_000_000  # of a joined file
NAME = "kept-{:05}.parquet"


def copy_rows(source: str, target: Path, chosen: Iterable[pa.Array]) -> int:
    """Copies the chosen rows of a file; returns their number. chosen: per ROWS_AT_ONCE rows."""
    with pq.ParquetFile(parquet_source(source)) as opened, _writer(target, opened.schema_arrow) as writer:
        for batch, wanted in zip(opened.iter_batches(ROWS_AT_ONCE), chosen, strict=True):
            writer.write_batch(batch.filter(wanted))
    return int(pq.read_metadata(target).num_rows)


def keep_rows(sources: Sequence[tuple[str, pa.BooleanArray]], folder: Path) -> tuple[str, ...]:
    """Writes the chosen rows of these files, in their order, to files in `folder`.

    A large file of which all rows are chosen is linked, so that its bytes are neither read nor
    written if the disk supports links.

    Args:
        sources: Places of files, each with its chosen rows.
        folder: Gets the new files.

    Returns:
        The absolute paths of the new files.

    Raises:
        OSError: A file cannot be read or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(_KeptFiles(folder)) as kept:
        for source, chosen in sources:
            if not is_url(source) and len(chosen) >= LEAST_ROWS and chosen.true_count == len(chosen):
                kept.take_over(source)
            elif chosen.true_count:
                kept.add(source, chosen)
    return tuple(kept.paths)


class _KeptFiles:
    """The written files; the last file also takes the next source's rows if columns are equal."""

    def __init__(self, folder: Path) -> None:
        self.paths: list[str] = []
        self._folder = folder
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0  # of the last file

    def take_over(self, source: str) -> None:
        target = self._next()
        try:
            os.link(source, target)
        except OSError:  # for example on a disk without links
            shutil.copyfile(source, target)

    def add(self, source: str, chosen: pa.BooleanArray) -> None:
        with pq.ParquetFile(parquet_source(source)) as opened:
            writer, start = self._writer_for(opened.schema_arrow), 0
            for batch in opened.iter_batches(ROWS_AT_ONCE):
                wanted = batch.filter(chosen.slice(start, batch.num_rows))
                writer.write_batch(wanted)
                start += batch.num_rows
                self._rows += wanted.num_rows

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _writer_for(self, columns: pa.Schema) -> pq.ParquetWriter:
        if self._writer is not None and self._rows < MOST_ROWS and self._writer.schema.equals(columns):
            return self._writer
        self.close()
        self._writer, self._rows = _writer(self._next(), columns), 0
        return self._writer

    def _next(self) -> Path:
        path = self._folder / NAME.format(len(self.paths))
        self.paths.append(str(path.resolve()))
        return path


def _writer(target: Path, columns: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(target, columns, compression="snappy")
