"""The file of the limits over runs: a real SQLite file, reached by steps that may fail.

Each statement is a step. Other runs go on between two of them, so that a change is sometimes
overtaken by another.
"""

import pathlib
import sqlite3
from typing import Any

from jobs.limits import file_store
from jobs.limits.lease_book import LeaseBook
from jobs.limits.store import book_in
from jobs.storage import machine
from tests.simulation.night_at_work import scheduler

SINCE_START = 1000.0  # s by which the machine is older than the night
SLOW = 0.02  # s at most, of a statement


class Done:
    """sqlite3.Cursor, with all its rows."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[Any]:
        return self._rows


class Connection:
    """sqlite3.Connection, of one simulated process."""

    def __init__(self, path: str, **options: Any) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False, **options)

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> "Done":
        night = scheduler()
        faults = night.vendor.faults
        night.sleep(SLOW * night.network.draws.random())
        since, until = night.limits_away
        if since <= night.now < until or faults.strikes("error of the limits' store"):
            faults.struck["limits' store away"] += since <= night.now < until
            raise sqlite3.OperationalError("database is locked")
        cursor = self._connection.execute(statement, values)
        # an open cursor would keep the lock of a killed process
        done = Done(cursor.fetchall())
        if statement.startswith("INSERT"):
            night.say("limits", values[0])
        night.give_way()
        night.me()
        if faults.strikes("error of the limits' store", weight=0.3):
            raise sqlite3.OperationalError("disk I/O error")
        return done

    @property
    def total_changes(self) -> int:
        return self._connection.total_changes

    def close(self) -> None:
        self._connection.close()


def since_start(_clock: int = 0) -> float:
    """time.clock_gettime of the clock that counts from the machine's start."""
    return SINCE_START + scheduler().now


class BootId:
    """The file with the id of this start of the machine."""

    def exists(self) -> bool:
        return True

    def read_text(self, encoding: str = "utf-8") -> str:
        return f"start {scheduler().starts}\n"


def books(path: pathlib.Path) -> dict[str, LeaseBook]:
    """All books of the file, read beside the product."""
    if not path.exists():
        return {}
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT service, book FROM books").fetchall()
    return {service: book_in(book, service, str(path)) for service, book in rows}


def install(stand_in: Any) -> None:
    file_store.sqlite3 = stand_in(sqlite3, connect=Connection)
    machine.BOOT_ID = BootId()  # type: ignore[assignment]
