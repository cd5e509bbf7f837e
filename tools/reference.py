"""docs/reference.md: every field of every declaration, made from the declarations themselves.

python -m tools.reference writes it (`make reference`).
"""

import collections.abc
import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tidegate

PAGE = Path("docs/reference.md")
SECTIONS = (
    ("The enrichment", "Enrichment Input Output EventTime Tolerance Summary"),
    ("Windows", "Window Tumbling Sliding Session"),
    (
        "Lookups",
        (
            "Lookup HttpLookup Batch Pages SqlLookup CoroutineLookup JobLookup AsyncFunctionLookup "
            "Waterfall"
        ),
    ),
    (
        "Services",
        (
            "Service ApiKey Bearer Basic OAuth2ClientCredentials Price Rate Adaptive Budget "
            "Outage Retry Env"
        ),
    ),
    ("Jobs of a vendor", "Item Running Over Refused Failed"),
    ("What is kept", "Ledger Ttl Cache"),
)
HEAD = """# Reference: every field of a declaration

Made from the declarations, in the repository by `make reference`; a test holds this page to them. A
field without a default is required. Times in s are numbers, others a `timedelta`. A wrong value is
refused where it is declared, in a sentence with the rule, the value and the cure.

How they are used together: [your first enrichment](your-first-enrichment.md),
[lookups](lookups.md), [the ledger](ledger.md). `Expectation("expect_...", severity="error", ...)`
takes a Great Expectations rule by its name and arguments;
`@lookup(service=..., keys=..., returns=..., timeout=...)` above a coroutine makes a
`CoroutineLookup`, and `@jobs(...)` above a class a `JobLookup`; a decorator takes the other fields
of its class too.
"""
REQUIRED = "required"


def page() -> str:
    """Return the whole page, as Markdown."""
    lines = [HEAD]
    for title, names in SECTIONS:
        lines.append(f"## {title}\n")
        for name in names.split():
            lines += _section(getattr(tidegate, name))
    return "\n".join(lines)


def declared_classes() -> list[type]:
    """Return every class that a declaration is made of, in the order of the page."""
    return [getattr(tidegate, name) for _, names in SECTIONS for name in names.split()]


def described(declared: type) -> dict[str, str]:
    """Return what each field of a declaration is, by its name: from the Attributes of the class's
    docstring.
    """
    named = dict.fromkeys((field.name for field in _own_fields(declared)), "")
    for name, text in re.findall(
        (
            r"^    (\w+): (.+(?:\n     "
            r".+)*)"
        ),
        _docstring(declared)[1],
        re.MULTILINE,
    ):
        named[name] = _plain(text)
    return named


def _section(declared: type) -> Iterator[str]:
    about = _plain(_docstring(declared)[0])
    base = declared.__mro__[1]
    more = (
        f" It has the fields of [{base.__name__}](#{base.__name__.lower()}) too."
        if base is not object
        else ""
    )
    yield f"### {declared.__name__}\n\n{about}{more}\n"
    yield "| field | type | default | |\n|---|---|---|---|"
    message = described(declared)
    for field in _own_fields(declared):
        cells = (
            f"`{field.name}`",
            f"`{_type(_kinds(declared)[field.name])}`",
            _default(field),
            message[field.name],
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _own_fields(declared: type) -> list[dataclasses.Field[Any]]:
    own = inspect.get_annotations(declared)
    return [field for field in dataclasses.fields(declared) if field.name in own]


def _kinds(declared: type) -> dict[str, Any]:
    return inspect.get_annotations(declared, eval_str=True)


def _docstring(declared: type) -> tuple[str, str]:
    """Return what a docstring says about the class, and its Attributes."""
    about, _, attributes = inspect.cleandoc(declared.__doc__ or "").partition("\n\nAttributes:\n")
    return about, attributes


def _plain(text: str) -> str:
    return " ".join(text.split())


def _type(kind: Any) -> str:  # noqa: PLR0911  # one for each kind of type
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_type(argument) for argument in arguments)
    if origin is typing.Literal:
        return " | ".join(repr(argument).replace("'", '"') for argument in arguments)
    if origin is collections.abc.Callable:
        return "function"
    if origin is tuple and Ellipsis not in arguments:
        return f"({', '.join(map(_type, arguments))})"
    if origin in (tuple, collections.abc.Sequence):
        return f"list[{_type(arguments[0])}]"
    if origin is collections.abc.Mapping:
        return f"dict[{', '.join(map(_type, arguments))}]"
    return "None" if kind is types.NoneType else getattr(kind, "__name__", str(kind))


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
        return f"`{type(value).__name__}()`" if dataclasses.is_dataclass(value) else f"`{value!r}`"
    if field.default is dataclasses.MISSING:
        return REQUIRED
    shown = repr(list(field.default)) if isinstance(field.default, tuple) else repr(field.default)
    return "`" + shown.replace("'", '"').replace("datetime.", "") + "`"


def main() -> None:
    PAGE.write_text(page())
    print(f"{PAGE}: {len(declared_classes())} of {len(tidegate.__all__)} names of tidegate")


if __name__ == "__main__":
    main()
