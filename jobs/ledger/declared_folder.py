"""The folder that a declared lookup keeps its answers in, by the fingerprint of its request: only its change repeats
calls.
"""

from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup
from jobs.declare.values.fingerprint import fingerprint
from jobs.ledger.store import LedgerFolder


def request_fingerprint(lookup: Lookup) -> str:
    """16 hex digits, the same in every process, of kind, names of keys, service, request, miss conditions and version.

    Not of returns, paths, limits, prices, retries, concurrency, times to live, policies or auth.
    """
    return fingerprint(lookup.request_facts())


def declared_folder(enrichment: Enrichment, lookup: Lookup) -> LedgerFolder | None:
    """None where the enrichment has no ledger."""
    if enrichment.ledger is None:
        return None
    return LedgerFolder(enrichment.ledger.path, lookup.name, request_fingerprint(lookup))
