"""The folder of a declared lookup's answers, named by the fingerprint of its request.

Only a change of the request repeats calls.
"""

from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup
from jobs.declare.values.fingerprint import fingerprint
from jobs.ledger.store import LedgerFolder


def request_fingerprint(lookup: Lookup) -> str:
    """Return 16 hex digits of a lookup's request, the same in every process.

    They cover kind, names of keys, service, request, miss conditions and version; not returns,
    paths, limits, prices, retries, concurrency, times to live, policies or auth.
    """
    return fingerprint(lookup.request_facts())


def declared_folder(enrichment: Enrichment, lookup: Lookup) -> LedgerFolder | None:
    """Return the lookup's folder; None if the enrichment has no ledger."""
    if enrichment.ledger is None:
        return None
    return LedgerFolder(enrichment.ledger.path, lookup.name, request_fingerprint(lookup))
