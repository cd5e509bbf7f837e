"""Copies the log of a table on an object store to disk; deltalake reads and commits in the copy.

Whenever deltalake opens a table on a store, it sends two requests for each log entry since the last
checkpoint, and up to 14 for the checkpoint. The copy takes two requests, and one for each of these
files. deltalake commits in the copy; then the new files are uploaded, and last the log entry,
which the store accepts only if no entry has its version yet. Delta commits in the same way.
"""

import contextlib
import json
import re
import weakref
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from jobs.storage import objects
from jobs.storage.objects import ListedObject
from jobs.storage.urls import below
from jobs.tables.delta.copy_folders import logs_folder, on_disk, own_folder

LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
ENTRY = re.compile(r"\d{20}\.json")
CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.parquet")
UNNEEDED = re.compile(rf"{LAST_CHECKPOINT}|\d{{20}}\.(crc|\d{{20}}\.compacted\.json)")
AT_ONCE = 8  # requests
COMMIT_TRIES = 20  # against programs that commit meanwhile

Result = TypeVar("Result")


class CopiedTable(DeltaTable):
    """A table on a store, for uses of its log only: the copy lacks its files. place: its URL."""

    def __init__(self, place: str, log: Collection[ListedObject]) -> None:
        self.place = place
        self._copy(log)

    def _copy(self, log: Collection[ListedObject]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            contents = list(
                pool.map(lambda one: objects.content(below(self.place, LOG, one.name)), log)
            )
        with on_disk(logs_folder(self.place)):
            own = own_folder(self.place)
            self.folder = own.path
            weakref.finalize(self, own.remove)
            for one, data in zip(log, contents, strict=True):
                file = self.folder / LOG / one.name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
        super().__init__(self.folder)

    def update_incremental(self) -> None:
        """Loads the version that the store has now."""
        self._copy(_listed(self.place))

    def push(self, files: Collection[Path]) -> None:
        """Brings these new files of the copy to the store, log entries after the files they name.

        Raises OSError, and CommitFailedError if the store has another entry of that version. The
        table is then as before the commit.
        """
        try:
            self._bring(files)
        except Exception:
            for file in files:
                file.unlink()
            super().__init__(self.folder)
            raise
        self._sum_up(
            [file for file in files if self._is_of_log(file) and not ENTRY.fullmatch(file.name)]
        )

    def _bring(self, files: Collection[Path]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            data = [file for file in files if not self._is_of_log(file)]
            list(
                pool.map(
                    lambda file: objects.upload(file, below(self.place, *self._names(file))), data
                )
            )
        for entry in sorted(file for file in files if ENTRY.fullmatch(file.name)):
            if not self._commit(entry):
                raise CommitFailedError(
                    f"version {int(entry.stem)} of {self.place} is another program's"
                )

    def _commit(self, entry: Path) -> bool:
        place, data = below(self.place, *self._names(entry)), entry.read_bytes()
        try:
            objects.create(place, data)
        except objects.Changed:
            # the store took the entry, and its answer was lost
            return objects.content(place) == data
        return True

    def _sum_up(self, files: Collection[Path]) -> None:
        """Brings a checkpoint that deltalake made after a commit to the store, then its name."""
        checkpoint = sorted(files)
        if [file.name for file in checkpoint[1:]] == [LAST_CHECKPOINT] and CHECKPOINT.fullmatch(
            checkpoint[0].name
        ):
            with contextlib.suppress(OSError):  # the log can be read without it
                for file in checkpoint:
                    objects.upload(file, below(self.place, *self._names(file)))
        # else `pushed` would not see the next file as new
        (self.folder / LOG / LAST_CHECKPOINT).unlink(missing_ok=True)

    def _is_of_log(self, file: Path) -> bool:
        return file.parent == self.folder / LOG

    def _names(self, file: Path) -> tuple[str, ...]:
        return file.relative_to(self.folder).parts


@contextlib.contextmanager
def pushed(table: DeltaTable | None) -> Iterator[None]:
    """Brings to the store what the body commits to a table, if the table is a copy from a store.

    Raises OSError, and CommitFailedError if another program committed first: the table is then as
    before, and `update_incremental` loads what that program has committed.
    """
    if not isinstance(table, CopiedTable):
        yield
        return
    before = {*table.folder.rglob("*")}
    with on_disk(table.folder):
        yield
    table.push({file for file in table.folder.rglob("*") if file.is_file()} - before)


def commit_on_top(table: DeltaTable | None, commit: Callable[[], Result]) -> Result:
    """Commits on top of what others commit meanwhile. table: None if the commit creates it."""
    if table is None:
        return commit()
    for _ in range(COMMIT_TRIES - 1):
        try:
            with pushed(table):
                return commit()
        except CommitFailedError:
            table.update_incremental()
    with pushed(table):
        return commit()


def copied(place: str) -> DeltaTable | None:
    """Returns the table at this place of a store, or None. It uses a copy of the log, unless the
    log has files of an unknown kind. Raises DeltaError and OSError.
    """
    log = _listed(place)
    if all(ENTRY.fullmatch(one.name) or CHECKPOINT.fullmatch(one.name) for one in log):
        # opening the table at its place reports the error better
        with contextlib.suppress(DeltaError, FileNotFoundError):
            return CopiedTable(place, log) if log else None
    return in_place(place)


def in_place(place: str) -> DeltaTable | None:
    """Returns the store's table as deltalake opens it, or None. Raises DeltaError and OSError."""
    with contextlib.suppress(TableNotFoundError):
        return DeltaTable(place)
    return None


def _listed(place: str) -> list[ListedObject]:
    """Lists the last checkpoint of a log, and the entries from it on."""
    found: list[ListedObject] = []
    for start in _starts(place):
        found = objects.listed(below(place, LOG), after=start)
        checkpoints = [one.name for one in found if CHECKPOINT.fullmatch(one.name)]
        if checkpoints:
            # deltalake also needs the checkpoint's entry
            found = [one for one in found if one.name >= max(checkpoints)]
            break
    return [one for one in found if not UNNEEDED.fullmatch(one.name)]


def _starts(place: str) -> Iterator[str]:
    """Yields possible starts of a listing of the log, the shortest listing first."""
    if (last := objects.read(below(place, LOG, LAST_CHECKPOINT))) is not None:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            yield f"{json.loads(last.data)['version']:020d}"
    yield ""
