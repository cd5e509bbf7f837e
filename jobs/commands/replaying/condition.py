"""An SQL condition over stored answers, such as "answer.lat = 0", evaluated by an in-memory SQLite.

`answer` has the lookup's columns; `stored` has key, outcome, response (the raw JSON), answered_at
(UTC, as text) and run_id. So "stored.outcome = 'miss'" and "json_extract(stored.response,
'$.status') = 'OVER'" work too.
"""

import datetime as dt
import decimal
import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from jobs.clients.registry import client_for
from jobs.declare.lookup import Lookup
from jobs.errors import DeclarationError
from jobs.ledger.answers import StoredAnswer
from jobs.ledger.plan import OF_KEYS
from jobs.task.rows.ledger_hits import stored_columns

STORED = ("key", "outcome", "response", "answered_at", "run_id")
NUMBER = '" row"'  # the answer's number; `rowid` may be an answer's column
BEYOND_SQLITE = 2**63  # its integers have 64 bits, as a BIGINT


class Condition:
    """A condition on a lookup's answers. Raises DeclarationError if it is invalid."""

    def __init__(self, lookup: Lookup, where: str) -> None:
        self._where = where
        self._columns = [column.name for column in lookup.columns]
        self._caller = client_for(lookup, 1)
        self._tables = sqlite3.connect(":memory:")
        self._tables.execute(
            f"CREATE TABLE answer ({NUMBER}, {', '.join(map(_quoted, self._columns))})"
        )
        self._tables.execute(f"CREATE TABLE stored ({NUMBER}, {', '.join(STORED)})")
        both = f"answer JOIN stored ON answer.{NUMBER} = stored.{NUMBER}"
        self._query = f"SELECT stored.{NUMBER} FROM {both} WHERE ({where}\n)"  # noqa: S608  # a single SELECT
        self.holds_for([])

    def holds_for(self, answers: Sequence[StoredAnswer]) -> list[bool]:
        with self._tables:
            self._tables.execute("DELETE FROM answer")
            self._tables.execute("DELETE FROM stored")
            self._insert("answer", len(self._columns), [self._mapped(answer) for answer in answers])
            self._insert("stored", len(STORED), [_stored(answer) for answer in answers])
        try:
            true = {number for (number,) in self._tables.execute(self._query)}
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise DeclarationError(
                f"--where {self._where!r}: {error}. Write a SQL condition over answer.<column> "
                f"({', '.join(self._columns)}) and stored.<column> ({', '.join(STORED)}), such as "
                f'"answer.{self._columns[0]} = 0".'
            ) from error
        return [number in true for number in range(len(answers))]

    def _insert(self, table: str, width: int, rows: list[tuple[Any, ...]]) -> None:
        values = f"({', '.join('?' * (1 + width))})"
        numbered = [(number, *row) for number, row in enumerate(rows)]
        self._tables.executemany(f"INSERT INTO {table} VALUES {values}", numbered)  # noqa: S608  # ours

    def _mapped(self, stored: StoredAnswer) -> tuple[Any, ...]:
        """Return the columns as published now; null for a miss or an answer that does not fit."""
        columns = stored_columns(self._caller, stored)
        return (None,) * len(self._columns) if columns is None else tuple(map(_plain, columns))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _stored(answer: StoredAnswer) -> tuple[Any, ...]:
    at = dt.datetime.fromtimestamp(answer.answered_at / 1e6, dt.UTC)
    response = None if answer.response is None else answer.response.decode()
    run_id = answer.run_id.removesuffix(OF_KEYS)  # as `show` and `explain` name the run
    return answer.key, answer.outcome, response, f"{at:%Y-%m-%d %H:%M:%S}", run_id


def _plain(value: Any) -> Any:
    """Return a value for SQLite: numbers, booleans as 1 and 0, others as text or JSON.

    A decimal that is a whole number keeps all its digits.
    """
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        is_whole = value.is_finite() and value == value.to_integral_value()
        return int(value) if is_whole and abs(value) < BEYOND_SQLITE else float(value)
    if value is None or isinstance(value, int | float | str | bytes):
        return value
    return (
        str(value) if not isinstance(value, dict | list | tuple) else json.dumps(value, default=str)
    )
