"""Texts of an OpenAPI document as names, code, prose and parts of a query."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from jobs.declare.values.key_expressions import columns_in
from jobs.errors import DeclarationError

NOT_IN_DDL = {"not", "select"}  # words that do not begin a column


def plain_name(text: str) -> str:
    """Return a name of small letters, digits and _."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")


def is_word_of_sql(name: str) -> bool:
    """Return whether a name alone, as `from`, is not read as a column of that name."""
    try:
        return columns_in("keys", name) != {name}
    except DeclarationError:
        return True


def in_ddl(name: str) -> str:
    is_plain = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) and name.lower() not in NOT_IN_DDL
    return name if is_plain else f"`{name}`"


def quoted(value: str) -> str:
    """Return the code of a text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    value.encode()  # half a character cannot be in a file
    return json.dumps(value, ensure_ascii=False)


def as_prose(text: Any) -> str:
    """Return a text of the document for a docstring, without what could end or escape it."""
    return " ".join(re.sub(r"[^\w.,;:(){}'/&+-]+", " ", str(text)).split()).rstrip(" .")


def as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def in_query(value: Any) -> str:
    """Return a value of a query, escaped."""
    if not isinstance(value, str | int | float):
        raise DeclarationError(
            f"a required parameter of a query has the default {value!r}, which is not a single "
            "value. Choose another operation with --operation."
        )
    return quote(as_text(value), safe="")


def in_template(value: Any) -> str:
    """Return the code of a JSON value that a body has as it stands."""
    if isinstance(value, dict):
        fields = (f"{in_template(name)}: {in_template(inner)}" for name, inner in value.items())
        return f"{{{', '.join(fields)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(in_template, value))}]"
    if value is None or isinstance(value, bool | int):
        return repr(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    return quoted(value.replace("{", "{{").replace("}", "}}"))


def name_in_query(parameter: Mapping[str, Any]) -> str:
    return quote(parameter["name"], safe="[]$:,")
