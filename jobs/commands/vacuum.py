"""`vacuum`: removes files that no reader needs from an enrichment's tables."""

from dataclasses import dataclass
from datetime import timedelta

from jobs.declare.enrichment import Enrichment
from jobs.tables import old_files, shown_elsewhere


@dataclass(frozen=True)
class Vacuumed:
    table: str
    removed: old_files.Removed


def vacuum(enrichment: Enrichment, *, older_than: timedelta = old_files.RETENTION) -> list[Vacuumed]:
    """Remove old versions and unpublished runs from every table of the enrichment; safe beside running jobs."""
    tables = [written.path for written in enrichment.tables()]
    shown_elsewhere.catch_up(enrichment.facts())  # so that it names no file that is removed now
    shown_elsewhere.forget_versions(enrichment.facts(), older_than)
    return [Vacuumed(table, old_files.vacuum(table, older_than=older_than)) for table in tables]
