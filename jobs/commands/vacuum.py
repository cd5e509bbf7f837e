"""`vacuum`: removes files that no reader needs from an enrichment's tables."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.tables import leftovers, old_files
from jobs.tables.records import run_records
from jobs.tables.shown import shown_elsewhere

MOST_DAYS = 36_500
LONGEST_WRITE = 60.0  # s; a younger draft of a record may belong to a live process


@dataclass(frozen=True)
class Vacuumed:
    table: str
    removed: old_files.Removed


def parse_age(keep_days: int) -> timedelta:
    """Return the age of what `vacuum` may remove. Raises DeclarationError."""
    if not 0 <= keep_days <= MOST_DAYS:
        raise DeclarationError(f"--keep-days is {keep_days}; it must be 0 to {MOST_DAYS:,}.")
    return timedelta(days=keep_days)


def vacuum(
    enrichment: Enrichment,
    *,
    older_than: timedelta = old_files.RETENTION,
    clock: Callable[[], float] = time.time,
) -> list[Vacuumed]:
    """Remove old versions and unpublished runs from all tables; safe beside running jobs.

    Also marks records as published whose runs readers see, but which a crash left as written.

    Raises TidegateError if the published table has lost its log, and DeclarationError if a table's
    log knows replaced files for a shorter time.
    """
    leftovers.require_log(enrichment)
    tables = [written.path for written in enrichment.tables()]
    for table in tables:
        old_files.require_known(table, older_than)
    leftovers.save_published_records(enrichment)
    run_records.remove_drafts(
        enrichment.name, clock() - max(older_than.total_seconds(), LONGEST_WRITE)
    )
    shown_elsewhere.catch_up(enrichment.facts())  # so that they name no file that is removed below
    shown_elsewhere.forget_versions(enrichment.facts(), older_than)
    leftovers.remove_uncommitted(enrichment.output.path, older_than=older_than, now=clock())
    return [Vacuumed(table, old_files.vacuum(table, older_than=older_than)) for table in tables]
