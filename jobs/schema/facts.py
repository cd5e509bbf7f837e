"""Plain data that survives JSON unchanged. Loads the standard library only."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Self


class Facts:
    """Frozen plain data that survives JSON unchanged."""

    def to_json(self) -> str:
        # dataclasses.asdict copies all that is in it first
        return json.dumps(self, default=_fields)

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        hints = cls._hints()
        return cls(
            **{
                name: _restored(hints[name], value)
                for name, value in values.items()
                if name in hints
            }
        )

    @classmethod
    @functools.cache
    def _hints(cls) -> dict[str, Any]:
        return typing.get_type_hints(cls)


def _fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, by name. Raises TypeError for anything else."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _restored(hint: Any, value: Any) -> Any:
    """Restore a value of this type from JSON: lists become tuples, objects become Facts."""
    if isinstance(hint, types.UnionType):
        choices = [choice for choice in typing.get_args(hint) if choice is not type(None)]
        return None if value is None else _restored(choices[0], value)
    if isinstance(hint, type) and issubclass(hint, Facts):
        return hint.from_dict(value)
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)
        if inner[-1] is Ellipsis:
            return tuple(_restored(inner[0], item) for item in value)
        return tuple(_restored(kind, item) for kind, item in zip(inner, value, strict=True))
    return value
