"""The request fingerprint: its change repeats calls, and no other change does."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from jobs.declare.fingerprint import plain

if TYPE_CHECKING:
    from jobs.declare.lookup import Lookup


def request_facts(lookup: Lookup) -> dict[str, Any]:
    """`lookup.request_facts()` for JSON; an environment variable counts by its name."""
    facts: dict[str, Any] = plain(lookup.request_facts())
    return facts


def request_fingerprint(lookup: Lookup) -> str:
    """16 hex digits, the same in every process, of kind, names of keys, service, request, miss conditions and version.

    Not of returns, paths, limits, prices, retries, concurrency, times to live, policies or auth.
    """
    return hashlib.sha256(json.dumps(request_facts(lookup), sort_keys=True).encode()).hexdigest()[:16]
