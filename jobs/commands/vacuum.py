"""`vacuum`: what no reader needs any more, out of an enrichment's tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from jobs.tables import audit, dead_letters, old_files, summaries

if TYPE_CHECKING:
    from jobs.declarations import Enrichment


@dataclass(frozen=True)
class Vacuumed:
    table: str
    removed: old_files.Removed


def tables_of(enrichment: Enrichment) -> list[str]:
    """The published table, its audit, its dead letters and its summaries."""
    table = enrichment.output.path
    made = [summaries.table_of(enrichment, summary) for summary in enrichment.summaries]
    return [table, audit.table_of(table), dead_letters.table_of(table), *made]


def vacuum(enrichment: Enrichment, *, older_than: timedelta = old_files.RETENTION) -> list[Vacuumed]:
    """Old versions and runs that were never published, of every table of the enrichment; safe beside running jobs."""
    return [Vacuumed(table, old_files.vacuum(table, older_than=older_than)) for table in tables_of(enrichment)]
