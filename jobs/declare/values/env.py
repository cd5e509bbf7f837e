"""Names of environment variables, for values that are secret or differ between deployments."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from jobs.declare.values.type_checks import require_types
from jobs.errors import DeclarationError


@dataclass(frozen=True)
class Env:
    """The NAME of an environment variable, read where the call is made.

    No plan, log or file contains its value.

    Attributes:
        name: Name of the variable, set for the driver and the executors.
    """

    name: str

    def __post_init__(self) -> None:
        require_types(self, "env")

    def read(self) -> str:
        """Return the value. Raises DeclarationError if the variable is not set or empty."""
        value = os.environ.get(self.name, "")
        if not value:
            raise DeclarationError(
                f"{self.name} is not set. It is read from the environment of the driver and the "
                "executors: set it where Dagster, or this command, is started, or in the file .env "
                "there."
            )
        return value


def variables_in(declared: Any) -> Iterator[Env]:
    """Yield the variables in the fields of a declared value, in order."""
    values = (getattr(declared, field.name) for field in fields(declared))
    yield from (value for value in values if isinstance(value, Env))


def read_from(variables: Iterable[Env]) -> str:
    """Return a sentence, after a space, with the variables of a secret; empty without any."""
    names = ", ".join(dict.fromkeys(variable.name for variable in variables))
    return f" Its secrets are read from {names}, in the environment or .env." if names else ""


def resolve(value: str | Env) -> str:
    return value.read() if isinstance(value, Env) else value
