"""`tidegate remap`: publishes days again from stored responses with current columns; no call."""

import argparse

from jobs.commands.day_range import require_range
from jobs.declare.finding.discovery import Discovered, discover, discover_named
from jobs.errors import DeclarationError
from jobs.wording import counted, did_you_mean
from tidegate.commands.command import RIGHT, Command, add_package
from tidegate.commands.day_json import add_json, message_stream, print_days, print_unchanged
from tidegate.commands.days import add_engine, add_wait, pipeline
from tidegate.commands.several import run_each


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="LOOKUP_OR_ENRICHMENT",
        help="lookup, for every enrichment that uses it; or enrichment",
    )
    add_package(parser)
    parser.add_argument(
        "--from", dest="first", required=True, metavar="YYYY-MM-DD", help="first day"
    )
    parser.add_argument(
        "--to", dest="last", metavar="YYYY-MM-DD", help="last day (default: the newest published)"
    )
    add_engine(parser)
    add_wait(parser)
    add_json(parser)


def _run(options: argparse.Namespace) -> int:
    from jobs.commands.replaying import remap

    first, last = options.first, options.last
    found = _named(options)
    for _, enrichment in found:
        require_range(enrichment, first, last or first, names=("--from", "--to"))

    def run_one(discovered: Discovered) -> int:
        name = discovered.enrichment.name
        days = remap.published_days(discovered.enrichment, first, last)
        if not days:
            nothing = f"no row from {first} to {last or 'now'} is published: nothing to do."
            print(f"{name}: {nothing}", file=message_stream(options))
            if options.json:
                print_unchanged(name, first, nothing)
            return RIGHT
        print(f"{name}: {counted(len(days), 'day')}", file=message_stream(options), flush=True)
        run = pipeline(discovered.reference, discovered.enrichment, options)
        return print_days(options, run, remap.remap(run, days))

    return run_each(options, found, run_one)


def _named(options: argparse.Namespace) -> list[Discovered]:
    declared = discover(options.package)
    found = [
        discovered
        for discovered in declared
        if options.name == discovered.enrichment.name
        or options.name in {lookup.name for lookup in discovered.enrichment.lookups}
    ]
    if not found and (":" in options.name or any(options.name in one.names for one in declared)):
        return [discover_named(options.package, options.name)]
    if not found:
        names = {enrichment.name for _, enrichment in declared}
        names |= {lookup.name for _, enrichment in declared for lookup in enrichment.lookups}
        raise DeclarationError(
            f"no lookup or enrichment is called {options.name!r}."
            f"{did_you_mean(options.name, names)} There are: "
            f"{', '.join(sorted(names)) or 'none'}."
        )
    return found


COMMAND = Command(_add_arguments, _run, needs=("spark",))
