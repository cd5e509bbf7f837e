"""The base of the commands, and arguments that several commands share."""

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from jobs.commands.day_range import day_range
from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.discovery import Discovered, discover, discover_named
from jobs.declare.values.calendar import require_day
from jobs.errors import DeclarationError
from jobs.schema.facts import Facts

RIGHT, FAILED, WRONG, STOPPED, WAITING = 0, 1, 2, 3, 10  # exit statuses, as in jobs/errors.py
FORMAT = 1  # of the JSON of commands that read


@dataclass(frozen=True)
class Command:
    """A command. Its module is imported for it alone; `run` imports what an extra brings.

    Attributes:
        add_arguments: Adds its arguments to a parser.
        run: Runs it and returns the exit status.
        needs: Extras of the package that it needs.
    """

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    needs: tuple[str, ...] = ()


def no_arguments(_parser: argparse.ArgumentParser) -> None:
    """Add no arguments, for a command without arguments."""


def add_enrichment(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add the argument that names an enrichment; read it with `named`."""
    parser.add_argument(
        "enrichment",
        metavar="ENRICHMENT",
        nargs="?" if optional else None,
        help="name of the enrichment, name of its file, or module:name",
    )
    add_package(parser)


def add_package(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--package",
        default="enrichments",
        help="package with the declarations (default: enrichments)",
    )


def add_json_object(parser: argparse.ArgumentParser) -> None:
    """Add --json to a command that reads; print its object with `print_json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")


def print_json(found: Facts) -> None:
    """Print facts as the JSON object of a command that reads; docs/commands.md documents them."""
    print(json.dumps({"format": FORMAT} | json.loads(found.to_json()), ensure_ascii=False))


def print_found(options: argparse.Namespace, found: Facts, lines: Iterable[str]) -> int:
    """Print what a command has read: with --json its object, else lines. Returns RIGHT."""
    if options.json:
        print_json(found)
    else:
        for line in lines:
            print(line)
    return RIGHT


def named(options: argparse.Namespace) -> Discovered:
    """Return the named enrichment. Raises DeclarationError if none or several have the name."""
    return discover_named(options.package, options.enrichment)


def all_declared(options: argparse.Namespace) -> list[Discovered]:
    """Return the enrichments of the package. Raises DeclarationError if it has none."""
    if not (found := discover(options.package)):
        raise DeclarationError(f"{options.package} holds no Enrichment; declare one in a module.")
    return found


def add_day(parser: argparse.ArgumentParser) -> None:
    """Add DAY, which may be written as --day too; read it with `named_day`."""
    parser.add_argument("day", nargs="?", metavar="DAY", help="day, such as 2013-01-10")
    parser.add_argument("--day", dest="named_day", metavar="YYYY-MM-DD", help="the same as DAY")


def named_day(options: argparse.Namespace, enrichment: Enrichment) -> str | None:
    """Return the day that the options give; None without one. Raises DeclarationError."""
    if options.day is not None and options.named_day is not None:
        raise DeclarationError("DAY and --day are the same: write one of them.")
    option = "DAY" if options.named_day is None else "--day"
    day = options.day or options.named_day
    return day and require_day(day, option, enrichment.input.every)


def given_day(options: argparse.Namespace, enrichment: Enrichment) -> str | None:
    """Return the day of --day; None without one. Raises DeclarationError."""
    return options.day and require_day(options.day, "--day", enrichment.input.every)


def given_or_last_day(options: argparse.Namespace, enrichment: Enrichment) -> str:
    """Return the day of --day, or else the last one of the input. Raises DeclarationError."""
    from jobs.input.day import last_day  # imports Arrow

    return given_day(options, enrichment) or last_day(enrichment.input)


def add_days(parser: argparse.ArgumentParser) -> None:
    """Add --day, and --from with --to; read them with `given_days`."""
    parser.add_argument(
        "--day", metavar="YYYY-MM-DD", help="or an hour, 2026-11-19T05Z, or a partition's name"
    )
    parser.add_argument("--from", dest="first", metavar="YYYY-MM-DD", help="first day of several")
    parser.add_argument(
        "--to", dest="last", metavar="YYYY-MM-DD", help="last day, inclusive (default: --from)"
    )


def given_days(options: argparse.Namespace, enrichment: Enrichment) -> list[str]:
    """Return the days, hours or names that the options give. Raises DeclarationError."""
    if options.day is not None:
        if options.first is not None or options.last is not None:
            raise DeclarationError(
                "--day gives one day, --from and --to several: write one or the other."
            )
        return day_range(enrichment, options.day, options.day, names=("--day", "--day"))
    if (
        options.first is None
        and options.last is None
        and not isinstance(enrichment.input.every, str)
    ):
        return [*enrichment.input.every]
    if options.first is None:
        raise DeclarationError(
            "no day is given: write --day 2013-01-10, or --from 2013-01-01 --to 2013-01-10."
        )
    last = options.first if options.last is None else options.last
    return day_range(enrichment, options.first, last, names=("--from", "--to"))
