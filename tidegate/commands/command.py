"""What a command is, and the arguments that several commands take."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jobs.declare.enrichment import Enrichment, load, require_day
from jobs.errors import DeclarationError

RIGHT, FAILED, WRONG, STOPPED = 0, 1, 2, 3  # exit statuses, as those of jobs/run/enrich_day.py


@dataclass(frozen=True)
class Command:
    """One command. run: does the work and gives the exit status; it may raise TidegateError, which is shown.

    Modules of commands load fast: what needs Spark, Delta or a client is imported inside `run`.
    """

    name: str
    help: str  # one line, lower case, without a full stop
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_enrichment(parser: argparse.ArgumentParser) -> None:
    """The enrichment that a command is about; read it with `enrichment_of`."""
    parser.add_argument("enrichment", metavar="ENRICHMENT", help="its name, the name of its file, or module:name")
    add_package(parser)


def add_package(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--package", default="enrichments", help="holds the declarations (enrichments)")


def all_declared(package: str) -> list[tuple[str, Enrichment]]:
    """Every enrichment of a package, once, with its module:name."""
    found: list[tuple[str, Enrichment]] = []
    for _, reference, enrichment in declared(package):
        if not any(enrichment is other for _, other in found):
            found.append((reference, enrichment))
    return found


def enrichment_of(options: argparse.Namespace) -> Enrichment:
    """The one that was named. Raises DeclarationError when none or several are called so."""
    return named(options)[1]


def named(options: argparse.Namespace) -> tuple[str, Enrichment]:
    """The same, with its module:name before it."""
    if ":" in options.enrichment:
        return options.enrichment, load(options.enrichment)
    found: dict[str, Enrichment] = {}  # reference -> enrichment, each under one reference
    known = []
    for names, reference, enrichment in declared(options.package):
        known.append(enrichment.name)
        if options.enrichment in names and not any(enrichment is other for other in found.values()):
            found[reference] = enrichment
    called_so = {reference: one for reference, one in found.items() if one.name == options.enrichment}
    found = called_so or found  # its own name holds over that of a file or a variable
    if len(found) == 1:
        return next(iter(found.items()))
    if found:
        raise DeclarationError(f"{options.enrichment!r} names several; write one of: {', '.join(sorted(found))}.")
    there = f"There are: {', '.join(sorted(set(known)))}." if known else f"{options.package} holds none."
    raise DeclarationError(f"no enrichment is called {options.enrichment!r}. {there}")


def declared(package: str) -> Iterator[tuple[tuple[str, ...], str, Enrichment]]:
    """Every enrichment of a package: what it may be called, its module:name, itself."""
    for module in _modules(package):
        yield from _declared_in(package, module)


def beside(reference: str, enrichment: Enrichment) -> list[tuple[str, Enrichment]]:
    """The other enrichments of the package that this one's module:name is in; files that cannot be loaded have none."""
    package = reference.partition(":")[0].rpartition(".")[0]
    found: dict[str, Enrichment] = {}
    for module in _modules(package) if package else ():
        with contextlib.suppress(DeclarationError):
            found |= {name: other for _, name, other in _declared_in(package, module) if other is not enrichment}
    return [*found.items()]


def _modules(package: str) -> list[str]:
    try:
        path = getattr(importlib.import_module(package), "__path__", [])
    except ImportError as error:
        raise DeclarationError(f"there is no package {package!r} here: {error}.") from error
    return sorted(info.name for info in pkgutil.iter_modules(path))


def _declared_in(package: str, module: str) -> Iterator[tuple[tuple[str, ...], str, Enrichment]]:
    name = f"{package}.{module}"
    try:
        loaded = importlib.import_module(name)
    except Exception as error:
        raise DeclarationError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
    for key, value in vars(loaded).items():
        if isinstance(value, Enrichment):
            yield (value.name, module, key), f"{name}:{key}", value


def add_days(parser: argparse.ArgumentParser) -> None:
    """--day, or --from and --to; read them with `days_of`."""
    parser.add_argument("--day", metavar="YYYY-MM-DD")
    parser.add_argument("--from", dest="first", metavar="YYYY-MM-DD", help="first day of several")
    parser.add_argument("--to", dest="last", metavar="YYYY-MM-DD", help="last day, inclusive (default: --from)")


def days_of(options: argparse.Namespace) -> list[str]:
    """The days that were named, in order. Raises DeclarationError when none is, or they make no range."""
    if options.day is not None:
        if options.first is not None or options.last is not None:
            raise DeclarationError("--day names one day, --from and --to several: write one or the other.")
        return [require_day(options.day, "--day")]
    if options.first is None:
        raise DeclarationError("no day is named: write --day 2013-01-10, or --from 2013-01-01 --to 2013-01-10.")
    first = dt.date.fromisoformat(require_day(options.first, "--from"))
    last = first if options.last is None else dt.date.fromisoformat(require_day(options.last, "--to"))
    if last < first:
        raise DeclarationError(f"--to is {last}, before --from, {first}.")
    return [(first + dt.timedelta(days=number)).isoformat() for number in range((last - first).days + 1)]
