"""Computes 16 hex digits of a declaration: equal in every process, different after any change."""

import dataclasses
import datetime as dt
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jobs.schema.facts import Facts

# metadata of a field
NOT_IN_FINGERPRINT = {"fingerprint": False}  # it does not affect calls or output
# newer than stored fingerprints: its default is left out
WHERE_DECLARED = {"fingerprint": "where declared"}


def fingerprint(declared: Any) -> str:
    """Return the fingerprint of a declaration. Code counts by its name, its body by `version`."""
    return hashlib.sha256(json.dumps(plain(declared), sort_keys=True).encode()).hexdigest()[:16]


def fields(declared: Any) -> dict[str, str]:
    """Return 8 hex digits of each field's value, by field, as `lookups.weather.timeout`.

    It names changed fields without storing their values.
    """
    found = _flat(plain(declared), "")
    return {
        path: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]
        for path, value in found.items()
    }


def _flat(value: Any, path: str) -> dict[str, Any]:
    """Return the values by path; a list's item is in it by its name, or else its index."""
    if isinstance(value, dict) and value:
        parts = [(name, item) for name, item in value.items() if name]
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        named = [
            item.get("name", number) if isinstance(item, dict) else number
            for number, item in enumerate(value)
        ]
        parts = list(zip(named, value, strict=True))
    else:
        return {path: value}
    found: dict[str, Any] = {}
    for name, item in parts:
        found |= _flat(item, f"{path}.{name}" if path else str(name))
    return found


def _counts(field: dataclasses.Field[Any], value: Any) -> bool:
    rule = field.metadata.get("fingerprint", True)
    if rule != "where declared":
        return bool(rule)
    made = field.default_factory
    return bool(value != (field.default if made is dataclasses.MISSING else made()))


def plain(value: Any) -> Any:
    """Return `value` as JSON, without process-specific parts such as memory addresses."""
    facts = getattr(value, "facts", None)
    if value is None or isinstance(value, bool | int | float | str):
        found: Any = value
    elif isinstance(value, Mapping):
        found = {str(key): plain(item) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        found = [plain(item) for item in value]
    elif isinstance(value, set | frozenset):
        found = sorted(map(str, value))
    elif isinstance(value, dt.timedelta):
        found = value.total_seconds()
    elif isinstance(value, functools.partial):
        found = [plain(value.func), plain(value.args), plain(value.keywords)]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        counting = (
            field
            for field in dataclasses.fields(value)
            if _counts(field, getattr(value, field.name))
        )
        fields = {field.name: plain(getattr(value, field.name)) for field in counting}
        found = {"": type(value).__name__, **fields}
    elif isinstance(facts, Facts):
        found = plain(facts)
    else:
        named = value if hasattr(value, "__qualname__") else type(value)
        found = f"{named.__module__}.{named.__qualname__}"
    return found
