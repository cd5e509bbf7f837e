"""A lookup that asks a database, declared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jobs.environment import Env, resolve
from jobs.lookups.lookup import Lookup
from jobs.lookups.services import Outage, require_concurrency

if TYPE_CHECKING:
    from jobs.callers.caller import Caller


@dataclass(frozen=True, kw_only=True)
class SqlLookup(Lookup):
    """One row of a table by its key columns, through SQLAlchemy's asyncio engine.

    url: SQLAlchemy URL with an asyncio driver, as sqlite+aiosqlite:///planes.db. keys: column of the table -> Spark
    SQL. No row is a miss; two or more rows for one key are an error that says so.
    """

    url: str | Env
    table: str
    max_concurrency: int
    outage: Outage = field(default_factory=Outage)

    kind = "sql"

    def _check(self) -> None:
        super()._check()
        require_concurrency("sql", self.max_concurrency)

    @property
    def concurrency(self) -> int:
        return self.max_concurrency

    @property
    def service_name(self) -> str:
        return f"{self.name} database"

    @property
    def address(self) -> str:
        import sqlalchemy

        return sqlalchemy.make_url(resolve(self.url)).render_as_string(hide_password=True)

    @property
    def outage_rule(self) -> Outage:
        return self.outage

    def caller(self, share: int) -> Caller:
        from jobs.callers.sql import SqlCaller

        return SqlCaller(self, share)

    def request_facts(self) -> dict[str, Any]:
        url = self.url if isinstance(self.url, Env) else self.address  # without the password, which may change
        selected = [column.name for column in self.columns]
        return super().request_facts() | {"url": url, "table": self.table, "selected": selected}
