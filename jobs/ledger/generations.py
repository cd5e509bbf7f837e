"""Compacted answers: files sorted by key, and the object that lists the files of a generation.

    compacted/<number>/complete.json            written last: the files and the compacted parts
    compacted/<number>-<token>/00000.parquet    sorted by key, in small row groups

Generations are a chain: a change of the ledger reads generation N and creates the complete.json of
N + 1, in a single step that fails if it exists. So every generation builds on the previous
generation, and each file has a single owner:

- The newest complete.json is never deleted. It says which parts and older generations may be
  deleted; any `sweep` deletes them.
- A file in the folder of a number up to the newest that no kept generation lists is from a change
  that came too late. The change cannot complete any more, so the file is garbage.
- Files of higher numbers belong to a running change, and nothing else touches them.

An unreadable complete.json stops its readers, because the generation may have the only copy of
answers. Readers use the newest generation and the parts that it does not list. An unchanged file
stays in the folder of an older generation.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from pyarrow import fs

from jobs.errors import LedgerError
from jobs.ledger.ledger_files import LIST_TRIES
from jobs.ledger.store import FORMAT, LedgerFolder
from jobs.storage.stored_files import error_text

COMPACTED = "compacted"
COMPLETE = "complete.json"
FOLDER = re.compile(r"(\d{17})(-[0-9a-f]+)?")  # folder of a generation, or of its files


T = TypeVar("T")


@dataclass(frozen=True)
class CompactedFile:
    """A file of a generation.

    Attributes:
        name: `<folder>/<file>.parquet`.
        rows: The number of rows.
        smallest: Its first key.
        largest: Its last key.
    """

    name: str
    rows: int
    smallest: str
    largest: str


@dataclass(frozen=True)
class Generation:
    """A complete compaction.

    Attributes:
        name: Its folder, which begins with its number.
    """

    name: str
    completed_at: int  # µs since the epoch
    files: tuple[CompactedFile, ...] = ()
    # part, named as in LedgerFolder.parts -> time in µs
    taken_in: Mapping[str, int] = field(default_factory=dict)

    @property
    def number(self) -> int:
        number = number_in(self.name)
        assert number is not None
        return number

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
    """What a reader reads: the newest complete generation, and the parts outside it."""

    generation: Generation | None
    parts: tuple[str, ...]
    # compacted parts that are not deleted yet -> time in µs; the next generation lists them too
    taken_in: dict[str, int] = field(default_factory=dict)

    @property
    def files(self) -> tuple[CompactedFile, ...]:
        """The files of the generation."""
        return self.generation.files if self.generation else ()


def contents(folder: LedgerFolder) -> Contents:
    """Return the current contents. Raises LedgerError for a newer format or a failed listing."""
    # first: a part that is compacted and deleted later is in a generation that is read later
    parts = folder.parts()
    generation = newest_generation(folder)
    taken_in = generation.taken_in if generation else {}
    return Contents(
        generation,
        tuple(part for part in parts if part not in taken_in),
        {part: taken_in[part] for part in parts if part in taken_in},
    )


def read_contents(folder: LedgerFolder, read: Callable[[Contents], T]) -> T:
    """Return what `read` makes of the contents; a compaction may delete files that it lists.

    Raises LedgerError for a newer format, an unreadable folder, and files that keep vanishing.
    """
    return _listing_again(folder, lambda: read(contents(folder)))


def newest_generation(folder: LedgerFolder) -> Generation | None:
    """Return the generation that readers use. Raises LedgerError if it cannot be determined."""
    return _listing_again(folder, lambda: next(complete_generations(folder), None))


def _listing_again(folder: LedgerFolder, look: Callable[[], T]) -> T:
    """Return what `look` finds; a listed file may be deleted before it is read, so list again."""
    for _ in range(LIST_TRIES):
        try:
            return look()
        except FileNotFoundError as error:
            missing = error_text(error)
    raise LedgerError(
        f"ledger {folder.root!r}: a file is missing, or vanishes while it is read: {missing}. "
        "Restore it from a copy. Without one, delete the newest complete.json in "
        f"{folder.lookup}/{folder.fingerprint}/{COMPACTED}: calls for its answers are paid again."
    )


class Overtaken(Exception):  # noqa: N818  # what happened
    """Another change completed the generation first."""


class NewFiles:
    """The files of the generation after `base`, until it is complete.

    Once another change has completed that generation, the files written so far are deleted and
    Overtaken is raised before the next file is written: after a `forget`, a slow compaction writes
    no further file with a forgotten key.
    """

    def __init__(
        self,
        folder: LedgerFolder,
        base: Generation | None,
        *,
        token: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self._folder = folder
        self._number = base.number + 1 if base else 1
        self._name = f"{self._number:017d}"
        self._files = f"{self._name}-{token(4)}"
        self._written: list[str] = []

    def next_name(self) -> str:
        """Return the name of a further file, as in CompactedFile. Raises Overtaken."""
        if self._newest_number() >= self._number:
            self._give_up()
        self._written.append(f"{self._files}/{len(self._written):05d}.parquet")
        return self._written[-1]

    def complete(
        self, files: Sequence[CompactedFile], taken_in: Mapping[str, int], now_us: int
    ) -> Generation:
        """Make these files the newest generation and return it.

        Raises:
            Overtaken: Another change was first; the files are deleted.
            LedgerError: The write failed. The generation may be complete then, so its files stay.
        """
        generation = Generation(self._name, now_us, tuple(files), taken_in)
        if not self._commit(generation.as_json()):
            self._give_up()
        return generation

    def _give_up(self) -> NoReturn:
        self._folder.delete(*(f"{COMPACTED}/{name}" for name in self._written))
        raise Overtaken

    def _commit(self, data: bytes) -> bool:
        folder, name = self._folder, f"{COMPACTED}/{self._name}/{COMPLETE}"
        if not folder.create(name, data) and not self._has_created(name, data):
            return False
        if self._newest_number() <= self._number or self._is_used():
            return True
        # this number was complete before: later changes have replaced and swept it
        folder.delete(name)
        return False

    def _is_used(self) -> bool:
        """Return whether another change has already made the next generation from these files."""
        newest = newest_generation(self._folder)
        return newest is not None and any(file.name in self._written for file in newest.files)

    def _newest_number(self) -> int:
        names = complete_names(list_compacted(self._folder))
        return number_in(names[0]) or 0 if names else 0

    def _has_created(self, name: str, data: bytes) -> bool:
        """Return whether an earlier try created the object: two changes have different files."""
        try:
            return self._folder.read_bytes(name) == data
        except FileNotFoundError:
            return False


def list_compacted(folder: LedgerFolder) -> dict[str, fs.FileInfo]:
    """Return all files of generations, by their names below COMPACTED.

    A local folder is not listed in a single step: the next generation may be completed after their
    common folder was read, and the previous generation be deleted before its folder is read. So a
    listing without a complete generation is repeated if it has folders of generations.
    """
    start = len(folder.path) + len(COMPACTED) + 2
    for _ in range(LIST_TRIES):
        found = {info.path[start:]: info for info in folder.files(COMPACTED)}
        if complete_names(found) or not folder.has_folders(COMPACTED):
            break
    return found


def complete_names(files: Iterable[str]) -> list[str]:
    """Return the folders with a complete.json, newest first; ignores files of other names."""
    folders = (name.removesuffix(f"/{COMPLETE}") for name in files if name.endswith(f"/{COMPLETE}"))
    return sorted((name for name in folders if FOLDER.fullmatch(name)), reverse=True)


def number_in(name: str) -> int | None:
    """Return the number in the name of a folder; None for a foreign folder."""
    found = FOLDER.fullmatch(name)
    return int(found[1]) if found else None


def complete_generations(
    folder: LedgerFolder, files: Iterable[str] | None = None
) -> Iterator[Generation]:
    """Yield every generation, newest first, without torn generations that were replaced.

    Args:
        folder: The ledger's folder.
        files: Of `list_compacted`, if the caller has them.

    Raises:
        FileNotFoundError: The newest generation vanished since the listing.
        LedgerError: The newest generation cannot be read.
    """
    newer = False
    for generation in complete_names(list_compacted(folder) if files is None else files):
        name = f"{COMPACTED}/{generation}/{COMPLETE}"
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
            return Generation(
                name.split("/")[1], facts["completed_at"], files, dict(facts["taken_in"])
            )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TornGeneration(
            f"ledger {folder.root!r}: {name} is damaged: {error_text(error)}. Nothing was called "
            "and nothing deleted. Restore it from a copy. Without one delete it; calls for the "
            "answers of its generation are then paid again."
        ) from error
    raise LedgerError(
        f"ledger {folder.root!r}: {name} has format {written}, and this Tidegate reads up to "
        f"{FORMAT}: upgrade it, or give it a ledger of its own."
    )
