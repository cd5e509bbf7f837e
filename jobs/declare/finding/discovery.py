"""Finds the enrichments in the modules of a package. One with several names is found once."""

import contextlib
import importlib
import pkgutil
from collections.abc import Iterable
from typing import NamedTuple

from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.loading import load
from jobs.errors import DeclarationError, TidegateError


class Discovered(NamedTuple):
    """One enrichment and its place. reference: module:name, for the Spark program."""

    reference: str
    enrichment: Enrichment

    @property
    def names(self) -> tuple[str, str, str]:
        """The names that select it: its own, its file's, its variable's."""
        module, _, variable = self.reference.partition(":")
        return self.enrichment.name, module.rpartition(".")[2], variable


def list_modules(package: str) -> list[str]:
    """The full names of the package's modules, sorted. Raises DeclarationError if the package does not exist."""
    try:
        path = getattr(importlib.import_module(package), "__path__", [])
    except ImportError as error:
        raise DeclarationError(f"there is no package {package!r} here: {error}.") from error
    return sorted(f"{package}.{info.name}" for info in pkgutil.iter_modules(path))


def declared_in(module: str) -> list[Discovered]:
    """The enrichments at the top level of a module. Raises DeclarationError if the module cannot be loaded."""
    try:
        loaded = importlib.import_module(module)
    except Exception as error:
        reason = str(error) if isinstance(error, TidegateError) else f"{type(error).__name__}: {error}"
        raise DeclarationError(f"{module} cannot be loaded: {reason}") from error
    return [
        Discovered(f"{module}:{key}", value) for key, value in vars(loaded).items() if isinstance(value, Enrichment)
    ]


def discover(package: str) -> list[Discovered]:
    """Every enrichment of a package, in the order of its modules. Raises DeclarationError."""
    return _once(one for module in list_modules(package) for one in declared_in(module))


def discover_named(package: str, name: str) -> Discovered:
    """The enrichment of the package with this name; for `module:name`, of any package. Raises DeclarationError if none
    or several have the name.
    """
    if ":" in name:
        return Discovered(name, load(name))
    every = [one for module in list_modules(package) for one in declared_in(module)]
    found = _once(one for one in every if name in one.names)
    # its own name takes precedence over that of a file or a variable
    found = [one for one in found if one.enrichment.name == name] or found
    if len(found) == 1:
        return found[0]
    if found:
        references = ", ".join(sorted(one.reference for one in found))
        raise DeclarationError(f"{name!r} names several enrichments; write one of: {references}.")
    known = ", ".join(sorted({one.enrichment.name for one in every}))
    there = f"There are: {known}." if known else f"{package} has none."
    raise DeclarationError(f"no enrichment is named {name!r}. {there}")


def beside(one: Discovered) -> list[Discovered]:
    """The other enrichments of its package, without modules that cannot be loaded."""
    package = one.reference.partition(":")[0].rpartition(".")[0]
    found: list[Discovered] = []
    for module in list_modules(package) if package else ():
        with contextlib.suppress(DeclarationError):
            found += [other for other in declared_in(module) if other.enrichment is not one.enrichment]
    return found


def _once(discovered: Iterable[Discovered]) -> list[Discovered]:
    found: dict[int, Discovered] = {}
    for one in discovered:
        found.setdefault(id(one.enrichment), one)
    return list(found.values())
