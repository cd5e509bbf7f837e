"""The folder that a declared lookup keeps its answers in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.ledger.requests import request_fingerprint
from jobs.ledger.store import LedgerFolder

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment
    from jobs.declare.lookup import Lookup


def declared_folder(enrichment: Enrichment, lookup: Lookup) -> LedgerFolder | None:
    """None where the enrichment has no ledger."""
    if enrichment.ledger is None:
        return None
    return LedgerFolder(enrichment.ledger.path, lookup.name, request_fingerprint(lookup))
