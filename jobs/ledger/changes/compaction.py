"""Compacts many small parts into a few sorted files and removes obsolete files. Loses no answer.

A compaction only adds: it writes the files of a new generation, then the object that marks it
complete. Until then readers use the old files; afterwards the compacted parts stay for a grace
period, for readers that listed them before. A crash leaves files that no generation names; a later
compaction removes them. Of two concurrent changes the first counts, and the other gives up. For the
files that may be deleted see jobs/ledger/generations.py.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import count, pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.arrow_values import bunches
from jobs.errors import LedgerError
from jobs.ledger.answers import LARGEST
from jobs.ledger.changes.merging import SortedFile, in_order, merged
from jobs.ledger.generations import (
    COMPACTED,
    COMPLETE,
    CompactedFile,
    Contents,
    NewFiles,
    Overtaken,
    complete_generations,
    contents,
    list_compacted,
    number_in,
)
from jobs.ledger.journal import JOURNAL
from jobs.ledger.scan import read_parts
from jobs.ledger.store import PARTS, ForeignFile, LedgerFolder, as_parquet
from jobs.storage.locked_folders import temporary_folder
from jobs.storage.stored_files import error_text
from jobs.wording import counted

GRACE = timedelta(days=1)
ROWS_PER_FILE = 500_000
# rows of parts sorted at once, up to LARGEST bytes; more rows are sorted in runs on the local disk
ROWS_IN_MEMORY = 1_000_000


@dataclass(frozen=True)
class Compacted:
    """The result of a compaction.

    Attributes:
        given_up: Whether another compaction or `forget` was first, and nothing changed.
    """

    parts_taken_in: int = 0
    rows: int = 0  # records in the generation
    rows_dropped: int = 0  # records that no longer count
    deleted: int = 0  # obsolete files
    given_up: bool = False

    @property
    def words(self) -> str:
        if self.given_up:
            return "given up: another compaction was first"
        return (
            f"{counted(self.rows, 'record')}; {counted(self.parts_taken_in, 'part')} taken in, "
            f"{counted(self.rows_dropped, 'record')} dropped, {counted(self.deleted, 'file')} "
            "deleted"
        )


def compact(
    folder: LedgerFolder, *, grace: timedelta = GRACE, now_us: int | None = None
) -> Compacted:
    """Compact new parts into a new generation, and delete files made obsolete over `grace` ago.

    Drops records that no longer affect their key: answers that were refreshed or have a newer
    answer, marks of calls whose answer is stored, and marks of refreshes over 400 days old. Answers
    beyond their time to live stay. Safe beside running jobs, readers and other compactions, if
    `grace` is longer than a reader takes. Memory: about two million records, or some GB.

    Args:
        folder: The ledger's folder.
        grace: Time for which compacted or replaced files stay.
        now_us: µs since the epoch; by default the clock's.

    Raises:
        LedgerError: Something cannot be read or written; nothing changes then.
    """
    now_us = _now(now_us)
    current = contents(folder)
    try:
        done = _new_generation(folder, current, now_us)
    except Overtaken:
        return Compacted(given_up=True)
    except (pa.ArrowException, OSError) as error:
        is_gone = isinstance(error, FileNotFoundError)
        if is_gone and contents(folder).generation != current.generation:
            return Compacted(given_up=True)  # another change was first, and deleted its input
        raise LedgerError(
            f"ledger {folder.root!r}: its compacted files cannot be read: {error_text(error)}. "
            "Nothing was changed."
        ) from error
    return replace(done, deleted=sweep(folder, grace, now_us))


def _new_generation(folder: LedgerFolder, current: Contents, now_us: int) -> Compacted:
    old = current.files
    new = NewFiles(folder, current.generation)
    with temporary_folder() as temporary, ExitStack() as opened:
        sorted_parts = _SortedParts(
            folder, _ended(folder, current.parts, now_us), Path(temporary), now_us
        )
        if not sorted_parts.taken_in:
            return Compacted(rows=sum(file.rows for file in old))
        files = [SortedFile(opened.enter_context(open_compacted(folder, file))) for file in old]
        files += [
            SortedFile(opened.enter_context(pq.ParquetFile(path))) for path in sorted_parts.files
        ]
        written = [
            write_compacted(folder, new.next_name(), table)
            for table in merged(files, ROWS_PER_FILE, now_us=now_us)
        ]
    generation = new.complete(
        written, current.taken_in | dict.fromkeys(sorted_parts.taken_in, now_us), now_us
    )
    before = sorted_parts.rows + sum(file.rows for file in old)
    return Compacted(
        len(sorted_parts.taken_in), generation.rows, rows_dropped=before - generation.rows
    )


def _ended(folder: LedgerFolder, parts: Sequence[str], now_us: int) -> list[str]:
    """Return the parts without young journals, to which a task may still append."""
    if not any(part.endswith(JOURNAL) for part in parts):
        return [*parts]
    since_ns = (now_us - GRACE // timedelta(microseconds=1)) * 1000
    start = len(folder.path) + len(PARTS) + 2
    young = {info.path[start:] for info in folder.files(PARTS) if info.mtime_ns > since_ns}
    return [part for part in parts if not part.endswith(JOURNAL) or part not in young]


class _SortedParts:
    """Sorts the records of parts into files on the local disk, and names the readable parts."""

    def __init__(
        self, folder: LedgerFolder, parts: Sequence[str], temporary: Path, now_us: int
    ) -> None:
        self.taken_in: list[str] = []
        self.rows = 0
        held = bunches(self._read(folder, parts), rows=ROWS_IN_MEMORY, size=LARGEST)
        sort = partial(_sort, folder, now_us)
        self.files = [*map(sort, (temporary / f"{number}.parquet" for number in count()), held)]

    def _read(self, folder: LedgerFolder, parts: Sequence[str]) -> Iterator[pa.Table]:
        for part, table in read_parts(folder, parts):
            self.taken_in.append(part)
            self.rows += len(table)
            if len(table):  # a task killed early leaves a journal without records
                yield table


def _sort(folder: LedgerFolder, now_us: int, path: Path, tables: Sequence[pa.Table]) -> Path:
    """Write the newest records of these tables in the order of their keys. Returns the file."""
    try:
        path.write_bytes(as_parquet(in_order(pa.concat_tables(tables), now_us)))
    except OSError as error:
        raise LedgerError(
            f"ledger {folder.root!r}: answers cannot be sorted in {path.parent.parent}: "
            f"{error_text(error)}. Make room there, or set TMPDIR to a larger disk."
        ) from error
    return path


def open_compacted(folder: LedgerFolder, file: CompactedFile) -> pq.ParquetFile:
    """Open a generation's file. Raises LedgerError if it is torn: answers would be missing."""
    name = f"{COMPACTED}/{file.name}"
    try:
        return folder.open(name)
    except ForeignFile as error:
        raise LedgerError(
            f"ledger {folder.root!r}: {name} cannot be read: {error}. Nothing was changed; restore "
            "it from a copy: otherwise calls for the answers that only it holds are paid again."
        ) from error


def read_records(
    folder: LedgerFolder, current: Contents, columns: Sequence[str], parts: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield these columns of all compacted records, then the whole of these parts.

    Raises:
        LedgerError: A file cannot be read, or a compacted file is torn.
    """
    for file in current.files:
        with open_compacted(folder, file) as opened:
            for number in range(opened.metadata.num_row_groups):
                try:
                    yield opened.read_row_group(number, columns=columns)
                except (pa.ArrowException, OSError) as error:
                    raise folder.unreadable(f"{COMPACTED}/{file.name}", error) from error
    yield from (table for _, table in read_parts(folder, parts))


def write_compacted(folder: LedgerFolder, name: str, table: pa.Table) -> CompactedFile:
    folder.replace(f"{COMPACTED}/{name}", as_parquet(table), lasting=True)
    return CompactedFile(name, len(table), table["key"][0].as_py(), table["key"][-1].as_py())


# -- obsolete files --------------------------------------------------------------------------------
def sweep(folder: LedgerFolder, grace: timedelta | None, now_us: int) -> int:
    """Delete obsolete files, and files of crashed changes.

    Parts are obsolete once they were compacted over `grace` ago, generations once they were
    replaced over `grace` ago.

    Args:
        folder: The ledger's folder.
        grace: Time for which obsolete files stay. None: none stays, even if clocks differ and files
            seem to be from the future.
        now_us: µs since the epoch.

    Returns:
        The number of deleted files.
    """
    files = list_compacted(folder)
    try:
        whole = list(complete_generations(folder, files))
    except FileNotFoundError:  # another change replaced and deleted it
        return 0
    if not whole:
        return 0
    newest, grace_us = whole[0], None if grace is None else grace // timedelta(microseconds=1)
    needed = [newest]
    needed += [
        old
        for new, old in pairwise(whole)
        if grace_us is not None and now_us - new.completed_at < grace_us
    ]
    names = {f"{generation.name}/{COMPLETE}" for generation in needed} | {
        file.name for generation in needed for file in generation.files
    }
    useless = [name for name in files if name not in names and _is_garbage(name, newest.number)]
    useless.sort(key=lambda name: not name.endswith(f"/{COMPLETE}"))  # complete.json goes first
    taken_in = {part: now_us - at for part, at in newest.taken_in.items()}
    parts = [
        part
        for part in folder.parts()
        if part in taken_in and (grace_us is None or taken_in[part] >= grace_us)
    ]
    folder.delete(
        *(f"{COMPACTED}/{name}" for name in useless), *(f"{PARTS}/{part}" for part in parts)
    )
    return len(useless) + len(parts)


def _is_garbage(name: str, newest: int) -> bool:
    """Return whether no generation uses a file; running changes have the next number."""
    number = number_in(name.partition("/")[0])
    return number is not None and number <= newest  # None: not a file of the ledger


def _now(now_us: int | None, clock: Callable[[], int] = time.time_ns) -> int:
    return clock() // 1000 if now_us is None else now_us
