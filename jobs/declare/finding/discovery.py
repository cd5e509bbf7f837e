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


def list_modules(package: str) -> list[str]:
    """Return the full names of the package's modules, sorted. Raises DeclarationError."""
    try:
        path = getattr(imported(package), "__path__", [])
    except ImportError as error:
        raise DeclarationError(
            f"there is no package {package!r} here: {error}. Start the command in the folder that "
            "has it, or name another package."
        ) from error
    return sorted(f"{package}.{info.name}" for info in pkgutil.iter_modules(path))


def declared_in(module: str) -> list[Discovered]:
    """Return a module's top-level enrichments. Raises DeclarationError if it cannot be loaded."""
    return [Discovered(f"{module}:{key}", value) for key, value in enrichments_of(module).items()]


def discover(package: str) -> list[Discovered]:
    """Return every enrichment of a package in its modules' order. Raises DeclarationError."""
    return drop_repeats(
        discovered for module in list_modules(package) for discovered in declared_in(module)
    )


def discover_named(package: str, name: str) -> Discovered:
    """Return the enrichment of a package that has a name.

    Args:
        package: The package.
        name: Name of an enrichment, its file or its variable; or `module:name`, of any package.

    Raises:
        DeclarationError: No enrichment, or several, have the name.
    """
    if ":" in name:
        return Discovered(name, load(name))
    every, faults = _load_all(package)
    found = drop_repeats(discovered for discovered in every if name in discovered.names)
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
        raise faults[0]
    known = ", ".join(sorted({discovered.enrichment.name for discovered in every}))
    choice = f"There are: {known}." if known else f"{package} has none."
    close = did_you_mean(name, (known for discovered in every for known in discovered.names))
    raise DeclarationError(f"no enrichment is named {name!r}.{close} {choice}")


def beside(discovered: Discovered) -> list[Discovered]:
    """Return the other enrichments of its package, without modules that cannot be loaded."""
    package = discovered.reference.partition(":")[0].rpartition(".")[0]
    loaded = discover_loadable(package) if package else ()
    return [other for other in loaded if other.enrichment is not discovered.enrichment]


def discover_loadable(package: str) -> list[Discovered]:
    """Return every enrichment of a package, without modules that cannot be loaded.

    Raises DeclarationError if there is no such package.
    """
    return drop_repeats(_load_all(package)[0])


def _load_all(package: str) -> tuple[list[Discovered], list[DeclarationError]]:
    """Return what a package's modules declare, and the faults of those that cannot be loaded."""
    found: list[Discovered] = []
    faults: list[DeclarationError] = []
    for module in list_modules(package):
        try:
            found += declared_in(module)
        except DeclarationError as error:
            faults.append(error)
    return found, faults


def drop_repeats(discovered: Iterable[Discovered]) -> list[Discovered]:
    found: dict[int, Discovered] = {}
    for declaration in discovered:
        found.setdefault(id(declaration.enrichment), declaration)
    return list(found.values())
