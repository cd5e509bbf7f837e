"""The files of vendor jobs in the folder of a lookup's answers.

    <folder>/jobs/<token>/intent.parquet    the keys in the order of the items; before the request
                         /submitted.json    the vendor's id of the job
                         /done.json         what became of it; its results are stored before
    <folder>/jobs/lock                      held while open jobs are listed and intents are written
    <folder>/waiting/<enrichment>-<day>.json    since when a day waits for which jobs

A job is open from its intent to its done.json, which is created once. The keys of an open job
belong to it, whichever run submitted it.
"""

import contextlib
import json
import os
import re
import secrets
import socket
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.errors import LedgerError
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.store import LedgerFolder
from jobs.storage import durable, objects
from jobs.storage.file_lock import WAIT, lock_file
from jobs.storage.object_lock import LockLost, held
from jobs.storage.stored_files import error_text
from jobs.storage.urls import below

JOBS, WAITING = "jobs", "waiting"
INTENT, SUBMITTED, DONE = "intent.parquet", "submitted.json", "done.json"
FACTS = b"tidegate.job"  # metadata of an intent
KEY = "key"  # column of an intent: the keys in the ledger's form
LOCK = "lock"
NEVER_SENT = "never submitted"
_DRAFT_OF_INTENT = re.compile(rf"/\.{re.escape(INTENT)}\.\w+{re.escape(durable.DRAFT)}$")
NO_FACTS: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Job:
    """A job in the ledger.

    Attributes:
        token: Its folder's name, which the vendor gets too.
        submitted: `job`, the vendor's id, and `at`; empty before the vendor has accepted it.
        done: `state` and the counts of `Ended`; empty while the job is open.
    """

    token: str
    submitted: Mapping[str, Any] = field(default_factory=dict)
    done: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return not self.done

    @property
    def id(self) -> str:
        """The vendor's id; empty if it is unknown."""
        return str(self.submitted.get("job", ""))

    def until(self, intent: "Intent", give_up: timedelta) -> float:
        """Return when the job is given up, in s since the epoch."""
        return float(self.submitted.get("at", intent.at)) + give_up.total_seconds()


@dataclass(frozen=True)
class Intent:
    """What was about to be submitted.

    Attributes:
        keys: KEY, and the columns of the key unless they are personal.
        run_id: The run that submits it.
        at: Seconds since the epoch.
        enrichment: Its name.
        day: The day.
        erased: The number of items whose keys were erased since; the vendor bills them too.
        budgeted: Budgets count it.
    """

    keys: pa.Table
    run_id: str
    at: float
    enrichment: str = ""
    day: str = ""
    erased: int = 0
    budgeted: bool = False

    @property
    def items(self) -> int:
        """The number of items in the job at the vendor."""
        return int(self.keys.num_rows) + self.erased

    def facts(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id, "at": self.at, "enrichment": self.enrichment, "day": self.day,
            "erased": self.erased, **({"budgeted": True} if self.budgeted else {}),
        }  # fmt: skip


@dataclass(frozen=True)
class JobFiles:
    """Reads and writes the jobs of a lookup."""

    folder: LedgerFolder

    # -- jobs --------------------------------------------------------------------------------------
    def jobs(self, *, since: float | None = None) -> list[Job]:
        """Return the jobs, sorted by token.

        Args:
            since: Only open jobs, and those that ended at or after this time, in s since the epoch,
                by the clock of the ledger's files.

        Raises:
            LedgerError: The ledger cannot be read.
        """
        names: dict[str, dict[str, float]] = {}
        start = len(self.folder.path) + len(JOBS) + 2
        for info in self.folder.files(JOBS):
            token, _, name = info.path[start:].partition("/")
            if name in {INTENT, SUBMITTED, DONE}:
                changed = 0.0 if info.mtime is None else info.mtime.timestamp()
                names.setdefault(token, {})[name] = changed
        found = []
        for token, files in sorted(names.items()):
            # done.json is last; a power cut may have lost the intent of a job without it
            if INTENT not in files and DONE not in files:
                continue
            if since is not None and DONE in files and files[DONE] < since:
                continue
            found.append(self._job(token, files))
        return found

    def job(self, token: str) -> Job:
        """Return the job with this token. Raises LedgerError."""
        return self._job(token, (SUBMITTED, DONE))

    def _job(self, token: str, names: Container[str]) -> Job:
        facts = {name: self._read(f"{token}/{name}") for name in (SUBMITTED, DONE) if name in names}
        return Job(token, facts.get(SUBMITTED, NO_FACTS), facts.get(DONE, NO_FACTS))

    def _read(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.folder.read_bytes(f"{JOBS}/{name}"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise self.folder.unreadable(f"{JOBS}/{name}", error) from error
        return found

    def intent(self, token: str) -> Intent:
        """Return what a job was to ask. Raises LedgerError; FileNotFoundError if it is lost."""
        name = f"{JOBS}/{token}/{INTENT}"
        try:
            # read_table imports pandas
            with pq.ParquetFile(pa.BufferReader(self.folder.read_bytes(name))) as file:
                keys = file.read()
            facts = json.loads((keys.schema.metadata or {})[FACTS])
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise self.folder.unreadable(name, error) from error
        return Intent(keys.replace_schema_metadata(None), **facts)

    def write_intent(self, token: str, intent: Intent) -> None:
        """Write the intent, durably, before the job is submitted. Raises LedgerError."""
        sink = pa.BufferOutputStream()
        facts = {FACTS: json.dumps(intent.facts()).encode()}
        pq.write_table(intent.keys.replace_schema_metadata(facts), sink, compression="zstd")
        self.folder.replace(f"{JOBS}/{token}/{INTENT}", sink.getvalue(), lasting=True)

    def write_submitted(self, token: str, job: str, at: float) -> None:
        """Note the vendor's id of the job and when it was submitted, in s since the epoch."""
        self._write(f"{token}/{SUBMITTED}", {"job": job, "at": at})

    def _write(self, name: str, facts: Mapping[str, Any]) -> None:
        data = json.dumps(facts, indent=1).encode()
        self.folder.replace(f"{JOBS}/{name}", data, lasting=True)

    def finish(self, token: str, facts: Mapping[str, Any]) -> bool:
        """Mark a job done, durably. Returns False if an earlier call has done so."""
        return self.folder.create(f"{JOBS}/{token}/{DONE}", json.dumps(facts, indent=1).encode())

    def store(
        self,
        token: str,
        answers: Sequence[StoredAnswer],
        *,
        random: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        """Store results of a job as a part; on return they survive a power cut."""
        self.folder.write_part(f"job-{token}", random(8), answers, lasting=True)

    def open_keys(self) -> pa.Array:
        """Return the keys of all open jobs."""
        found = [self.intent(job.token).keys[KEY] for job in self.jobs() if job.is_open]
        return pa.chunked_array(
            [chunk for keys in found for chunk in keys.chunks], pa.string()
        ).combine_chunks()

    def erase(self, keys: pa.Array) -> int:
        """Rewrite the intents without these keys. Returns how many intents had any of them.

        Results of an erased key are not stored, and count as billed. Raises LedgerError.
        """
        if not self.folder.names(JOBS):
            return 0
        with self.locked():  # no run may list the jobs while an intent is replaced, or write one
            names = self.folder.names(JOBS)
            drafts = [name for name in names if _DRAFT_OF_INTENT.search(name)]  # left by a kill
            self.folder.delete(*drafts)
            return sum(self._erase(job.token, keys) for job in self.jobs())

    def _erase(self, token: str, keys: pa.Array) -> bool:
        try:
            intent = self.intent(token)
        except FileNotFoundError:  # lost by a power cut after a kill, before anything was sent
            return False
        is_wanted = pc.is_in(intent.keys[KEY], value_set=keys)
        if not pc.any(is_wanted).as_py():
            return False
        rest = intent.keys.filter(pc.invert(is_wanted))
        self.write_intent(token, replace(intent, keys=rest, erased=intent.items - rest.num_rows))
        return True

    # -- the lock ----------------------------------------------------------------------------------
    @contextlib.contextmanager
    def locked(self, *, wait: float = WAIT) -> Iterator[None]:
        """Let no other run write intents while the body runs; the body must send no request.

        Args:
            wait: Seconds to wait for another run.

        Raises:
            LedgerError: Another run holds the lock for longer, or the lock was lost before the body
                ended: nothing may be submitted.
        """
        with contextlib.ExitStack() as stack:
            confirm: Callable[[], object] | None = None  # a local lock cannot be lost
            with self._lock_errors():
                if self.folder.filesystem.type_name == "local":
                    self._lock_file(stack, wait)
                elif objects.can_open(self.folder.root):
                    folder, about = self.folder, {"host": socket.gethostname(), "pid": os.getpid()}
                    place = below(folder.root, folder.lookup, folder.fingerprint, JOBS, LOCK)
                    confirm = stack.enter_context(held(place, about, wait=wait)).confirm
                else:
                    raise LedgerError(
                        f"ledger {self.folder.root!r}: jobs need a local folder or, with "
                        "tidegate[s3] installed, an object store."
                    )
            yield
            if confirm is not None:
                with self._lock_errors():
                    confirm()

    def _lock_file(self, stack: contextlib.ExitStack, wait: float) -> None:
        path = Path(self.folder.path, JOBS, LOCK)
        durable.make_folder(path.parent)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        stack.callback(os.close, file)
        lock_file(file, path, wait=wait)

    @contextlib.contextmanager
    def _lock_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, LockLost) as error:
            raise LedgerError(
                f"ledger {self.folder.root!r}: the lock of its jobs cannot be held: "
                f"{error_text(error)}. Nothing was submitted."
            ) from error

    # -- days that wait ----------------------------------------------------------------------------
    def waiting(self, enrichment: str, day: str) -> dict[str, Any]:
        """Return `since`, `tokens` and `unsent` of a day that waits; empty for any other day."""
        return self._read_waiting(_waiting(enrichment, day))

    def days_waiting(self, enrichment: str) -> list[dict[str, Any]]:
        """Return `waiting`, with `day`, of each day of an enrichment that waits."""
        start = len(self.folder.path) + 1
        found = (self._read_waiting(info.path[start:]) for info in self.folder.files(WAITING))
        return [facts for facts in found if facts.get("enrichment") == enrichment]

    def _read_waiting(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.folder.read_bytes(name))
        except (FileNotFoundError, ValueError):
            return {}
        return found

    def write_waiting(self, enrichment: str, day: str, facts: Mapping[str, Any]) -> None:
        data = json.dumps({"enrichment": enrichment, "day": day, **facts}, indent=1).encode()
        self.folder.replace(_waiting(enrichment, day), data, lasting=True)

    def end_waiting(self, enrichment: str, day: str) -> None:
        self.folder.delete(_waiting(enrichment, day))


def _waiting(enrichment: str, day: str) -> str:
    return f"{WAITING}/{enrichment}-{day}.json"
