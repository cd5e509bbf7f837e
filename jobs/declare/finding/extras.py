"""Optional dependencies: pip install "tidegate[spark]"."""

import importlib.util

from jobs.errors import DeclarationError

# extra -> its display name, and a module that only it installs
EXTRAS = {
    "spark": ("PySpark", "pyspark"),
    "dagster": ("Dagster", "dagster"),
    "postgres": ("asyncpg", "asyncpg"),
    "iceberg": ("pyiceberg", "pyiceberg"),
    "s3": ("obstore", "obstore"),
    "mcp": ("the SDK of the Model Context Protocol", "mcp"),
}


def require_extra(extra: str, asking: str, purpose: str = "") -> None:
    """Raise DeclarationError, with the command that installs it, if an extra is not installed.

    Args:
        extra: A key of EXTRAS.
        asking: The feature that needs it, as the start of the sentence.
        purpose: What the feature needs it for, such as "count the keys".
    """
    name, module = EXTRAS[extra]
    if importlib.util.find_spec(module) is None:
        needed = f"{name} to {purpose}" if purpose else name
        raise DeclarationError(
            f'{asking} needs {needed}; it is not installed here: pip install "tidegate[{extra}]".'
        )
