"""The ledger of a lookup in a task attempt: known answers before calls, and new answers."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.declare.answers.answer_json import dump
from jobs.declare.lookup import Key
from jobs.errors import LedgerError
from jobs.ledger.answers import StoredOutcome
from jobs.ledger.index import AnswerIndex, write_index
from jobs.ledger.keys import key_text
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.resolution import effective_records
from jobs.ledger.writing.writer import LedgerWriter
from jobs.storage.locked_folders import temporary_folder


@dataclass(frozen=True, slots=True)
class Stored:
    """A position in a ledger's writes."""

    writer: LedgerWriter
    ticket: int

    @property
    def reached(self) -> bool:
        """Whether everything before it is stored."""
        return self.writer.stored >= self.ticket

    def wait(self) -> None:
        """Flush up to it and wait.

        Raises:
            LedgerError: The answers cannot be stored.
        """
        self.writer.wait(self.ticket)


class TaskLedger:
    """Opens known answers, stores new answers, and reports when they are stored.

    Only open, read_earlier_attempts and close may block; everything else runs on the event loop.

    Raises:
        LedgerError: The ledger cannot be read or written, so that no call is made whose answer
            cannot be stored.
    """

    def __init__(
        self, plan: LedgerPlan, partition: int, attempt: int, now_us: Callable[[], int]
    ) -> None:
        self._plan = plan
        self._task = f"{plan.of_pass}{partition}-"  # begins the names of its parts
        self._attempt = attempt
        self._now_us = now_us
        self._folder = plan.open_folder()
        self._indexes: list[AnswerIndex] = []
        self._writer: LedgerWriter  # once it is open
        self._ticket = 0
        self._marked: set[str] = set()  # keys whose calls must not be repeated
        self._waiter: ThreadPoolExecutor | None = None

    def open(self) -> None:
        """Map the run's known answers and start the writer, before the first clock starts."""
        plan = self._plan
        if plan.index is not None:
            self._indexes.append(AnswerIndex.open(plan.index))
        if not plan.idempotent:
            self._waiter = ThreadPoolExecutor(1, "ledger marks")
        self._writer = LedgerWriter(
            self._folder,
            plan.run_id,
            f"{self._task}{self._attempt}",
            hidden=plan.hidden,
            flush_rows=plan.flush_rows,
            flush_seconds=plan.flush_seconds,
        )

    def close(self) -> None:
        """Store remaining answers, of an open ledger.

        Raises:
            LedgerError: They cannot be stored.
        """
        try:
            self._writer.close()
        finally:
            if self._waiter is not None:
                self._waiter.shutdown(wait=False, cancel_futures=True)

    # -- what is known -----------------------------------------------------------------------------
    @property
    def hidden(self) -> bool:
        return self._plan.hidden

    @property
    def indexes(self) -> Sequence[AnswerIndex]:
        """Index by precedence: of this task's earlier attempts, then of the run."""
        return self._indexes

    def read_earlier_attempts(self) -> int:
        """Map the answers that other attempts of this task stored, before the first call.

        Blocks. Returns the number of answers.
        """
        folder = self._folder
        parts = folder.parts(self._plan.run_id, self._task)
        table = effective_records(folder.read(parts)) if parts else None
        if table is None or not table.num_rows:
            return 0
        with temporary_folder() as temporary:  # mapped files outlive their names
            path = str(Path(temporary, "earlier.arrow"))
            write_index(path, table)
            self._indexes.insert(0, AnswerIndex.open(path))
        return int(table.num_rows)

    # -- what comes back ---------------------------------------------------------------------------
    def keep(self, key: Key, answer: Any | None, answered_at: int) -> None:
        """Enqueue the raw answer of a call; never blocks.

        Args:
            key: The key.
            answer: The raw answer; None for a miss.
            answered_at: µs since the epoch.
        """
        if answer is None:
            self._put(key, "miss", None, answered_at)
        else:  # as bytes at once, because the caller may change it
            self._put(key, "ok", dump(answer), answered_at)

    def keep_error(self, key: Key, reason: str, *, final: bool) -> None:
        """Store a key's error, but never beside the mark of a call that may have acted: once its
        time to live ran out, the call would be made again.

        Args:
            key: The key.
            reason: The error's text.
            final: Whether the service refused the key, which settles its mark.
        """
        if self._plan.ttl.keeps_errors if self._plan.idempotent else final:
            self._put(key, "error", dump(reason), self._now_us())

    def expire(self, keys: Sequence[Key]) -> None:
        """Expire the stored answers of these keys, which may be another key's.

        A call that must not be repeated keeps its mark, or gets it back after a 429 that may be
        another call's, and its answer is lost. Never raises: the next stored answer reports a full
        disk.
        """
        now = self._now_us()
        with suppress(LedgerError):
            for key in keys:
                self._put(key, "expired", None, now)
                if not self._plan.idempotent:
                    self._marked.add(self._text(key))
                    self._put(key, "asked", None, now + 1)

    def _put(
        self, key: Key, outcome: StoredOutcome, response: bytes | None, answered_at: int
    ) -> None:
        self._ticket = self._writer.put(key, outcome, response, answered_at)

    def durability_mark(self) -> Stored:
        """Return the position of all answers so far, for another thread to wait for."""
        return Stored(self._writer, self._ticket)

    def hurry(self) -> None:
        """Have all answers so far stored at once, without waiting."""
        self._writer.hurry(self._ticket)

    # -- calls that must not be made twice ---------------------------------------------------------
    def was_asked(self, key: Key) -> bool:
        """Return whether this task has marked the key, without taking the mark back."""
        return bool(self._marked) and self._text(key) in self._marked

    async def mark(self, keys: Sequence[Key]) -> None:
        """Store "asked" marks and wait; concurrent marks share a part."""
        assert self._waiter is not None
        for key in keys:
            self._marked.add(self._text(key))
            self._put(key, "asked", None, self._now_us())
        await asyncio.get_running_loop().run_in_executor(self._waiter, self.durability_mark().wait)

    def settle(self, keys: Sequence[Key]) -> None:
        """Clear the marks of calls that did nothing: this run or a later one makes them."""
        for key in keys:
            if self.was_asked(key):
                self._marked.discard(self._text(key))
                self._put(key, "expired", None, self._now_us())

    def _text(self, key: Key) -> str:
        return key_text(key, hidden=self._plan.hidden)
