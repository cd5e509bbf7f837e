"""Texts of an OpenAPI document as names, code, prose and parts of a query."""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote


def plain_name(text: str) -> str:
    """Return a name of small letters, digits and _."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")


def quoted(value: str) -> str:
    """Return the code of a text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    value.encode()  # half a character cannot be in a file
    return json.dumps(value, ensure_ascii=False)


def as_prose(text: Any) -> str:
    """Return a text of the document for a docstring, without what could end or escape it."""
    return " ".join(re.sub(r"[^\w.,;:(){}'/&+-]+", " ", str(text)).split()).rstrip(".")


def as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def in_query(value: Any) -> str:
    """Return a value of a query, escaped."""
    if not isinstance(value, str | int | float):
        raise TypeError(f"{value!r} is not a value of a query")
    return quote(as_text(value), safe="")


def name_in_query(parameter: Mapping[str, Any]) -> str:
    return quote(parameter["name"], safe="[]$:,")
