"""Finds the enrichments in a package's modules; lists each once, whatever its names."""

import pkgutil
from collections.abc import Iterable
from typing import NamedTuple

from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.loading import enrichments_of, imported, load
from jobs.errors import DeclarationError
from jobs.wording import did_you_mean


class Discovered(NamedTuple):
    """An enrichment and its place.

    Attributes:
        reference: module:name, for the Spark program.
        enrichment: The enrichment.
    """

    reference: str
    enrichment: Enrichment

    @property
    def names(self) -> tuple[str, str, str]:
        """The names that select it: the enrichment's, its file's and its variable's."""
        module, _, variable = self.reference.partition(":")
        return self.enrichment.name, module.rpartition(".")[2], variable


def discover(package: str) -> list[Discovered]:
    """Return every enrichment of a package in its modules' order. Raises DeclarationError."""
    found, faults = discover_all(package)
    if faults:
        raise next(iter(faults.values()))
    return found


def discover_all(package: str) -> tuple[list[Discovered], dict[str, DeclarationError]]:
    """Return every enrichment of a package, and why modules cannot be loaded, by module.

    Raises DeclarationError if there is no such package.
    """
    found, faults = _load_modules(package)
    return _once(found), faults


def discover_named(package: str, name: str) -> Discovered:
    """Return the enrichment of a package with the name of the enrichment, its file or its variable,
    or of any package with `module:name`.

    Raises:
        DeclarationError: No enrichment, or several, have the name.
    """
    if ":" in name:
        return Discovered(name, load(name))
    every, faults = _load_modules(package)
    found = _once(discovered for discovered in every if name in discovered.names)
    # the enrichment's name takes precedence over the name of a file or a variable
    found = [discovered for discovered in found if discovered.enrichment.name == name] or found
    if faults:  # a module that cannot be loaded may name its enrichment as this variable
        found = [discovered for discovered in found if name in discovered.names[:2]]
    if len(found) == 1:
        return found[0]
    if found:
        references = ", ".join(sorted(discovered.reference for discovered in found))
        if all(discovered.enrichment.name == name for discovered in found):
            raise DeclarationError(
                f"several enrichments are named {name!r}: {references}; rename one."
            )
        raise DeclarationError(f"{name!r} names several enrichments; write one of: {references}.")
    if faults:
        raise next(iter(faults.values()))
    known = ", ".join(sorted({discovered.enrichment.name for discovered in every}))
    choice = f"There are: {known}." if known else f"{package} has none."
    close = did_you_mean(name, (known_as for discovered in every for known_as in discovered.names))
    raise DeclarationError(f"no enrichment is named {name!r}.{close} {choice}")


def beside(discovered: Discovered) -> list[Discovered]:
    """Return the other enrichments of its package, without modules that cannot be loaded."""
    package = discovered.reference.partition(":")[0].rpartition(".")[0]
    loaded = discover_all(package)[0] if package else ()
    return [other for other in loaded if other.enrichment is not discovered.enrichment]


def _load_modules(package: str) -> tuple[list[Discovered], dict[str, DeclarationError]]:
    """Return what `discover_all` does, but an enrichment once for each name that it has."""
    try:
        path = getattr(imported(package), "__path__", [])
    except ImportError as error:
        raise DeclarationError(
            f"there is no package {package!r} here: {error}. Start the command in the folder that "
            "has it, or name another package."
        ) from error
    found: list[Discovered] = []
    faults: dict[str, DeclarationError] = {}
    for module in sorted(f"{package}.{info.name}" for info in pkgutil.iter_modules(path)):
        try:
            declared = enrichments_of(module)
        except DeclarationError as error:
            faults[module] = error
            continue
        found += [Discovered(f"{module}:{key}", value) for key, value in declared.items()]
    return found, faults


def _once(discovered: Iterable[Discovered]) -> list[Discovered]:
    found: dict[int, Discovered] = {}
    for declaration in discovered:
        found.setdefault(id(declaration.enrichment), declaration)
    return list(found.values())
