"""Reads types of the schemas of an OpenAPI document, as Spark has them, and paths to fields."""

import re
from collections.abc import Mapping
from typing import Any

from jobs.commands.describing.openapi_texts import quoted

TYPES = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "STRING"}
# of another type, as date-time of an integer in seconds, a format changes nothing
FORMATS = {
    ("integer", "int32"): "INT",
    ("string", "date"): "DATE",
    ("string", "date-time"): "TIMESTAMP",
}


def child(path: str, name: str) -> str:
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
    return f"{path}.{name}" if plain else f"{path}[{quoted(name)}]"


def schema_type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "")
    return next((name for name in kind if name != "null"), "") if isinstance(kind, list) else kind


def may_be_null(schema: Mapping[str, Any]) -> bool:
    choices = [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
    nulls = [choice for choice in choices if choice.get("type") == "null"]
    return bool(schema.get("nullable") or "null" in schema.get("type", "") or nulls)


def key_type(schema: Mapping[str, Any]) -> str:
    kind = schema_type(schema)
    return FORMATS.get((kind, schema.get("format", "")), TYPES.get(kind, "STRING"))


def column_type(schema: Mapping[str, Any]) -> str:
    """Return the type of a plain value; empty for a list, an object, or a value of any type."""
    return key_type(schema) if schema_type(schema) in TYPES else ""
