"""Stores each verdict of each day as a row of a SQL table, in any database of SQLAlchemy."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa

from jobs.schema.records import DayRecord

URL = "TIDEGATE_QUALITY_URL"  # environment variable
DEFAULT_URL = "sqlite:///data/quality.db"
MOST = 300  # characters of a database's message
TABLE_LOCK = 7_414_734  # key of an advisory lock

VERDICTS = sa.Table(
    "verdicts",
    sa.MetaData(),
    sa.Column("enrichment", sa.String(200), primary_key=True),
    # 2013-01-10, 2013-01-10T05Z, a name
    sa.Column("day", sa.String(100), primary_key=True),
    sa.Column("run_id", sa.String(100), primary_key=True),
    sa.Column("check_name", sa.String(200), primary_key=True),
    sa.Column("status", sa.String(10), nullable=False),  # passed, failed, not_run
    sa.Column("severity", sa.String(10), nullable=False),  # error, warn
    sa.Column("sentence", sa.Text, nullable=False),
    sa.Column("unexpected_count", sa.BigInteger, nullable=False),
    sa.Column("element_count", sa.BigInteger, nullable=False),
    sa.Column("expected", sa.Text, nullable=False),
    sa.Column("evidence", sa.Text, nullable=False),  # JSON
    sa.Column("started_at", sa.String(40), nullable=False),  # of the run; ISO 8601, UTC
    sa.Column("fingerprint", sa.String(100), nullable=False),  # of the declaration
    sa.Column("versions", sa.Text, nullable=False),  # JSON
)


class VerdictsRefused(Exception):  # noqa: N818  # what happened
    """The database of verdicts cannot be reached or written; the message is one sentence."""


def require(url: str | None = None) -> None:
    """Check that verdicts can be stored, before a run makes any. Raises VerdictsRefused."""
    with _transaction(url) as connection:
        connection.execute(sa.delete(VERDICTS).where(sa.false()))
        no_row = sa.select(*VERDICTS.c).where(sa.false())
        connection.execute(sa.insert(VERDICTS).from_select(VERDICTS.c.keys(), no_row))


def save(record: DayRecord, url: str | None = None) -> int:
    """Replace the stored verdicts of a run; return their number. Raises VerdictsRefused."""
    facts = record.facts
    of_the_run = {"enrichment": facts.declared.enrichment, "day": facts.day, "run_id": facts.run_id}
    rows = [
        of_the_run
        | {
            "check_name": verdict.check,
            "status": verdict.status,
            "severity": verdict.severity,
            "sentence": _storable(verdict.sentence),
            "unexpected_count": verdict.unexpected_count,
            "element_count": verdict.element_count,
            "expected": _storable(verdict.expected),
            "evidence": json.dumps(verdict.evidence),
            "started_at": facts.started_at,
            "fingerprint": facts.declared.fingerprint,
            "versions": json.dumps(facts.versions),
        }
        for verdict in record.verdicts
    ]
    with _transaction(url) as connection:
        connection.execute(
            sa.delete(VERDICTS).where(
                *(VERDICTS.c[name] == value for name, value in of_the_run.items())
            )
        )
        if rows:
            connection.execute(sa.insert(VERDICTS), rows)
    return len(rows)


@contextlib.contextmanager
def _transaction(url: str | None) -> Iterator[sa.Connection]:
    """Open a transaction. Raises VerdictsRefused for any error of the database or its driver."""
    url = url or os.environ.get(URL) or DEFAULT_URL
    try:
        path = sa.make_url(url).database
        if url.startswith("sqlite") and path and path != ":memory:":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        try:
            with engine.begin() as connection:
                if url.startswith("sqlite"):
                    # replaced rows may name a forgotten row
                    connection.exec_driver_sql("PRAGMA secure_delete = ON")
                _require_table(connection)
                yield connection
        finally:
            engine.dispose()
    except (sa.exc.SQLAlchemyError, OSError, ValueError, ImportError) as error:
        message = " ".join(str(getattr(error, "orig", None) or error).split())[:MOST]
        raise VerdictsRefused(
            f"verdicts: {_shown(url)} ({URL}) cannot store them: {message.rstrip('.')}."
        ) from error


def _require_table(connection: sa.Connection) -> None:
    """Create the table only if it is missing, because a role may lack the right to create it."""
    if not sa.inspect(connection).has_table(VERDICTS.name):
        if connection.dialect.name == "postgresql":
            # two runs that create it at once would collide in the catalogue
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(TABLE_LOCK)))
        connection.execute(sa.schema.CreateTable(VERDICTS, if_not_exists=True))


def _shown(url: str) -> str:
    try:
        return sa.make_url(url).set(query={}).render_as_string()  # a query may hold a password
    except sa.exc.ArgumentError:
        return "the database"


def _storable(text: str) -> str:
    """Return the text without NUL, which PostgreSQL rejects, and without lone surrogates."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
