"""Lookups in a database."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from jobs.declare.limits.rates import Rate, check_rates
from jobs.declare.lookup import Lookup
from jobs.declare.services import Outage, require_concurrency
from jobs.declare.values.env import Env, resolve
from jobs.declare.values.fingerprint import NOT_IN_FINGERPRINT
from jobs.declare.values.templates import require_same_names
from jobs.errors import DeclarationError

if TYPE_CHECKING:
    from sqlalchemy import URL

    from jobs.declare.values.sql_text import Statement, TableName

LARGEST_BATCH = 32_000  # values in one query: SQLite takes 32,766, and PostgreSQL's protocol 32,767
# MySQL matches the text 7abc and the number 7, and gives a TIMESTAMP in the session's zone
DATABASES = ("sqlite+aiosqlite", "postgresql+asyncpg")


@dataclass(frozen=True, kw_only=True)
class SqlLookup(Lookup):
    """A row of a database by its key, through SQLAlchemy's asyncio engine.

    Attributes:
        url: SQLAlchemy URL of SQLite or PostgreSQL, such as sqlite+aiosqlite:///planes.db or
            postgresql+asyncpg://db.example/fleet; Env("NAME") for a URL with a password, read
            where the queries run.
        table: `table` or `schema.table`; its columns include the keys.
        select: Instead of a table, a SELECT whose :parameters are the keys. No row is a miss; two
            or more rows for a key are an error.
        max_concurrency: Queries in flight over all tasks of a run.
        rate: At most so many queries in any period; a list of Rate.
        attempt_timeout: Seconds for a query, by default `timeout`.
        batch_size: Highest number of a table's keys in a query, which is sent when it is full or
            its first key has waited max_wait s.
        max_wait: Longest time that a key waits for others, in seconds.
        outage: When the database counts as down.
    """

    url: str | Env
    table: str | None = None
    select: str | None = None
    max_concurrency: int
    rate: Sequence[Rate] = field(default=(), metadata=NOT_IN_FINGERPRINT)
    attempt_timeout: float | None = None
    batch_size: int = 1
    max_wait: float = 0.05
    outage: Outage = field(default_factory=Outage)

    kind = "sql"

    def _check(self) -> None:
        super()._check()
        require_concurrency("sql", self.max_concurrency)
        check_rates("sql", self.rate)
        if not isinstance(self.url, Env):
            _require_no_password(self.url)
        if (self.table is None) == (self.select is None):
            raise DeclarationError("declare either a table or a select.")
        if self.table is None:
            self._check_select(self.statement)
        else:
            _ = self.table_name
        self._check_batch()

    def _check_select(self, statement: Statement) -> None:
        require_same_names("select", "the select", statement.parameters, self.keys)
        for column in self.columns:
            if statement.columns and column.name not in statement.columns:
                raise DeclarationError(
                    f"returns: {column.name!r} is not a column of the select, "
                    f"which returns: {', '.join(statement.columns)}."
                )

    def _check_batch(self) -> None:
        size = self.batch_size
        if not 1 <= size * len(self.keys) <= LARGEST_BATCH:
            raise DeclarationError(
                f"batch_size is {size}; it must be a whole number, at least 1, and with "
                f"{len(self.keys)} keys at most {LARGEST_BATCH // len(self.keys):,}."
            )
        if not 0 <= self.max_wait < math.inf:
            raise DeclarationError(f"max_wait is {self.max_wait} s; it must be 0 or more.")
        if size > 1:
            self._check_waiting()
        if size > 1 and self.select is not None:
            raise DeclarationError(
                "batch_size goes with a table: for many keys Tidegate writes the query itself; "
                "leave batch_size out, or name a table."
            )

    def _check_waiting(self) -> None:
        if self.timeout is None and self.attempt_timeout is None:
            raise DeclarationError(
                "batch_size needs timeout or attempt_timeout; else one hung query holds all its "
                "keys."
            )
        if self.timeout is not None and self.max_wait >= self.timeout:
            raise DeclarationError(
                f"max_wait is {self.max_wait} s, and a row leaves after timeout, {self.timeout} s; "
                "lower max_wait."
            )

    @property
    def backend(self) -> str | None:
        """SQLAlchemy's name of the database; None if only the executors know the address."""
        return None if isinstance(self.url, Env) else self.url.partition(":")[0].partition("+")[0]

    @property
    def table_name(self) -> TableName:
        from jobs.declare.values.sql_text import (
            read_table,  # not above: a worker that asks another way needs no SQL parser
        )

        assert self.table is not None
        return read_table(self.table)

    @property
    def statement(self) -> Statement:
        from jobs.declare.values.sql_text import read_select

        assert self.select is not None
        return read_select(self.select, self.backend)

    @property
    def asked(self) -> str:
        """The table or select in messages."""
        return self.table or "the select"

    @property
    def longest_call(self) -> float | None:
        return self.attempt_timeout or self.timeout

    @property
    def service_name(self) -> str:
        return f"{self.name} database"

    @property
    def address(self) -> str:
        import sqlalchemy

        try:
            return shown_address(sqlalchemy.make_url(resolve(self.url)))
        except (sqlalchemy.exc.ArgumentError, ValueError) as error:
            raise unusable_url(self.name, error) from None

    def request_facts(self) -> dict[str, Any]:
        """Return the facts of a request, without the batch size, which does not change answers."""
        from sqlalchemy import make_url

        url = self.url if isinstance(self.url, Env) else make_url(self.url).render_as_string()
        asked = {"table": self.table} if self.select is None else {"select": self.select}
        selected = [column.name for column in self.columns]
        return super().request_facts() | {"url": url, "selected": selected} | asked


def unusable_url(lookup: str, error: Exception) -> DeclarationError:
    """Return the refusal of an address; the error's text may contain it, and so a password."""
    return DeclarationError(
        f"lookup {lookup}: url is not one that SQLAlchemy can use with asyncio "
        f"({type(error).__name__}). Write it as sqlite+aiosqlite:///planes.db or "
        "postgresql+asyncpg://reader@db.example:5432/fleet, and several hosts as "
        "postgresql+asyncpg://reader@/fleet?host=a:5432&host=b:5432."
    )


def require_known_database(lookup: str, name: str) -> None:
    """Raise DeclarationError for a database or driver that may give a key another key's row."""
    if name not in DATABASES:
        raise DeclarationError(
            f"lookup {lookup}: url: {name} is neither {' nor '.join(DATABASES)}, whose comparisons "
            "and types a SqlLookup knows. Ask another database by a coroutine (@lookup)."
        )


def _require_no_password(url: str) -> None:
    """Refuse a password in the address, because plans and repositories contain declarations.

    The DeclarationError does not show the address.
    """
    try:
        parts = urlsplit(url)
        secret = parts.password is not None or "password" in parse_qs(parts.query)
    except ValueError:  # not a URL; SQLAlchemy reports it before the first call
        return
    if secret:
        raise DeclarationError(
            'url holds a password; it must be Env("NAME"), the name of an environment variable '
            "that holds the whole address, as a declaration is no place for a secret."
        )


def shown_address(url: URL) -> str:
    """Return the address for messages.

    It omits the query, and the part before an unescaped @ of the host, as both may contain a
    password.
    """
    text = url.set(query={}).render_as_string()
    if url.username is None:
        return text
    user, at, rest = text.partition("@")
    return f"{user}{at}{rest.rpartition('@')[2]}"
