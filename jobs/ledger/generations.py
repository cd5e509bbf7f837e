"""Compacted answers: files sorted by key, and the one object that says which of them make a whole generation.

    compacted/<generation>/00000.parquet ...    sorted by key; small row groups, so that footers say where a key is
    compacted/<generation>/complete.json        written last: the files, the parts taken in

A generation without a readable complete.json does not exist. Readers take the newest one and the parts that it does
not list. A file may lie in the folder of an older generation: what did not change is not written again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jobs.errors import LedgerError
from jobs.ledger.store import FORMAT

if TYPE_CHECKING:
    from jobs.ledger.store import LedgerFolder

COMPACTED = "compacted"
COMPLETE = "complete.json"


@dataclass(frozen=True)
class CompactedFile:
    """name: as `<generation>/<file>.parquet`. smallest, largest: its keys lie between, both included."""

    name: str
    rows: int
    smallest: str
    largest: str


@dataclass(frozen=True)
class Generation:
    """A whole compaction. name: the time it began and a token, so that the order of names is the order of time."""

    name: str
    completed_at: int  # µs since the epoch
    files: tuple[CompactedFile, ...] = ()  # in the order of their keys
    taken_in: Mapping[str, int] = field(default_factory=dict)  # part, as LedgerFolder.parts names it -> µs, when

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def as_json(self) -> bytes:
        facts = {
            "format": FORMAT,
            "completed_at": self.completed_at,
            "files": [[file.name, file.rows, file.smallest, file.largest] for file in self.files],
            "taken_in": dict(sorted(self.taken_in.items())),
        }
        return json.dumps(facts, indent=1).encode()


@dataclass(frozen=True)
class Contents:
    """What a reader reads: the newest whole generation, and the parts that it has not taken in."""

    generation: Generation | None
    parts: tuple[str, ...]
    parts_taken_in: tuple[str, ...] = ()  # and not deleted yet


def contents(folder: LedgerFolder) -> Contents:
    """What there is now. Raises LedgerError for a newer format or a folder that cannot be listed."""
    parts = folder.parts()  # first: whatever is taken in and deleted from now on is in a generation found after
    generation = newest_generation(folder)
    taken_in = generation.taken_in if generation else {}
    return Contents(
        generation,
        tuple(part for part in parts if part not in taken_in),
        tuple(part for part in parts if part in taken_in),
    )


def newest_generation(folder: LedgerFolder) -> Generation | None:
    return next(whole_generations(folder), None)


def complete(folder: LedgerFolder, generation: Generation, known: frozenset[str]) -> bool:
    """Make a generation whole, whose files are there; False, and it is not, when another one than `known` was first.

    So nothing that a generation was made without, as `forget` has made one without some keys, comes back by another
    that began before. Of two that come at one moment both may give up, never neither.
    """
    if _names(folder) - known:
        return False
    name = f"{COMPACTED}/{generation.name}/{COMPLETE}"
    folder.write(name, generation.as_json())
    if _names(folder) - known - {generation.name}:
        folder.delete(name)
        return False
    return True


def known_generations(folder: LedgerFolder) -> frozenset[str]:
    """For `complete`: to be asked before `contents`."""
    return frozenset(_names(folder))


def _names(folder: LedgerFolder) -> set[str]:
    return {name.split("/")[1] for name in folder.names(COMPACTED) if name.endswith(f"/{COMPLETE}")}


def name_after(base: Generation | None, now_us: int) -> str:
    """A new name that is greater than that of `base`, whatever the clocks say."""
    begun = now_us if base is None else max(now_us, began(base.name) + 1)
    return f"{begun:017d}-{secrets.token_hex(4)}"


def began(name: str) -> int:
    """When a generation was begun, in µs since the epoch. Raises ValueError for a name that is not ours."""
    return int(name.partition("-")[0])


def whole_generations(folder: LedgerFolder) -> Iterator[Generation]:
    """Every generation whose complete.json can be read, the newest first."""
    for name in reversed(folder.names(COMPACTED)):
        if name.endswith(f"/{COMPLETE}"):
            generation = _read(folder, name)
            if generation is not None:
                yield generation


def _read(folder: LedgerFolder, name: str) -> Generation | None:
    try:
        with folder.filesystem.open_input_stream(f"{folder.path}/{name}", compression=None) as stream:
            facts: dict[str, Any] = json.loads(stream.read())
        written = facts["format"]
        if written <= FORMAT:
            files = tuple(CompactedFile(*file) for file in facts["files"])
            return Generation(name.split("/")[1], facts["completed_at"], files, dict(facts["taken_in"]))
    except FileNotFoundError:
        return None
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        folder.warn(name, error)
        return None
    raise LedgerError(
        f"ledger {folder.root!r}: {name} has format {written}, and this Tidegate reads up to {FORMAT}: upgrade it, or "
        "give it a ledger of its own."
    )
