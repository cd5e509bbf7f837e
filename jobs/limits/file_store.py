"""A store for the runs of one machine, in an SQLite file. Finished writes survive a process's kill.

SQLite's locks end with the process that holds them. A power cut may lose the last writes, but
leaves a whole file. The clock counts from the start of the machine; from before that, only what was
spent for good counts. Machines have different clocks, so a file that another machine writes too is
refused.
"""

import asyncio
import json
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from jobs.limits.lease_book import LeaseBook
from jobs.limits.store import REMOVE_IT, BookCorrupt, SharedFile, StoreLost, book_in
from jobs.storage.machine import read_boot_id

Found = TypeVar("Found")
LOOK_EVERY = 0.25  # s between two polls for gates that other runs closed
# s in which a run of another machine writes its book, which it does each second
WRITTEN_WITHIN = 2.5
SCHEMA = """
CREATE TABLE IF NOT EXISTS books (service TEXT PRIMARY KEY, version INTEGER NOT NULL,
                                  boot TEXT NOT NULL, book TEXT NOT NULL,
                                  gate_changes INTEGER NOT NULL DEFAULT 0)
"""
UPDATE = """
INSERT INTO books (service, version, boot, book) VALUES (?1, 1, ?2, ?3)
ON CONFLICT (service) DO UPDATE SET version = version + 1, boot = ?2, book = ?3 WHERE version = ?4
"""
RETRY_WITHIN = 0.01  # s, after a concurrent change


def since_start() -> float:
    """Return the seconds since the start of the machine, including sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class FileStore:
    """A LimitStore in a file on a disk of this machine, which is created if it is missing.

    Args:
        path: The file.
        patience: Longest wait for a lock in seconds.
        clock: Seconds, the same for all processes of the machine.
    """

    def __init__(
        self, path: str, *, patience: float, clock: Callable[[], float] = since_start
    ) -> None:
        self._clock = clock
        self._random = random.Random()
        self._path = path
        self._patience = patience
        self._connection: sqlite3.Connection | None = None
        self._boot = read_boot_id()
        self._written: set[str] = set()  # services

    async def step(self, service: str, decide: Callable[[LeaseBook, float], Found]) -> Found:
        while True:
            with self._errors():
                connection = self._connected()
                row = connection.execute(
                    "SELECT version, boot, book FROM books WHERE service = ?", (service,)
                ).fetchone()
                book = book_in(row[2] if row else None, service, self._path)
                if row and row[1] != self._boot:
                    if service in self._written:
                        raise self._shared()
                    book.restart()
                found = decide(book, self._clock())
                kept = (service, self._boot, json.dumps(book.state()), row[0] if row else 0)
                before = connection.total_changes
                connection.execute(UPDATE, kept)
                # `rowcount` is -1 in a Turkish locale, where Python does not know INSERT again
                if connection.total_changes > before:
                    self._written.add(service)
                    return found
            await asyncio.sleep(self._random.uniform(0, RETRY_WITHIN))

    async def books(self) -> tuple[dict[str, LeaseBook], float]:
        """See LimitStore. First takes over books from before the machine's last start."""
        if not self._is_there():  # a look makes no file
            return {}, self._clock()
        if others := self._foreign_books():
            await asyncio.sleep(WRITTEN_WITHIN)
            # without books that another run took over meanwhile
            now = dict(self._foreign_books())
            if any(now.get(service, version) != version for service, version in others):
                raise self._shared()
            for service, _ in others:
                await self.step(service, lambda _book, _now: None)
        with self._errors():
            rows = self._connected().execute("SELECT service, book FROM books").fetchall()
            return {
                service: book_in(book, service, self._path) for service, book in rows
            }, self._clock()

    def _is_there(self) -> bool:
        with self._errors():
            return Path(self._path).exists()

    def _foreign_books(self) -> set[tuple[str, int]]:
        """Return services and versions of books from another machine or start of the machine."""
        with self._errors():
            select = "SELECT service, version FROM books WHERE boot <> ?"
            return {*self._connected().execute(select, (self._boot,)).fetchall()}

    def _shared(self) -> SharedFile:
        return SharedFile(
            f"the file of the limits, {self._path}, is written by another machine too. A file is "
            "for the runs of one machine; let these machines share their limits in PostgreSQL"
        )

    async def check(self) -> None:
        await self.tell("")

    async def changes(self) -> AsyncIterator[str]:
        """See LimitStore. Polls four times a second."""
        seen: dict[str, int] = {}
        first = True
        while True:
            with self._errors():
                rows = (
                    self._connected().execute("SELECT service, gate_changes FROM books").fetchall()
                )
            for service, count in rows:
                if not first and seen.get(service, 0) != count:
                    yield service
                seen[service] = count
            first = False
            await asyncio.sleep(LOOK_EVERY)

    async def tell(self, service: str) -> None:
        with self._errors():
            self._connected().execute(
                "UPDATE books SET gate_changes = gate_changes + 1 WHERE service = ?", (service,)
            )

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._path, timeout=self._patience, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute(SCHEMA)
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            raise StoreLost(
                f"the file of the limits, {self._path}, cannot be used ({error})"
            ) from error
        except sqlite3.Error as error:
            raise BookCorrupt(
                f"the file of the limits, {self._path}, is corrupt ({error}). {REMOVE_IT}"
            ) from error
