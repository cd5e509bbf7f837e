"""Removes keys from the ledger, so that no file contains a byte of them or of their answers."""

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa

from jobs.errors import LedgerError
from jobs.ledger.abandoned import RUNS
from jobs.ledger.compaction import open_compacted, sweep, write_compacted
from jobs.ledger.generations import (
    CompactedFile,
    Contents,
    Generation,
    complete,
    contents,
    known_generations,
    name_after,
)
from jobs.ledger.journal import JOURNAL
from jobs.ledger.scan import KeySet
from jobs.ledger.store import PARTS, ForeignFile, LedgerFolder, as_parquet
from jobs.storage.stored_files import error_text

AT_MOST = 5  # times that a compaction may be first
AT_ONCE = timedelta(0)
ANY_AGE = timedelta(days=-1)  # regardless of clocks


@dataclass(frozen=True)
class Forgotten:
    """The result of `forget`. keys: the number of keys found. files: rewritten without them, or deleted."""

    keys: int
    files: int


def forget(
    folder: LedgerFolder,
    key_texts: Iterable[str],
    *,
    now_us: int | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> Forgotten:
    """Rewrite or delete every file of this folder that holds one of the keys; replaced files are deleted at once.

    Do not run it beside jobs of the same lookup: a running job may still write such an answer, or stop because its
    index is gone. A second run reports whether anything was left. A torn part may contain the keys and is deleted.
    After a crash run it again. It does not delete old versions of a versioned bucket. Raises LedgerError.
    """
    forgetting = _Forgetting(folder, KeySet(pa.array(key_texts, pa.string())))
    for _ in range(AT_MOST):
        now = clock() // 1000 if now_us is None else now_us
        try:
            if forgetting.run(now):
                return Forgotten(len(forgetting.found), forgetting.files)
        except FileNotFoundError:  # a compaction deleted a listed file
            continue
        except (pa.ArrowException, OSError) as error:
            raise LedgerError(
                f"ledger {folder.root!r}: its files cannot be read: {error_text(error)}. The keys are not forgotten."
            ) from error
    raise LedgerError(f"ledger {folder.root!r}: compactions run all the time; stop them, then forget the keys.")


class _Forgetting:
    def __init__(self, folder: LedgerFolder, wanted: KeySet, token: Callable[[int], str] = secrets.token_hex) -> None:
        self._token = token
        self._folder = folder
        self._wanted = wanted
        self.found: set[int] = set()
        self.files = 0

    def run(self, now_us: int) -> bool:
        """False if a compaction was first, which may have read the keys before."""
        known = known_generations(self._folder)
        there = contents(self._folder)
        self._forget_parts(there)
        # a generation even if there was none, so that an earlier compaction cannot complete
        if not self._forget_compacted(there.generation, known, now_us):
            return False
        sweep(self._folder, AT_ONCE, now_us, ANY_AGE)
        self._forget_runs()
        return True

    def _without(self, table: pa.Table) -> pa.Table | None:
        places = self._wanted.places(table["key"])
        found = places.drop_null().to_pylist()
        if not found:
            return None
        self.found.update(found)
        self.files += 1
        return table.filter(places.is_null())

    def _forget_parts(self, there: Contents) -> None:
        for part in (*there.parts, *there.parts_taken_in):
            try:
                rest = self._without(self._folder.read_part(part))
            except ForeignFile as error:
                if error.torn:
                    self._folder.delete(f"{PARTS}/{part}")
                    self.files += 1
                continue
            if rest is None and part.endswith(JOURNAL):  # its torn end may hold a key
                rest = self._folder.read_part(part)
            if rest is None:
                continue
            if len(rest) and part not in there.parts_taken_in:  # otherwise the generation has its other answers
                beside = f"{part.removesuffix('.parquet')}-{self._token(4)}.parquet"
                self._folder.write(f"{PARTS}/{beside}", as_parquet(rest, rows_per_group=len(rest)))
            self._folder.delete(f"{PARTS}/{part}")

    def _forget_compacted(self, base: Generation | None, known: frozenset[str], now_us: int) -> bool:
        name = name_after(base, now_us)
        files: list[CompactedFile] = []
        for file in base.files if base else ():
            rest = None
            if self._wanted.any_between(file.smallest, file.largest):
                with open_compacted(self._folder, file) as opened:
                    rest = self._without(opened.read())
            if rest is None:
                files.append(file)
            elif len(rest):
                files.append(write_compacted(self._folder, f"{name}/{len(files):05d}.parquet", rest))
        generation = Generation(name, now_us, tuple(files), base.taken_in if base else {})
        return complete(self._folder, generation, known)

    def _forget_runs(self) -> None:
        for name in self._folder.names(RUNS):
            if name.endswith(".arrow") and self._holds_a_key(name):
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
