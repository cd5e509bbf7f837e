"""Stores the request behind a fingerprint, to explain why a key is called again."""

import json
from dataclasses import replace
from typing import Any

from jobs.declare.lookup import Lookup
from jobs.declare.values.fingerprint import plain
from jobs.ledger.store import LedgerFolder

NOTE = "request.json"
LONGEST = 60  # shown characters of a value


def write_request(folder: LedgerFolder, lookup: Lookup) -> None:
    """Write the request beside the answers; it is the same each time. Raises LedgerError."""
    folder.replace(NOTE, json.dumps(plain(lookup.request_facts()), sort_keys=True).encode())


def read_request(folder: LedgerFolder) -> dict[str, Any] | None:
    """Return the request of this folder's answers; None if missing or torn. Raises LedgerError."""
    try:
        noted = json.loads(folder.read_bytes(NOTE))
    except (FileNotFoundError, ValueError):
        return None
    return noted if isinstance(noted, dict) else None


def versions(folder: LedgerFolder) -> list[LedgerFolder]:
    """Return the folders of the lookup for all its requests so far. Raises LedgerError."""
    found = folder.folders(folder.path.rpartition("/")[0])
    return [replace(folder, fingerprint=name) for name in sorted(found)]


def other_versions(folder: LedgerFolder) -> list[LedgerFolder]:
    """Return what `versions` does, without this folder. Raises LedgerError."""
    return [version for version in versions(folder) if version.fingerprint != folder.fingerprint]


def what_changed(before: dict[str, Any] | None, now: dict[str, Any]) -> str:
    """Return the changed parts of the request, such as `version 1 -> 2`."""
    if before is None:
        return "the request changed"
    flat, new = _flat(before), _flat(now)
    changed = [
        f"{name} {_shown(flat.get(name))} -> {_shown(new.get(name))}"
        for name in sorted(flat.keys() | new.keys())
        if flat.get(name) != new.get(name)
    ]
    return ", ".join(changed) or "the request changed"


def _flat(facts: dict[str, Any], where: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{where}{name}.")
        elif name:  # the class of a declared value is not part of the request
            found[f"{where}{name}"] = value
    return found


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
