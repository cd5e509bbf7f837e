"""Checks the fields of a declaration against their annotations, to report a wrong type at once."""

import dataclasses
import datetime as dt
import functools
import inspect
import os
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from jobs.errors import DeclarationError

# the value in its place may be a secret
SECRET_FIELDS = frozenset({"auth", "headers", "proxy", "token_url", "url"})
NAMES: dict[Any, str] = {
    bool: "True or False",
    float: "a number",
    int: "a whole number",
    str: "a string",
    types.NoneType: "None",
    Callable: "a function",
    Mapping: "a dict",
    Sequence: "a list",
    tuple: "a list",
}
EXAMPLES = {
    "Adaptive": "Adaptive(at_least=4)",
    "ApiKey": 'ApiKey(Env("NAME"))',
    "Budget": 'Budget("100.00 USD", per="day")',
    "Cache": "Cache(max_entries=10_000)",
    "Env": 'Env("NAME")',
    "EventTime": 'EventTime("at", max_out_of_orderness=timedelta(minutes=5))',
    "Input": 'Input(path="data/raw")',
    "Ledger": 'Ledger("data/ledger")',
    "Outage": "Outage(after=20)",
    "Output": 'Output(path="data/published")',
    "Pages": 'Pages(next="$.next", max_pages=10)',
    "Price": 'Price("0.0040 USD")',
    "Rate": 'Rate(600, per="minute")',
    "Retry": "Retry(retries=3)",
    "Tolerance": "Tolerance(error=0.1)",
    "Ttl": "Ttl(ok=timedelta(days=1))",
    "Tumbling": "Tumbling(timedelta(minutes=5))",
    "Window": 'Window("by_hour", of=Tumbling(timedelta(hours=1)), sql="count(*) AS n")',
    "keys": '{"id": "customer_id"}',
    "pair": "(0, 10)",
    "ranges": '{"score": (0, 10)}',
}
Misfit = tuple[str, Any, Any]  # its place, its value, its required type


def require_types(declared: Any, where: str = "", leave: Sequence[str] = ()) -> None:
    """Raise DeclarationError for the first field whose value does not fit its annotation.

    An int counts as a float, a bool as no number, a list or a set as a tuple of any length.
    A text beside other types, as in `Literal["p95"] | float`, is checked elsewhere. An annotation
    that cannot be evaluated, such as a name for type checkers only, accepts every value.

    Args:
        declared: The declaration.
        where: Start of the error message.
        leave: Fields that are checked elsewhere.
    """
    kinds = read_annotations(declared.__class__)
    for field in dataclasses.fields(declared):
        if field.name not in leave:
            path = f"{where}: {field.name}" if where else field.name
            require_type(path, getattr(declared, field.name), kinds[field.name])


def require_type(where: str, value: Any, kind: Any) -> None:
    """Raise DeclarationError, starting with `where`, for a value of another type."""
    misfit = _misfit(where, value, kind)
    if misfit is not None:
        place, found, wanted = misfit
        name = where.rpartition(": ")[2]
        is_secret = name in SECRET_FIELDS and found is not None
        shown = _with_article(type(found).__name__) if is_secret else _shown(found)
        cure = _example(name if place == where else "", None if is_secret else found, wanted)
        message = " or ".join(_names(wanted)) + (cure and f", such as {cure}")
        raise DeclarationError(f"{place} is {shown}; it must be {message}.")


def require_name(what: str, name: object) -> None:
    """Raise DeclarationError unless columns, tables and folders can have the name."""
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise DeclarationError(
            f"{what} {name!r}: the name must be lower-case letters, digits and _, starting with a "
            "letter; columns and folders are named after it."
        )


def require_folder_name(what: str, name: str) -> None:
    """Raise DeclarationError unless a folder beside a table can have the name."""
    if not re.fullmatch(r"[A-Za-z0-9_]+", name):
        raise DeclarationError(
            f"{what} {name!r}: the name must be letters, digits and _: a folder has it."
        )


def require_count(where: str, value: object) -> None:
    """Raise DeclarationError, starting with `where`, unless the value is a count of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DeclarationError(f"{where} is {value!r}; it must be a whole number, at least 1.")


@functools.cache
def read_annotations(declared: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(declared.__mro__):
        try:
            found |= inspect.get_annotations(base, eval_str=True)
        # of a user's class, for a type checker only
        except (AttributeError, NameError, SyntaxError, TypeError):
            found |= dict.fromkeys(inspect.get_annotations(base), Any)
    return found


def fields_fault(error: BaseException) -> str:
    """Return what a constructor lacks, as in `name must be given`; empty if that is unknown."""
    text = str(error)
    if "positional argument" in text and text.endswith(" given"):
        return "its fields are given by their names, as in name=..."
    missing = re.findall(r"'(\w+)'", text.partition(" missing ")[2])
    return f"{', '.join(missing)} must be given" if missing else ""


def union_members(kind: Any) -> tuple[Any, ...]:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return (kind,)


def is_literal(kind: Any) -> bool:
    return typing.get_origin(kind) is typing.Literal


def _misfit(where: str, value: Any, kind: Any) -> Misfit | None:
    """Return the innermost part that does not fit, or None."""
    if len(members := union_members(kind)) > 1:
        found = [_misfit(where, value, str if is_literal(member) else member) for member in members]
        inner = [misfit for misfit in found if misfit is not None and misfit[0] != where]
        return None if None in found else (*inner, (where, value, kind))[0]
    if not _has_type(value, kind):
        return where, value, kind
    parts = (_misfit(*part) for part in _parts(where, value, kind))
    return next((part for part in parts if part is not None), None)


def _has_type(value: Any, kind: Any) -> bool:
    """Return whether a value is of a type, regardless of its items."""
    if is_literal(kind):
        return value in typing.get_args(kind)
    wanted = typing.get_origin(kind) or kind
    if wanted in (Sequence, tuple):  # a list fits both: the declaration converts or unpacks it
        if isinstance(value, AbstractSet):
            return wanted is tuple and _is_long(kind)
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_list and (_is_long(kind) or len(value) == len(typing.get_args(kind)))
    if wanted in (int, float):
        return isinstance(value, (int, wanted)) and not isinstance(value, bool)
    try:
        return isinstance(value, wanted)
    except TypeError:  # Any, or a user's protocol, which cannot be checked at run time
        return True


def _is_long(kind: Any) -> bool:
    """Return whether the annotation is a tuple of any length."""
    return typing.get_origin(kind) is not tuple or Ellipsis in typing.get_args(kind)


def _parts(where: str, value: Any, kind: Any) -> Iterator[tuple[str, Any, Any]]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Mapping:
        for name, element in value.items():
            yield f"{where}: a name", name, arguments[0]
            yield f"{where}[{name!r}]", element, arguments[1]
    elif origin in (Sequence, tuple):
        for number, element in enumerate(value):
            yield f"{where}[{number}]", element, arguments[0 if _is_long(kind) else number]


def _names(kind: Any) -> list[str]:
    names = []
    for member in union_members(kind):
        if is_literal(member):
            names.append(f"one of: {', '.join(map(str, typing.get_args(member)))}")
            continue
        wanted = typing.get_origin(member) or member
        name = NAMES.get(wanted) or _with_article(getattr(wanted, "__name__", str(wanted)))
        names.append(
            "a pair" if not _is_long(member) and len(typing.get_args(member)) == 2 else name
        )
    return names


def _example(name: str, value: Any, kind: Any) -> str:
    """Return an example: the value itself in the right form, if possible."""
    for form in _forms(value):
        if _misfit("", form, kind) is None:
            if not isinstance(form, list):
                return repr(form).removeprefix("datetime.")
            return "[...]" if _is_unshown(value) else f"[{value!r}]"
    words = (name, *(word.rpartition(" ")[2] for word in _names(kind)))
    return next((EXAMPLES[word] for word in words if word in EXAMPLES), "")


def _forms(value: Any) -> Iterator[Any]:
    if not isinstance(value, tuple):
        yield [value]
    if isinstance(value, os.PathLike):
        yield os.fspath(value)
    elif isinstance(value, dt.date | dt.time):
        yield f"{value:%Y-%m-%d}" if isinstance(value, dt.date) else f"{value:%H:%M}"
    elif isinstance(value, dt.timedelta):
        yield value.total_seconds()
    elif isinstance(value, str) and value.isdecimal():
        yield int(value)
    elif _has_type(value, float) and 0 <= value < 1e9:
        yield dt.timedelta(seconds=value)


def _shown(value: Any) -> str:
    return f"one {type(value).__name__}" if _is_unshown(value) else repr(value)


def _is_unshown(value: Any) -> bool:
    text = repr(value)
    return not isinstance(value, str) and (len(text) > 80 or "\n" in text)


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
