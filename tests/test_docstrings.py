"""What users call says its arguments, units, returns and errors in sections."""

import dataclasses
import enum
import inspect
from typing import Protocol

import pytest

import asyncio_core
import tidegate

LENT = (Exception, enum.Enum, Protocol)  # they are not made by their users


def documented():
    """Functions, classes, and the methods that a class of ours defines, of the public names."""
    for package in (asyncio_core, tidegate):
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isfunction(value):
                yield f"{package.__name__}.{name}", value
            elif inspect.isclass(value):
                if not issubclass(value, LENT):
                    yield f"{package.__name__}.{name}", value
                yield from (
                    (f"{package.__name__}.{name}.{method}", found)
                    for method, found in _methods(value)
                )


def _methods(cls):
    for name, value in vars(cls).items():
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(plain) and not name.startswith("_") and inspect.getdoc(plain):
            yield name, plain


def _parameters(value):
    if dataclasses.is_dataclass(value):
        return {}
    try:
        return {name for name in inspect.signature(value).parameters if name not in ("self", "cls")}
    except ValueError:
        return {}


@pytest.mark.parametrize(
    ("name", "value"), [pytest.param(*item, id=item[0]) for item in documented()]
)
def test_a_public_name_describes_each_of_its_arguments(name, value):
    described = inspect.getdoc(value).partition("\nArgs:\n")[2]
    assert [
        parameter for parameter in _parameters(value) if f"    {parameter}: " not in described
    ] == []
