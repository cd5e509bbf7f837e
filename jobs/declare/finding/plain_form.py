"""Reads declarations from plain data, as from YAML. The declared classes are the only schema.

Durations may be written `200ms`, `30s`, `2h`, `180d`, shares `0.5%`; a variable is `{env: NAME}`.
Where several classes are possible, as for `auth`, the class is the key:
`{oauth2_client_credentials: {...}}`.
"""

import dataclasses
import datetime as dt
import difflib
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.declare.enrichment import Enrichment
from jobs.declare.http_lookup import HttpLookup
from jobs.declare.lookup import Lookup
from jobs.declare.sql_lookup import SqlLookup
from jobs.declare.values.env import Env
from jobs.declare.values.type_checks import (
    fields_fault,
    is_literal,
    read_annotations,
    union_members,
)
from jobs.errors import DeclarationError

LOOKUPS: dict[str, type[Lookup]] = {"http": HttpLookup, "sql": SqlLookup}
UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
DURATIONS = "write a duration, such as 200ms, 30s, 5m, 2h or 180d."
SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
# the fields that are seconds; other numbers may be shares, as may columns of these names
OF_SECONDS = re.compile(
    r"(?<!^tolerance)(?<!null_share)\.(timeout|attempt_timeout|hedge_after|max_wait|initial_delay|max_delay"
    r"|flush_seconds)$"
)


def read_enrichment(plain: Mapping[str, Any]) -> Enrichment:
    """Return the declared enrichment. The DeclarationError begins with the path of the fault."""
    found = _read(plain, Enrichment, "")
    assert isinstance(found, Enrichment)
    return found


def _read(value: Any, kind: Any, where: str) -> Any:  # noqa: C901, PLR0911  # a branch per kind of value
    members = union_members(kind)
    if value is None or any(
        value in typing.get_args(member) for member in members if is_literal(member)
    ):
        return value
    if Env in members and isinstance(value, Mapping) and set(value) == {"env"}:
        return Env(value["env"])
    if kind is Lookup:
        return _read_lookup(value, where)
    classes = [member for member in members if _is_declared_class(member)]
    if classes and isinstance(value, Mapping):
        if len(classes) == 1:
            return _made(value, classes[0], where)
        named = {_key(member): member for member in classes}
        name, inner = _only(value, named, where)
        return _made(inner, named[name], f"{where}.{name}")
    if dt.timedelta in members:
        try:
            return dt.timedelta(seconds=_seconds(value, where))
        except (OverflowError, ValueError) as error:  # infinite, too long, or NaN
            raise DeclarationError(f"{where} is {value!r}; {DURATIONS}") from error
    if float in members and isinstance(value, str):
        return _seconds(value, where) if OF_SECONDS.search(where) else _share(value, where)
    if str in members and isinstance(value, dt.date):
        return value.isoformat()  # YAML reads 2026-12-01 as a date
    for member in members:
        origin, arguments = typing.get_origin(member), typing.get_args(member)
        if origin is Mapping and isinstance(value, Mapping):
            return {
                name: _read(inner, arguments[1], f"{where}.{name}") for name, inner in value.items()
            }
        if origin in (Sequence, tuple) and isinstance(value, list):
            kinds = (
                arguments if len(arguments) == len(value) and Ellipsis not in arguments else None
            )
            parts = [
                _read(inner, kinds[place] if kinds else arguments[0], f"{where}[{place}]")
                for place, inner in enumerate(value)
            ]
            return tuple(parts) if origin is tuple else parts
    return value  # the class itself checks its type


def _read_lookup(value: Any, where: str) -> Lookup:
    if not isinstance(value, Mapping):
        raise DeclarationError(f"{where} is {value!r}; it must be {{name: ..., http: {{...}}}}.")
    name, inner = _only(
        {key: member for key, member in value.items() if key != "name"}, LOOKUPS, where
    )
    if "name" in value and "name" in inner:
        raise DeclarationError(
            f"{where}: name is {value['name']!r}, and {name}.name {inner['name']!r}; leave one out."
        )
    made = _made({"name": value.get("name"), **inner}, LOOKUPS[name], where)
    assert isinstance(made, Lookup)
    return made


def _made(plain: Mapping[str, Any], declared: type, where: str) -> Any:
    annotations = read_annotations(declared)
    kinds = {field.name: annotations[field.name] for field in dataclasses.fields(declared)}
    for name in plain:
        if name not in kinds:
            close = difflib.get_close_matches(str(name), kinds, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"It has: {', '.join(kinds)}."
            raise DeclarationError(
                f"{_below(where, name)}: {declared.__name__} has no such field. {hint}"
            )
    values = {name: _read(value, kinds[name], _below(where, name)) for name, value in plain.items()}
    try:
        return declared(**values)
    except TypeError as error:  # a field without a default is missing
        fault = fields_fault(error) or error
        raise DeclarationError(f"{where or declared.__name__}: {fault}.") from error


def _only(
    value: Mapping[str, Any], named: Mapping[str, Any], where: str
) -> tuple[str, Mapping[str, Any]]:
    if (
        len(value) != 1
        or next(iter(value)) not in named
        or not isinstance(next(iter(value.values())), Mapping)
    ):
        raise DeclarationError(
            f"{where}: one of {', '.join(named)} must stand there, with its fields below it."
        )
    return next(iter(value.items()))


def _seconds(value: Any, where: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    duration = DURATION.fullmatch(value) if isinstance(value, str) else None
    if duration is None:
        raise DeclarationError(f"{where} is {value!r}; {DURATIONS}")
    return float(duration[1]) * UNITS[duration[2]]


def _share(value: str, where: str) -> float:
    if (share := SHARE.fullmatch(value)) is None:
        raise DeclarationError(f"{where} is {value!r}; write a number, or a share as 0.5%.")
    return float(share[1]) / 100


def _is_declared_class(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) and kind is not Env


def _key(declared: type) -> str:
    """Return a class's key: `api_key` of ApiKey."""
    return re.sub(
        r"(?<=[a-z0-9])(?=[A-Z])", "_", declared.__name__.replace("OAuth", "Oauth")
    ).lower()


def _below(where: str, name: Any) -> str:
    return f"{where}.{name}" if where else str(name)
