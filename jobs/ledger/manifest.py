"""Compacted answers: files sorted by key, and the one object that says which of them make a whole generation.

    compacted/<generation>/00000.parquet ...    sorted by key; small row groups, so that footers say where a key is
    compacted/<generation>/complete.json        written last: the files, the parts taken in

A generation without a complete.json does not exist. One whose complete.json is there and cannot be read stops whoever
needs it: it may hold answers that nothing else holds. Readers take the newest one and the parts that it does not list.
A file may lie in the folder of an older generation: what did not change is not written again.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobs.errors import LedgerError
from jobs.ledger.store import FORMAT, LIST_TRIES, one_line

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
    """The one that readers take. Raises LedgerError when that cannot be known."""
    for _ in range(LIST_TRIES):
        with contextlib.suppress(FileNotFoundError):  # it was replaced and swept since it was listed: list again
            return next(complete_generations(folder), None)
    raise LedgerError(f"ledger {folder.root!r}: its files vanish while they are read; is it being deleted?")


def complete(folder: LedgerFolder, generation: Generation, known: frozenset[str]) -> bool:
    """Make a generation whole, whose files are there; False, and it is not, when another one than `known` was first.

    So nothing that a generation was made without, as `forget` has made one without some keys, comes back by another
    that began before. Of two that come at one moment both may give up, never neither.
    """
    if _names(folder) - known:
        return False
    name = f"{COMPACTED}/{generation.name}/{COMPLETE}"
    try:
        folder.replace(name, generation.as_json(), lasting=True)
        alone = not _names(folder) - known - {generation.name}
    except LedgerError:  # it may be there, and another one may have been first
        with contextlib.suppress(LedgerError):
            folder.delete(name)
        raise
    if not alone:
        folder.delete(name)
    return alone


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


def complete_generations(folder: LedgerFolder) -> Iterator[Generation]:
    """Every generation, the newest first.

    Raises FileNotFoundError when the newest is gone since it was listed, LedgerError when one cannot be read. Of those
    that a newer one replaces, one that is gone or torn is left out: nobody needs it any more.
    """
    newer = False
    for name in reversed(folder.names(COMPACTED)):
        if name.endswith(f"/{COMPLETE}"):
            try:
                yield _read(folder, name)
            except (FileNotFoundError, TornManifest) as error:
                if not newer:
                    raise
                folder.warn(name, error)
            newer = True


class TornManifest(LedgerError):  # noqa: N818  # what the file is
    """A complete.json that is there, was read, and does not say what it should."""


def _read(folder: LedgerFolder, name: str) -> Generation:
    data = folder.read_bytes(name)
    try:
        facts: dict[str, Any] = json.loads(data)
        written = facts["format"]
        if written <= FORMAT:
            files = tuple(CompactedFile(*file) for file in facts["files"])
            return Generation(name.split("/")[1], facts["completed_at"], files, dict(facts["taken_in"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TornManifest(
            f"ledger {folder.root!r}: {name} is damaged: {one_line(error)}. Nothing was called and nothing deleted. "
            "Bring it back from a copy; without one delete it, and what only its generation held is asked, and paid, "
            "again."
        ) from error
    raise LedgerError(
        f"ledger {folder.root!r}: {name} has format {written}, and this Tidegate reads up to {FORMAT}: upgrade it, or "
        "give it a ledger of its own."
    )
