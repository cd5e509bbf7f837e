"""What publications that crashed left in the tables beside the published one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.tables import audit, by_run, dead_letters
from jobs.tables.asked_keys import runs_in_table
from jobs.tables.publishers import alone_with, storing

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment


def delete_what_crashes_left(enrichment: Enrichment) -> None:
    """Delete audit rows and dead letters of unpublished runs."""
    table = enrichment.output.path
    with storing(table), alone_with(table):
        published = runs_in_table(enrichment)
        for beside in (audit.table_of(table), dead_letters.table_of(table)):
            by_run.keep_published(beside, enrichment.input.partition, published)
