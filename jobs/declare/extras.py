"""What is installed only where it is asked for: pip install "tidegate[spark]"."""

from __future__ import annotations

import importlib.util

from jobs.errors import DeclarationError

# the extra of a package -> what it is called, and a module that only it brings
EXTRAS = {"spark": ("Spark", "pyspark"), "dagster": ("Dagster", "dagster"), "postgres": ("PostgreSQL", "asyncpg")}


def require_extra(extra: str, asking: str, purpose: str = "") -> None:
    """Raises DeclarationError, with the command that installs it, where an extra is not installed.

    Args:
        extra: One of EXTRAS.
        asking: What needs it, as the first words of the sentence.
        purpose: What for, as "count the keys".
    """
    name, module = EXTRAS[extra]
    if importlib.util.find_spec(module) is None:
        what = f"{name} to {purpose}" if purpose else name
        raise DeclarationError(f'{asking} needs {what}; it is not installed here: pip install "tidegate[{extra}]".')
