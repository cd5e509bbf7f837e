"""Lists the files of each published day, and the days that changed since a state of the table."""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from jobs.errors import DeclarationError
from jobs.schema.records import DayFacts, DeclaredFacts
from jobs.storage.urls import absolute, below
from jobs.storage.work_folders import RUNS


@dataclass(frozen=True)
class PublishedFile:
    """A file in a version of the published table."""

    place: str  # its absolute path or URL
    size: int  # bytes
    rows: int | None  # None: the log does not tell, as after a rewrite by another program
    run: str  # of `find_run`


def find_run(path: str) -> str:
    """Return the run that wrote a file of a published table; empty if another program wrote it, as
    OPTIMIZE does.

    Args:
        path: Of the file, below the table: `runs/<run id>/...` for a file of a run.
    """
    folder, *names = PurePosixPath(path).parts
    return names[0] if folder == RUNS and len(names) > 1 else ""


def transaction_name(facts: DayFacts) -> str:
    return f"{facts.declared.partition}={facts.day}"


def publication_mark(table: DeltaTable, facts: DayFacts) -> int:
    """Return a number that each publication of the day increases, 0 before the first.

    The mark of a run is the version of the table that it published plus 1, so that the run need not
    know the mark before.
    """
    return table.transaction_version(transaction_name(facts)) or 0


FilesByDay = dict[str, frozenset[PublishedFile]]


def shown_state(published: DeltaTable) -> str:
    """Return the table, its files and its version as a word that neither a re-created table repeats
    nor one that was restored from a backup, unless it has the same files.

    Version 0.1.0 takes the files for a part of the table's id, and shows all days again.
    """
    return f"{published.metadata().id}/{_digest(published)}@{published.version()}"


def _digest(table: DeltaTable) -> str:
    """Return a digest of the names of the files, which have the ids of runs."""
    names = sorted(pa.table(table.get_add_actions())["path"].to_pylist())
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]


def changed_since(
    state: str,
    published: DeltaTable,
    declared: DeclaredFacts,
    shown: Callable[[], Iterable[str]] = tuple,
) -> FilesByDay:
    """Return the files of each day that changed since a state: no files for a removed day.

    For the state of another table, as before this one was made anew or restored from a backup, it
    returns all days, and each further day of `shown` as removed.
    """
    now, before = days_of(published, declared), None
    of_table, _, version = state.partition("@")
    known, _, files = of_table.partition("/")  # a state of 0.1.0 tells no files
    if known == str(published.metadata().id) and int(version) <= published.version():
        with contextlib.suppress(DeltaError):
            then = DeltaTable(declared.table, version=int(version))
            if files in ("", _digest(then)):
                before = days_of(then, declared)
    if before is None:
        before = dict.fromkeys(shown(), frozenset[PublishedFile]())
    return {
        day: now.get(day, frozenset())
        for day in sorted({*before, *now})
        if before.get(day) != now.get(day)
    }


def days_of(published: DeltaTable, declared: DeclaredFacts) -> FilesByDay:
    root = absolute(declared.table)
    days: dict[str, set[PublishedFile]] = {}
    for day, path, size, rows in facts_by_day(
        published, declared.partition, "path", "size_bytes", "num_records"
    ):
        name = unquote(path)
        file = PublishedFile(below(root, name), size, rows, find_run(name))
        days.setdefault(day, set()).add(file)
    return {day: frozenset(files) for day, files in days.items()}


def list_files(published: DeltaTable, declared: DeclaredFacts, day: str) -> list[PublishedFile]:
    """Return the files of a day in a version of the table, in the order of their names."""
    files = days_of(published, declared).get(day, ())
    return sorted(files, key=lambda file: file.place)


def facts_by_day(table: DeltaTable, partition: str, *names: str) -> Iterator[tuple[Any, ...]]:
    """Return the day of each file of a table, with these facts of the file by Delta's names.

    Raises DeclarationError if the table is partitioned by another column.
    """
    require_partition(table, partition)
    actions = pa.table(table.get_add_actions(flatten=True))
    days = map(str, actions[f"partition.{partition}"].to_pylist())
    return zip(days, *(actions[name].to_pylist() for name in names), strict=True)


def runs_by_day(table: DeltaTable | None, partition: str) -> dict[str, set[str]]:
    """Return the runs that wrote the files of each day, as `find_run`; the same errors as
    `facts_by_day`.
    """
    found: dict[str, set[str]] = {}
    for day, path in () if table is None else facts_by_day(table, partition, "path"):
        found.setdefault(day, set()).add(find_run(unquote(path)))
    return found


def require_partition(table: DeltaTable, partition: str) -> None:
    """Raise DeclarationError unless the table is partitioned by this column of the input."""
    columns = table.metadata().partition_columns
    if partition not in columns:
        raise DeclarationError(
            f"output: the table is partitioned by {columns[0] if columns else 'nothing'}, the "
            f"input by {partition}. Publish to another path."
        )
