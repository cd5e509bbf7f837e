"""Copies rows of published files to new files with all columns, also those only in files."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.schema.records import WrittenFile
from jobs.storage.new_files import Writable, copy_file, new_file, written_bytes
from jobs.storage.parquet_files import RunTask, open_parquet, read_footer, read_schema
from jobs.storage.stored_files import StoredFile
from jobs.storage.urls import below

Source = tuple[str, pa.BooleanArray]  # a file, and which of its rows

ROWS_AT_ONCE = 1 << 16

LEAST_ROWS = 100_000  # of a file that is taken over whole; smaller files are joined
MOST_ROWS = 1_000_000  # of a joined file
KEPT = "kept-"  # begins the names of its files
NAME = KEPT + "{:05}-{}.parquet"


def copy_rows(source: str, target: Path, choose: Callable[[pa.RecordBatch], pa.Array]) -> int:
    """Copy the rows of a file that a function chooses by flags. Returns their number."""
    with open_parquet(source) as opened, _writer(target, opened.schema_arrow) as writer:
        for batch in opened.iter_batches(ROWS_AT_ONCE):
            writer.write_batch(batch.filter(choose(batch)))
    return int(pq.read_metadata(target).num_rows)


def keep_rows(sources: Sequence[Source], folder: str, run: RunTask) -> list[WrittenFile]:
    """Have tasks write the chosen rows of these files to files in `folder`.

    A large file of which all rows are chosen is linked, or copied by the store, so that its bytes
    are neither read nor written here.

    Args:
        sources: Places of files, each with its chosen rows.
        folder: Path or URL.
        run: Runs a task on each of several parts.

    Returns:
        The new files, in the order of the sources.

    Raises:
        OSError: A file cannot be read or written.
    """
    parts = list(enumerate(_deal(sources)))
    found = run(lambda part, _facts: _keep(part[0], part[1], folder), parts)
    return [file for of_part in found for file in of_part]


def _deal(sources: Iterable[Source]) -> list[list[Source]]:
    """Divide them into parts: each large file that is kept whole by itself, rows of others
    together.
    """
    parts: list[list[Source]] = []
    rows = MOST_ROWS
    for source, chosen in sources:
        if _is_whole(chosen):
            parts.append([(source, chosen)])
            rows = MOST_ROWS
        elif chosen.true_count:
            if rows >= MOST_ROWS:
                parts.append([])
                rows = 0
            parts[-1].append((source, chosen))
            rows += chosen.true_count
    return parts


def _is_whole(chosen: pa.BooleanArray) -> bool:
    return len(chosen) >= LEAST_ROWS and chosen.true_count == len(chosen)


def _keep(number: int, sources: Sequence[Source], folder: str) -> list[WrittenFile]:
    source, chosen = sources[0]
    if _is_whole(chosen):
        place = below(folder, NAME.format(number, 0))
        copy_file(source, place)
        return [WrittenFile(place, StoredFile.at(place).size, len(chosen))]
    found: list[WrittenFile] = []
    for columns, of_columns in itertools.groupby(
        sources, key=lambda source: read_schema(source[0])
    ):
        place = below(folder, NAME.format(number, len(found)))
        with new_file(place) as target:
            with _writer(target, columns) as writer:
                for source, chosen in of_columns:
                    _add(source, chosen, writer)
            size = written_bytes(target)
        found.append(WrittenFile(place, size, read_footer(place).num_rows))
    return found


def _add(source: str, chosen: pa.BooleanArray, writer: pq.ParquetWriter) -> None:
    start = 0
    with open_parquet(source) as opened:
        for batch in opened.iter_batches(ROWS_AT_ONCE):
            writer.write_batch(batch.filter(chosen.slice(start, batch.num_rows)))
            start += batch.num_rows


def _writer(target: Writable, columns: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(target, columns, compression="snappy")
