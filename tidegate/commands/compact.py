"""`tidegate compact`: merges the many small parts of the ledgers into a few sorted files."""

import argparse
import sys

from jobs.declare.finding.discovery import discover
from jobs.errors import TidegateError
from tidegate.commands.command import RIGHT, Command, add_package


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "lookup",
        nargs="?",
        metavar="LOOKUP",
        help="lookup whose answers are merged (default: every lookup)",
    )
    add_package(parser)


def _run(options: argparse.Namespace) -> int:
    from jobs.commands import compact, ledgers

    declared = discover(options.package)
    kept = (
        ledgers.named(declared, options.lookup)
        if options.lookup
        else ledgers.declared_ledgers(declared)
    )
    status, found = RIGHT, False
    for ledger in kept:
        try:
            done = compact.compact(ledger)
        except TidegateError as error:  # the other ledgers are compacted
            print(error, file=sys.stderr, flush=True)
            status = status or error.status
            continue
        if done is not None:
            found = True
            print(f"{ledger.lookup.name:20}  {done.words}   {ledger.folder.path}", flush=True)
    if not (found or status):
        print("Nothing is stored yet.")
    return status


COMMAND = Command(_add_arguments, _run)
