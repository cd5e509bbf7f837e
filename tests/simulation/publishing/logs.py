"""A Delta table as its log says, read without deltalake: an independent judge of what was
committed.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote


@dataclass(frozen=True)
class Added:
    """A file of a table. path: below the table."""

    path: str
    day: str
    run_id: str  # of a table that is partitioned by runs
    rows: int


@dataclass
class Entry:
    """One version."""

    version: int
    info: dict[str, Any] = field(default_factory=dict)
    added: list[Added] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


class Log:
    """The entries of a table's log, and the files of its last version."""

    def __init__(self, table: str) -> None:
        self.table = Path(table)
        self.version = -1
        self.files: dict[str, Added] = {}

    def new_entries(self) -> Iterator[Entry]:
        """The entries since the last time, one after the other; `files` are those before
        the entry.
        """
        while (path := self.table / "_delta_log" / f"{self.version + 1:020d}.json").exists():
            entry = _read(self.version + 1, path.read_text())
            yield entry
            self.version += 1
            for gone in entry.removed:
                del self.files[gone]
            self.files |= {added.path: added for added in entry.added}


def _read(version: int, text: str) -> Entry:
    entry = Entry(version)
    for line in text.splitlines():
        for kind, action in json.loads(line).items():
            if kind == "commitInfo":
                entry.info = action
            elif kind == "add":
                values, rows = (
                    action["partitionValues"],
                    json.loads(action["stats"] or "{}").get("numRecords", -1),
                )
                entry.added.append(
                    Added(
                        unquote(action["path"]),
                        values.get("date", ""),
                        values.get("run_id", ""),
                        rows,
                    )
                )
            elif kind == "remove":
                entry.removed.append(unquote(action["path"]))
    return entry
