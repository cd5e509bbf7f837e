"""Writes answers to the ledger: the event loop enqueues, a thread writes in batches."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jobs.declare.lookup import Key
from jobs.errors import LedgerError
from jobs.ledger.answers import SCHEMA, StoredOutcome, columns_table
from jobs.ledger.journal import Journal
from jobs.ledger.keys import texts_in_bulk
from jobs.ledger.store import LedgerFolder

_log = logging.getLogger("tidegate.ledger")

JOURNAL_EVERY = 0.02  # s
LARGEST_SHARE = 0.01  # share of its time in which the thread writes while no task waits


class LedgerWriter:
    """Stores answers in order by a thread: after `flush_rows` answers or `flush_seconds` s.

    A waiting caller is served at once. Until a part is stored, its answers are in a journal within
    20 ms. A killed process loses the answers of this time and of the duration of a write; without a
    local disk, the answers since its last stored part began. If answers come faster than 200 in a
    few ms, parts are larger, so that writing takes at most a hundredth of a core; `flush_seconds`
    still holds.
    """

    def __init__(
        self,
        folder: LedgerFolder,
        run_id: str,
        prefix: str,
        *,
        hidden: bool = False,
        flush_rows: int = 200,
        flush_seconds: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
        token: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        """Start the thread.

        Args:
            folder: The ledger's folder.
            run_id: The run.
            prefix: `<partition>-<attempt>`.
            hidden: Whether a digest is stored instead of each key.
            flush_rows: Answers after which a part is stored.
            flush_seconds: Seconds after which a part is stored.
            clock: Seconds, monotonic.
            token: Makes a text by which the names of parts are unique among writers.
        """
        self._folder = folder
        self._run_id = run_id
        self._prefix = f"{prefix}-{token(4)}"
        self._hidden = hidden
        self._clock = clock
        self._flush_rows = flush_rows
        self._flush_seconds = flush_seconds
        self._lock = threading.Lock()
        self._wake = threading.Event()
        # an answer is pending, or none will come: until then an idle thread sleeps
        self._came = threading.Event()
        self._stored_more = threading.Condition(self._lock)
        # keys, outcomes, responses, times; a tuple for each answer would be work for the collector
        self._pending: tuple[list[Any], ...] = ([], [], [], [])
        self._taken = 0  # answers enqueued so far
        self._converted = 0  # those that the thread took from `pending`
        self._full_at = flush_rows  # the ticket at which a part is full
        self._stored = 0  # the number of stored answers
        self._wanted = 0  # a caller waits for the answers up to this number
        # of the next part; only the thread uses them
        self._parts = 0
        self._columns: list[list[Any]]
        self._journal: Journal | None = None
        self._writes_journals = True
        self._failure: LedgerError | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="ledger writer", daemon=True)
        self._thread.start()

    def put(
        self, key: Key, outcome: StoredOutcome, response: bytes | None, answered_at: int
    ) -> int:
        """Enqueue a StoredAnswer with the raw key, from any thread, without waiting for a disk.

        Returns:
            A ticket for `wait`.

        Raises:
            LedgerError: A part could not be written, so no call may be made: its answer could not
                be stored.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._taken == self._converted:  # the first since the thread took the others
                self._came.set()
            keys, outcomes, responses, times = self._pending
            keys.append(key)
            outcomes.append(outcome)
            responses.append(response)
            times.append(answered_at)
            self._taken = ticket = self._taken + 1
            if ticket == self._full_at:
                self._wake.set()
            return ticket

    @property
    def stored(self) -> int:
        return self._stored

    def wait(self, ticket: int) -> None:
        """Wait until the answer of this ticket, and all before it, are stored. Raises LedgerError.

        Call it from any thread but the event loop's.
        """
        if self._stored >= ticket:
            return
        self.hurry(ticket)
        with self._lock:
            while self._stored < min(ticket, self._taken) and self._failure is None:
                self._stored_more.wait()
            if self._stored < ticket and self._failure is not None:
                raise self._failure

    def hurry(self, ticket: int) -> None:
        """Store the answers up to this ticket soon; does not wait. Callable from any thread."""
        with self._lock:
            self._wanted = max(self._wanted, min(ticket, self._taken))
        self._wake.set()

    def close(self) -> None:
        """Store the remaining answers and end the thread; may be called twice.

        A cancelled task that cannot wait may skip this: the thread ends with the process. Raises
        LedgerError if an answer is not stored.
        """
        self._closing = True
        self._wake.set()
        self._came.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    # -- the thread --------------------------------------------------------------------------------
    def _run(self) -> None:
        began = rested = self._clock()
        with self._failing():
            self._begin_part(0)
        while not self._closing:
            if not (self._columns[0] or self._came.is_set()):
                self._came.wait()
                began = self._clock()
            due = began + self._flush_seconds
            self._journal_until(due)
            self._wake.clear()
            if self._stored >= self._wanted and not self._closing:
                self._journal_until(min(rested, due))
            began = self._clock()
            self._write_pending()
            now = self._clock()
            rested = now + (now - began) * (1 / LARGEST_SHARE - 1)
            if self._failure is not None:
                return
        self._write_pending()

    def _journal_until(self, due: float) -> None:
        """Wait until `due` or a wake-up; meanwhile append new answers to the journal."""
        while (left := due - self._clock()) > 0 and self._failure is None:
            if self._wake.wait(min(left, JOURNAL_EVERY)):
                return
            if self._pending[0] and self._journal is not None:
                with self._failing():
                    columns = self._take_pending()
                    self._append(columns)

    def _append(self, columns: Sequence[Sequence[Any]]) -> None:
        assert self._journal is not None
        try:
            self._journal.append(columns)
        # a part that cannot be written ends the run; a journal is only for a kill
        except OSError as error:
            _log.warning("ledger %r: no journal: %s", self._folder.root, error)
            self._journal, self._writes_journals = None, False
            self.hurry(self._taken)  # a full disk is known before more calls are made

    def _take_pending(self) -> Sequence[Sequence[Any]]:
        """Return the columns of the pending answers, which belong to the next part from now on."""
        with self._lock:
            (keys, *others), self._pending = self._pending, ([], [], [], [])
            self._came.clear()
            self._converted = self._taken
        texts = texts_in_bulk(keys, hidden=self._hidden)
        columns = (texts, *others, [self._run_id] * len(texts))
        for column, values in zip(self._columns, columns, strict=True):
            column.extend(values)
        return columns

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Pass a failure of the body to the waiting callers."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # the callers must learn of any failure
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, LedgerError):
            root = self._folder.root
            error = LedgerError(f"ledger {root!r}: answers cannot be stored: {error!r}.")
        with self._lock:
            self._failure = self._failure or error
            self._stored_more.notify_all()

    def _write_pending(self) -> None:
        with self._lock:
            self._full_at = self._taken + self._flush_rows
        if not self._pending[0] and not self._columns[0]:
            return
        name = f"{self._prefix}-{self._parts:05d}"
        with self._failing():
            self._take_pending()
            # a lost mark would repeat a call that must not be repeated; lost answers are only paid
            # again
            has_marks = "asked" in self._columns[1]
            table = columns_table(self._columns)
            self._folder.write_part(self._run_id, name, table, lasting=has_marks)
            if self._journal is not None:
                self._journal.remove()
            with self._lock:
                self._stored += len(table)
                self._stored_more.notify_all()
            self._begin_part(self._parts + 1)

    def _begin_part(self, number: int) -> None:
        self._parts, self._columns = number, [[] for _ in SCHEMA]
        name = f"{self._prefix}-{number:05d}"
        self._journal = self._folder.journal(self._run_id, name) if self._writes_journals else None
