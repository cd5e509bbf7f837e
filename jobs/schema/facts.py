"""Plain data that survives JSON unchanged. Loads the standard library only."""

import dataclasses
import datetime as dt
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Self

Restorer = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Facts:
    """Frozen plain data that survives JSON unchanged."""

    def to_json(self) -> str:
        # dataclasses.asdict copies all that is in it first
        return json.dumps(self, default=lambda value: value.as_dict())

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name: values of Facts, and of the types of JSON."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        restorers = cls._restorers()
        return cls(
            **{
                name: value if (restore := restorers[name]) is None else restore(value)
                for name, value in values.items()
                if name in restorers
            }
        )

    @classmethod
    @functools.cache
    def _restorers(cls) -> dict[str, Restorer | None]:
        return {name: _restorer(hint) for name, hint in typing.get_type_hints(cls).items()}


def plain(value: Any) -> Any:
    """Convert a value for JSON: times in ISO 8601, sets sorted, types that JSON lacks as text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if (
        value is None
        or isinstance(value, bool | int | str)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return value
    if isinstance(value, dt.date):
        return value.isoformat()
    # because a plan is approved in another process, where a set has another order
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else str(value)


@functools.cache
def _restorer(hint: Any) -> Restorer | None:
    """Return what makes values of this type of JSON: tuples of lists, and Facts of objects.

    None for a type that JSON has. Made once for each type, as it is called for each value.
    """
    if isinstance(hint, types.UnionType):
        inner = _restorer(next(arg for arg in typing.get_args(hint) if arg is not type(None)))
        return inner and (lambda value: None if value is None else inner(value))
    if isinstance(hint, type) and issubclass(hint, Facts):
        return hint.from_dict
    if typing.get_origin(hint) is not tuple:
        return None
    kinds = typing.get_args(hint)
    items = [_restorer(kind) or _unchanged for kind in kinds if kind is not Ellipsis]
    if kinds[-1] is Ellipsis:
        return tuple if items[0] is _unchanged else lambda value: tuple(map(items[0], value))
    return lambda value: tuple(restore(item) for restore, item in zip(items, value, strict=True))


def _unchanged(value: Any) -> Any:
    return value
