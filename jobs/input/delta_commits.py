"""The changes of each commit of a Delta table to its days, from the table's log."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.declare.values.calendar import is_day
from jobs.errors import DeclarationError
from jobs.input.delta import DeltaInput

LOG = "_delta_log"
NAME = "?" * 20 + ".json"  # of a commit, as a glob: its version in 20 digits


@dataclass(frozen=True)
class Commit:
    """The changes of a commit to the rows.

    Files that it rewrote with the same rows, as a compaction does, are left out.

    Attributes:
        version: The version that it made.
        added: The files with new rows by day.
        removed: The days of which it removed rows.
    """

    version: int
    added: dict[str, list[Path]]
    removed: frozenset[str]


def commit_version(file: Path) -> int:
    return int(file.name.partition(".")[0])


def read_commit(table: DeltaInput, version: int) -> Commit:
    """Return the changes that made this version of the table.

    Raises:
        DeclarationError: The log no longer has the version.
    """
    added: dict[str, list[Path]] = {}
    removed = set()
    for kind, action in _changes(table, version):
        day = _day(table, action)
        if not is_day(day, table.every):  # of no day, as for `tidegate run`
            continue
        if kind == "remove":
            removed.add(day)
            continue
        if action.get("deletionVector"):  # the commit deletes rows of the file
            removed.add(day)
            continue
        added.setdefault(day, []).append(Path(table.place(action["path"])))
    return Commit(version, {day: sorted(files) for day, files in added.items()}, frozenset(removed))


def _changes(table: DeltaInput, version: int) -> Iterator[tuple[str, dict[str, Any]]]:
    path = Path(table.root, LOG, f"{version:020d}.json")
    try:
        lines = path.read_bytes().splitlines()  # of a text, U+2028 would end a line too
    except OSError as error:
        raise DeclarationError(
            f"input: {path} cannot be read: {error.strerror}; the log of a Delta table keeps its "
            "commits for 30 days (delta.logRetentionDuration), and a stream needs each since its "
            "last batch. Run the days that have changed, delete the checkpoint of the stream, and "
            "start it anew."
        ) from error
    for action in map(json.loads, filter(None, lines)):
        for kind in ("add", "remove"):
            if kind in action and action[kind].get("dataChange", True):
                yield kind, action[kind]


def _day(table: DeltaInput, action: dict[str, Any]) -> str:
    """Return the day by the partition, or by the folder if an old writer left that out."""
    if (values := action.get("partitionValues")) is not None:
        return values.get(table.partition) or ""
    return Path(table.place(action["path"])).parent.name.removeprefix(f"{table.partition}=")
