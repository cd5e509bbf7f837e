"""The checks that judge a day: a hook that is named `module:function`."""

from __future__ import annotations

import contextlib
import importlib
import threading
from typing import TYPE_CHECKING, Any

from jobs.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.declare.enrichment import Enrichment
    from jobs.input.day import InputDay

# in the package of the checks
WRONG_EXPECTATIONS = "declared_checks:wrong_expectations"
VALIDATION = "validated_day"  # imports Great Expectations


def named(reference: str) -> Any:
    """Return the object `module:name`. Raises DeclarationError if it does not exist."""
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise DeclarationError(
            f"{reference!r} names nothing that can be loaded: {error}"
        ) from error


def require_expectations(
    enrichment: Enrichment,
    input_day: InputDay,
    checks: str | None,
    spark: SparkSession | None = None,
) -> None:
    """Refuse expectations that cannot be evaluated, before any call. It waits for the import of
    Great Expectations. With Spark, which evaluates them, it tries them.

    Raises:
        DeclarationError: One is unknown, its arguments are wrong, or it fails on made-up rows.
    """
    if checks and enrichment.expectations:
        find_wrong = named(f"{checks.rpartition('.')[0]}.{WRONG_EXPECTATIONS}")
        types, rows = input_day.spark_types(), None
        if spark is not None:
            rows = spark.createDataFrame([], types) if types else input_day.read(spark)
        if wrong := find_wrong(enrichment.facts(), input_day.names, rows):
            raise DeclarationError(f"{enrichment.name}: {wrong[0]}")


def import_meanwhile(checks: str | None, *, validate: bool) -> threading.Thread:
    """Import the slow checks while Spark works; an error is raised where they are used."""
    module = (checks or "").partition(":")[0]
    modules = [module, f"{module.rpartition('.')[0]}.{VALIDATION}"] if validate else [module]
    importing = threading.Thread(
        target=_import, args=(modules if checks else [],), name="tidegate-checks", daemon=True
    )
    importing.start()
    return importing


def _import(modules: list[str]) -> None:
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
