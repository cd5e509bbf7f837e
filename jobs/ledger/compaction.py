"""Compacts many small parts into a few sorted files and removes obsolete files. No answer is lost at any step.

A compaction only adds: it writes the files of a new generation, then the object that marks it complete. Until then
readers use the old files; afterwards the compacted parts stay for a grace period, for readers that listed them before.
A crash leaves files that no generation names; a later compaction removes them. Of two at once one or both give up.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import LedgerError
from jobs.ledger.answers import LARGEST
from jobs.ledger.generations import (
    COMPACTED,
    COMPLETE,
    CompactedFile,
    Contents,
    Generation,
    began,
    complete,
    complete_generations,
    contents,
    known_generations,
    name_after,
)
from jobs.ledger.journal import JOURNAL
from jobs.ledger.merging import SortedFile, in_order, merged
from jobs.ledger.scan import read_parts
from jobs.ledger.store import PARTS, ForeignFile, LedgerFolder, as_parquet
from jobs.storage.stored_files import error_text

GRACE = timedelta(days=1)
DEBRIS = timedelta(days=2)  # files that no generation names: longer than any compaction takes
ROWS_PER_FILE = 500_000
ROWS_IN_MEMORY = 1_000_000  # of parts sorted at once, up to LARGEST bytes; more are sorted in runs on the local disk


@dataclass(frozen=True)
class Compacted:
    """The result of a compaction. given_up: another one, or `forget`, was first; nothing changed."""

    parts_taken_in: int = 0
    files_written: int = 0
    rows: int = 0  # records in the generation
    rows_dropped: int = 0  # records that no longer count
    deleted: int = 0  # obsolete files
    given_up: bool = False


def compact(folder: LedgerFolder, *, grace: timedelta = GRACE, now_us: int | None = None) -> Compacted:
    """Compact new parts into a new generation, and delete files that were compacted or replaced over `grace` ago.

    Drops records that no longer affect their key: answers that were refreshed or have a newer one, marks of calls whose
    answer is stored, and marks of refreshes over 30 days old. Answers beyond their time to live stay. Safe beside
    running jobs, readers and other compactions, if `grace` is longer than a reader takes. Memory: about two million
    records, or some GB. Raises LedgerError if something cannot be read or written; nothing changes then.
    """
    now_us = _now(now_us)
    known = known_generations(folder)
    there = contents(folder)
    done = Compacted(rows=there.generation.rows if there.generation else 0)
    if there.parts:
        try:
            done = _new_generation(folder, there, known, now_us)
        except FileNotFoundError:  # another compaction was first and deleted the input of this one
            return Compacted(given_up=True)
        except (pa.ArrowException, OSError) as error:
            raise LedgerError(
                f"ledger {folder.root!r}: its compacted files cannot be read: {error_text(error)}. Nothing was changed."
            ) from error
    return done if done.given_up else replace(done, deleted=sweep(folder, grace, now_us))


def _new_generation(folder: LedgerFolder, there: Contents, known: frozenset[str], now_us: int) -> Compacted:
    base = there.generation
    old = base.files if base else ()
    name = name_after(base, now_us)
    with tempfile.TemporaryDirectory(prefix="tidegate-") as temporary, ExitStack() as opened:
        sorted_parts = _SortedParts(folder, _ended(folder, there.parts, now_us), Path(temporary), now_us)
        if not sorted_parts.taken_in:
            return Compacted(rows=base.rows if base else 0)
        files = [SortedFile(opened.enter_context(open_compacted(folder, file))) for file in old]
        files += [SortedFile(opened.enter_context(pq.ParquetFile(path))) for path in sorted_parts.files]
        tables = merged(files, ROWS_PER_FILE, now_us=now_us)
        written = tuple(
            write_compacted(folder, f"{name}/{number:05d}.parquet", table) for number, table in enumerate(tables)
        )
    taken_in = {part: base.taken_in[part] for part in there.parts_taken_in} if base else {}
    taken_in |= dict.fromkeys(sorted_parts.taken_in, now_us)
    generation = Generation(name, now_us, written, taken_in)
    if not complete(folder, generation, known):
        for file in written:
            folder.delete(f"{COMPACTED}/{file.name}")
        return Compacted(given_up=True)
    before = sorted_parts.rows + sum(file.rows for file in old)
    return Compacted(len(sorted_parts.taken_in), len(written), generation.rows, rows_dropped=before - generation.rows)


def _ended(folder: LedgerFolder, parts: Sequence[str], now_us: int) -> list[str]:
    """The parts without young journals, to which a task may still append: what it appends would count as compacted."""
    if not any(part.endswith(JOURNAL) for part in parts):
        return [*parts]
    since_ns = (now_us - GRACE // timedelta(microseconds=1)) * 1000
    start = len(folder.path) + len(PARTS) + 2
    young = {info.path[start:] for info in folder.files(PARTS) if info.mtime_ns > since_ns}
    return [part for part in parts if not part.endswith(JOURNAL) or part not in young]


class _SortedParts:
    """The records of the parts in sorted files on the local disk, and the names of the readable parts."""

    def __init__(self, folder: LedgerFolder, parts: Sequence[str], temporary: Path, now_us: int) -> None:
        self.files: list[Path] = []
        self.taken_in: list[str] = []
        self.rows = 0
        self._temporary = temporary
        self._now_us = now_us
        some: list[pa.Table] = []
        rows = size = 0  # of these
        for part, table in read_parts(folder, parts):
            if table is None:
                continue
            self.taken_in.append(part)
            self.rows += len(table)
            some.append(table)
            rows, size = rows + len(table), size + table.nbytes
            if rows >= ROWS_IN_MEMORY or size >= LARGEST:
                self._sort(folder, some)
                some, rows, size = [], 0, 0
        if some:
            self._sort(folder, some)

    def _sort(self, folder: LedgerFolder, some: list[pa.Table]) -> None:
        rows = in_order(pa.concat_tables(some), self._now_us)
        path = self._temporary / f"{len(self.files)}.parquet"
        try:
            path.write_bytes(as_parquet(rows))
        except OSError as error:
            raise LedgerError(
                f"ledger {folder.root!r}: answers cannot be sorted in {path.parent.parent}: {error_text(error)}. Make "
                "room there, or set TMPDIR to a larger disk."
            ) from error
        self.files.append(path)


def open_compacted(folder: LedgerFolder, file: CompactedFile) -> pq.ParquetFile:
    """A file of a complete generation. Raises LedgerError for a torn one, because the result would lack answers."""
    name = f"{COMPACTED}/{file.name}"
    try:
        return folder.open(name)
    except ForeignFile as error:
        raise LedgerError(
            f"ledger {folder.root!r}: {name} cannot be read: {error}. Nothing was changed; restore it from a copy: "
            "otherwise calls for the answers that only it holds are paid again."
        ) from error


def write_compacted(folder: LedgerFolder, name: str, table: pa.Table) -> CompactedFile:
    folder.replace(f"{COMPACTED}/{name}", as_parquet(table), lasting=True)
    return CompactedFile(name, len(table), table["key"][0].as_py(), table["key"][-1].as_py())


# -- obsolete files ----------------------------------------------------------------------------------------------------
def sweep(folder: LedgerFolder, grace: timedelta, now_us: int, debris: timedelta = DEBRIS) -> int:
    """Delete parts compacted and generations replaced over `grace` ago, and leftovers of a crash over `debris` ago.
    Returns the number of deleted files.
    """
    try:
        whole = list(complete_generations(folder))
    except FileNotFoundError:  # another compaction deletes them
        return 0
    grace_us = grace // timedelta(microseconds=1)
    useless = []
    if whole:
        taken_in = whole[0].taken_in
        useless = [f"{PARTS}/{part}" for part in folder.parts() if now_us - taken_in.get(part, now_us + 1) >= grace_us]
    replaced_at = dict(zip([old.name for old in whole[1:]], [new.completed_at for new in whole], strict=False))
    needed = [one for one in whole if one is whole[0] or now_us - replaced_at[one.name] < grace_us]
    names = {f"{one.name}/{COMPLETE}" for one in needed} | {file.name for one in needed for file in one.files}
    of_whole = {one.name for one in whole}
    for found in folder.names(COMPACTED):
        name = found.removeprefix(f"{COMPACTED}/")
        owner = name.partition("/")[0]
        if name not in names and (owner in of_whole or _is_debris(owner, now_us - debris // timedelta(microseconds=1))):
            useless.append(found)
    useless.sort(key=lambda name: not name.endswith(f"/{COMPLETE}"))  # complete.json goes first
    for name in useless:
        folder.delete(name)
    return len(useless)


def _is_debris(generation: str, begun_before: int) -> bool:
    try:
        return began(generation) <= begun_before
    except ValueError:
        return False  # not a file of the ledger


def _now(now_us: int | None, clock: Callable[[], int] = time.time_ns) -> int:
    return clock() // 1000 if now_us is None else now_us
