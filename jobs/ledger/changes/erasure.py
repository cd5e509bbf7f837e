"""Removes keys from the ledger, so that no file contains a byte of them or of their answers."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from jobs.arrow_values import bunches
from jobs.errors import LedgerError
from jobs.ledger.answers import LARGEST
from jobs.ledger.changes.compaction import ROWS_IN_MEMORY, open_compacted, sweep, write_compacted
from jobs.ledger.changes.merging import in_order
from jobs.ledger.generations import CompactedFile, Contents, NewFiles, Overtaken, contents
from jobs.ledger.job_files import JobFiles
from jobs.ledger.journal import JOURNAL
from jobs.ledger.plan import OF_KEYS
from jobs.ledger.scan import KeySet
from jobs.ledger.store import PARTS, ForeignFile, LedgerFolder
from jobs.ledger.working_folders import RUNS, runs_at_work
from jobs.storage.durable import DRAFT
from jobs.storage.stored_files import error_text

AT_MOST = 5  # times that another change may be first
INDEX = "index"  # prefix of the names of files with a run's answers; its other files hold no key


@dataclass(frozen=True)
class Forgotten:
    """The result of `forget`.

    Attributes:
        keys: The texts of the keys that the answers had.
        files: The number of files that were rewritten without them, or deleted.
    """

    keys: frozenset[str]
    files: int


def forget(
    folder: LedgerFolder,
    key_texts: Iterable[str],
    *,
    now_us: int | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> Forgotten:
    """Rewrite or delete every file of this folder with one of the keys; delete replaced files.

    Do not run it beside jobs of the same lookup: a running job may still write such an answer, or
    stop because its index is gone. A second run reports whether anything was left. A torn part may
    contain the keys and is deleted. After a crash run it again. It does not delete old versions of
    a versioned bucket.

    Args:
        folder: The ledger's folder.
        key_texts: The keys, from `key_text`.
        now_us: µs since the epoch; by default the clock's.
        clock: Nanoseconds since the epoch.

    Returns:
        What was forgotten.

    Raises:
        LedgerError: A file cannot be read or written, or compactions always come first.
    """
    texts = pa.array(key_texts, pa.string())
    intents = JobFiles(folder).erase(texts)
    forgetting = _Forgetting(folder, KeySet(texts))
    overtaken: Exception | None = None
    for _ in range(AT_MOST):
        now = clock() // 1000 if now_us is None else now_us
        try:
            forgetting.run(now)
            return Forgotten(forgetting.found_keys, forgetting.files + intents)
        except (Overtaken, FileNotFoundError) as error:
            overtaken = error  # a compaction was first, or deleted a listed file
        except (pa.ArrowException, OSError) as error:
            raise LedgerError(
                f"ledger {folder.root!r}: its files cannot be read: {error_text(error)}. The keys "
                "are not forgotten."
            ) from error
    if isinstance(overtaken, FileNotFoundError):
        raise LedgerError(
            f"ledger {folder.root!r}: its file is missing: {error_text(overtaken)}. The keys are "
            "not forgotten. Stop compactions, if any run; restore the file from a copy; then "
            "forget the keys."
        )
    raise LedgerError(
        f"ledger {folder.root!r}: compactions run all the time; stop them, then forget the keys."
    )


class _Forgetting:
    """Makes a generation without the keys.

    It takes in every part with a key, and lists the part's other records in new files, so that no
    reader ever misses a record.
    """

    def __init__(self, folder: LedgerFolder, wanted: KeySet) -> None:
        self._folder = folder
        self._wanted = wanted
        self._at_work: set[str] = set()  # runs that may be writing a part that looks torn
        self._found: set[int] = set()
        self.files = 0

    @property
    def found_keys(self) -> frozenset[str]:
        return frozenset(self._wanted.texts.take(pa.array(self._found, pa.int64())).to_pylist())

    def run(self, now_us: int) -> None:
        """Forget the keys. Raises Overtaken if another change was first."""
        self._at_work, self.files = runs_at_work(self._folder, now_us), 0
        current = contents(self._folder)
        new = NewFiles(self._folder, current.generation)
        kept = self._without_keys(current.files, new)
        torn = self._unfinished_parts()
        taken_in: list[str] = []
        rest = self._take_in(current, taken_in, torn)
        held = bunches(rest, rows=ROWS_IN_MEMORY, size=LARGEST)
        kept += map(partial(self._write, new, now_us), held)
        if taken_in or kept != list(current.files):
            new.complete(kept, current.taken_in | dict.fromkeys(taken_in, now_us), now_us)
        self._folder.delete(*(f"{PARTS}/{part}" for part in torn))
        self.files += len(torn)
        sweep(self._folder, None, now_us)
        self._forget_runs()

    def _without(self, table: pa.Table) -> pa.Table | None:
        places = self._wanted.places(table["key"])
        found = places.drop_null().to_pylist()
        if not found:
            return None
        self._found.update(found)
        self.files += 1
        return table.filter(places.is_null())

    def _without_keys(
        self, generation: Sequence[CompactedFile], new: NewFiles
    ) -> list[CompactedFile]:
        """Return the files of the generation; files with a key are rewritten."""
        files: list[CompactedFile] = []
        for file in generation:
            rest = None
            if self._wanted.any_between(file.smallest, file.largest):
                with open_compacted(self._folder, file) as opened:
                    rest = self._without(opened.read())
            if rest is None:
                files.append(file)
            elif len(rest):
                files.append(write_compacted(self._folder, new.next_name(), rest))
        return files

    def _take_in(
        self, current: Contents, taken_in: list[str], torn: list[str]
    ) -> Iterator[pa.Table]:
        """Yield the other records of parts with a key, and enter the parts into the lists."""
        for part in (*current.parts, *current.taken_in):
            try:
                table = self._folder.read_part(part)
            except ForeignFile as error:
                if error.torn and not self._is_being_written(part):
                    torn.append(part)
                continue
            without = self._without(table)
            if part in current.taken_in:  # the generation has its other records
                continue
            if without is None and part.endswith(JOURNAL):  # its torn end may hold a key
                without = table
            if without is not None:
                taken_in.append(part)
                if len(without):
                    yield without

    def _unfinished_parts(self) -> list[str]:
        start = len(PARTS) + 1
        parts = [name[start:] for name in self._folder.names(PARTS) if name.endswith(DRAFT)]
        return [part for part in parts if not self._is_being_written(part)]

    def _is_being_written(self, part: str) -> bool:
        """Return whether a run may be writing a part; the user learns that the part stays."""
        run = part.partition("/")[0].removesuffix(OF_KEYS)
        if run not in self._at_work:
            return False
        why = f"run {run} may be writing it; forget the keys again after that run"
        self._folder.warn(f"{PARTS}/{part}", LedgerError(why))
        return True

    def _write(self, new: NewFiles, now_us: int, tables: Sequence[pa.Table]) -> CompactedFile:
        rows = in_order(pa.concat_tables(tables), now_us)
        return write_compacted(self._folder, new.next_name(), rows)

    def _forget_runs(self) -> None:
        for name in self._folder.names(RUNS):
            if name.rpartition("/")[2].startswith(INDEX) and self._holds_a_key(name):
                self._folder.delete(name)
                self.files += 1

    def _holds_a_key(self, name: str) -> bool:
        folder = self._folder
        try:
            with folder.filesystem.open_input_file(f"{folder.path}/{name}") as file:
                keys = pa.ipc.open_file(file).read_all()["key"].cast(pa.string())
        except (pa.ArrowInvalid, KeyError):
            return True  # torn: it may contain a key
        return bool(self._wanted.places(keys).is_valid().to_numpy().any())
