"""Compacted answers: files sorted by key, and the object that lists the files of a complete generation.

    compacted/<generation>/00000.parquet ...    sorted by key, in small row groups, so that footers locate a key
    compacted/<generation>/complete.json        written last: the files and the compacted parts

A generation without a complete.json does not exist. An unreadable complete.json stops its readers, because the
generation may have the only copy of answers. Readers use the newest generation and the parts that it does not list. An
unchanged file stays in the folder of an older generation.
"""

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.errors import LedgerError
from jobs.ledger.store import FORMAT, LIST_TRIES, LedgerFolder
from jobs.storage.stored_files import error_text

COMPACTED = "compacted"
COMPLETE = "complete.json"


@dataclass(frozen=True)
class CompactedFile:
    """name: `<generation>/<file>.parquet`. smallest, largest: its first and last key."""

    name: str
    rows: int
    smallest: str
    largest: str


@dataclass(frozen=True)
class Generation:
    """A complete compaction. name: its start time and a token, so that names sort by time."""

    name: str
    completed_at: int  # µs since the epoch
    files: tuple[CompactedFile, ...] = ()  # in key order
    taken_in: Mapping[str, int] = field(default_factory=dict)  # part, named as in LedgerFolder.parts -> µs, when

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
    """The input of a reader: the newest complete generation, and the parts outside it."""

    generation: Generation | None
    parts: tuple[str, ...]
    parts_taken_in: tuple[str, ...] = ()  # compacted, but not deleted yet


def contents(folder: LedgerFolder) -> Contents:
    """The current contents. Raises LedgerError for a newer format or a folder that cannot be listed."""
    parts = folder.parts()  # first: a part that is compacted and deleted later is in a generation that is read later
    generation = newest_generation(folder)
    taken_in = generation.taken_in if generation else {}
    return Contents(
        generation,
        tuple(part for part in parts if part not in taken_in),
        tuple(part for part in parts if part in taken_in),
    )


def newest_generation(folder: LedgerFolder) -> Generation | None:
    """The generation that readers use. Raises LedgerError if it cannot be determined."""
    for _ in range(LIST_TRIES):
        with contextlib.suppress(FileNotFoundError):  # replaced and deleted since the listing: list again
            return next(complete_generations(folder), None)
    raise LedgerError(f"ledger {folder.root!r}: its files vanish while they are read; is it being deleted?")


def complete(folder: LedgerFolder, generation: Generation, known: frozenset[str]) -> bool:
    """Complete a generation whose files are written. Returns False, without effect, if one outside `known` was first.

    So an earlier compaction cannot restore keys that `forget` left out of a generation. Of two concurrent ones, one or
    both give up.
    """
    if known_generations(folder) - known:
        return False
    name = f"{COMPACTED}/{generation.name}/{COMPLETE}"
    try:
        folder.replace(name, generation.as_json(), lasting=True)
        alone = not known_generations(folder) - known - {generation.name}
    except LedgerError:  # it may exist, and another one may have been first
        with contextlib.suppress(LedgerError):
            folder.delete(name)
        raise
    if not alone:
        folder.delete(name)
    return alone


def known_generations(folder: LedgerFolder) -> frozenset[str]:
    """The argument `known` of `complete`; read it before `contents`."""
    return frozenset(name.split("/")[1] for name in folder.names(COMPACTED) if name.endswith(f"/{COMPLETE}"))


def name_after(base: Generation | None, now_us: int, token: Callable[[int], str] = secrets.token_hex) -> str:
    """A new name after that of `base`, regardless of clocks."""
    begun = now_us if base is None else max(now_us, began(base.name) + 1)
    return f"{begun:017d}-{token(4)}"


def began(name: str) -> int:
    """The start of a generation in µs since the epoch. Raises ValueError for a foreign name."""
    return int(name.partition("-")[0])


def complete_generations(folder: LedgerFolder) -> Iterator[Generation]:
    """Every generation, the newest first.

    Raises FileNotFoundError if the newest one vanished since the listing, and LedgerError if it cannot be read. A
    missing or torn generation that a newer one replaces is left out.
    """
    newer = False
    for name in reversed(folder.names(COMPACTED)):
        if name.endswith(f"/{COMPLETE}"):
            try:
                yield _read(folder, name)
            except (FileNotFoundError, TornGeneration) as error:
                if not newer:
                    raise
                folder.warn(name, error)
            newer = True


class TornGeneration(LedgerError):  # noqa: N818  # what the file is
    """A complete.json that was read but is damaged."""


def _read(folder: LedgerFolder, name: str) -> Generation:
    data = folder.read_bytes(name)
    try:
        facts: dict[str, Any] = json.loads(data)
        written = facts["format"]
        if written <= FORMAT:
            files = tuple(CompactedFile(*file) for file in facts["files"])
            return Generation(name.split("/")[1], facts["completed_at"], files, dict(facts["taken_in"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TornGeneration(
            f"ledger {folder.root!r}: {name} is damaged: {error_text(error)}. Nothing was called and nothing deleted. "
            "Restore it from a copy. Without one delete it; calls for the answers of its generation are then paid "
            "again."
        ) from error
    raise LedgerError(
        f"ledger {folder.root!r}: {name} has format {written}, and this Tidegate reads up to {FORMAT}: upgrade it, or "
        "give it a ledger of its own."
    )
