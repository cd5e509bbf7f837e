"""Every declaration of a package against its input, table, secrets and services; nothing is asked of a service."""

from __future__ import annotations

import datetime as dt
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

from jobs import records
from jobs.counted import counted
from jobs.declarations import Enrichment
from jobs.errors import DeclarationError, TidegateError
from jobs.preflight import preflight
from jobs.written_tables import clash


def check_package(name: str, day: str | None = None) -> Iterator[tuple[str, str, bool]]:
    """What was checked, what is to be said of it, and whether it is right; one after another, whatever is wrong.

    day: of the input; by default the last one that each enrichment has. Raises DeclarationError without such a package.
    """
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        raise DeclarationError(f"there is no package {name!r} here: {error}.") from error
    checked: list[tuple[str, Enrichment]] = []
    for info in sorted(pkgutil.iter_modules(getattr(package, "__path__", [])), key=lambda info: info.name):
        module = f"{name}.{info.name}"
        try:
            named = vars(importlib.import_module(module)).items()
            found = [(f"{module}:{key}", value) for key, value in named if isinstance(value, Enrichment)]
        except Exception as error:  # noqa: BLE001  # a declaration is code: whatever it raises is what is wrong with it
            said = str(error) if isinstance(error, TidegateError) else f"{type(error).__name__}: {error}"
            yield module, f"cannot be loaded: {said}", False
            continue
        for reference, enrichment in found:
            if not any(enrichment is other for _, other in checked):
                said = clash((reference, enrichment), checked)
                checked.append((reference, enrichment))
                yield enrichment.name, *((said, False) if said else _checked(enrichment, day))
                for wrong in _lost(enrichment):
                    yield enrichment.name, wrong, False


def _checked(enrichment: Enrichment, day: str | None) -> tuple[str, bool]:
    try:
        day = day or last_day(enrichment)
        input_day = preflight(enrichment, day)
    except TidegateError as error:
        return str(error).removeprefix(f"{enrichment.name}: "), False
    except Exception as error:  # noqa: BLE001  # a declaration is code, and others are still to be checked
        return f"{type(error).__name__}: {' '.join(str(error).split())}", False
    lookups = ", ".join(lookup.name for lookup in enrichment.lookups)
    there = f"{counted(input_day.rows, 'row')} in {counted(len(input_day.files), 'file')}"
    return f"{day}: {there}; lookups {lookups}", True


def _lost(enrichment: Enrichment) -> Iterator[str]:
    """What its records and its table say of each other that cannot both be true, and records that say nothing."""
    from jobs.tables.shown_days import lost_days  # deltalake, which no declaration needs

    for path in records.torn(enrichment.name):
        yield f"record {path} is torn and says nothing of its run. Delete it; a published day stays published."
    try:
        yield from lost_days(enrichment)
    except TidegateError:  # the log cannot be read, which has been said
        return


def last_day(enrichment: Enrichment) -> str:
    """The last day that the input has a folder for."""
    prefix = f"{enrichment.input.partition}="
    days = []
    for folder in Path(enrichment.input.path).glob(f"{prefix}*"):
        try:
            days.append(dt.date.fromisoformat(folder.name.removeprefix(prefix)))
        except ValueError:
            continue
    if not days:
        raise DeclarationError(f"input: {enrichment.input.path} has no folder of a day, as {prefix}2013-01-10.")
    return max(days).isoformat()
