"""Writes the request of a key as its lookup is declared now, without secrets."""

import json
from collections.abc import Mapping
from typing import Any

from jobs.declare.batch import ID
from jobs.declare.http_lookup import SCHEMA, HttpLookup
from jobs.declare.lookup import Lookup
from jobs.declare.sql_lookup import SqlLookup
from jobs.declare.values.env import Env
from jobs.declare.values.fingerprint import plain
from jobs.declare.values.templates import JsonTemplate, as_text, filled_path, placeholders

SECRET = "***"  # noqa: S105  # shown in place of a secret


def request_text(lookup: Lookup, key: Mapping[str, Any]) -> str:
    """Return method, path and body; the statement and its parameters; or the function and its key.

    Of a batch, the body is the item of this key. Raises ValueError for a key without a request.
    """
    match lookup:
        case HttpLookup():
            path = filled_path(placeholders("request", lookup.path), key)
            return " ".join([lookup.method, path, *_bodies(lookup, key)])
        case SqlLookup():
            asked = lookup.select or f"table {lookup.table}"
        case _:
            asked = str(plain(lookup.request_facts().get("function", lookup.kind)))
    return f"{asked} with {', '.join(f'{name}={as_text(part)}' for name, part in key.items())}"


def _bodies(lookup: HttpLookup, key: Mapping[str, Any]) -> list[str]:
    template = lookup.first_body if lookup.batch is None else lookup.batch.item
    if template is None:
        return []
    values = {ID: "...", SCHEMA: lookup.schema, **key}
    filled = JsonTemplate("body", _without_secrets(template)).filled(values)
    batch = "" if lookup.batch is None else f" in a request of up to {lookup.batch_size} keys"
    return [json.dumps(filled, ensure_ascii=False, default=as_text) + batch]


def _without_secrets(template: Any) -> Any:
    match template:
        case Env():
            return SECRET
        case dict():
            return {name: _without_secrets(item) for name, item in template.items()}
        case list() | tuple():
            return [_without_secrets(item) for item in template]
    return template
