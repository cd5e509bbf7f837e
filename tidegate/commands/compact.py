"""`tidegate compact`: merges the many small parts of the ledgers into a few sorted files."""

import argparse
import sys
from typing import TYPE_CHECKING

from jobs.declare.finding.discovery import discover
from jobs.errors import TidegateError
from jobs.wording import counted
from tidegate.commands.command import RIGHT, Command, add_package

if TYPE_CHECKING:
    from jobs.ledger.changes.compaction import Compacted


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "lookup",
        nargs="?",
        metavar="LOOKUP",
        help="whose answers; by default those of every lookup",
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
            print(f"{ledger.lookup.name:20}  {_done(done)}   {ledger.folder.path}", flush=True)
    if not (found or status):
        print("Nothing is stored yet.")
    return status


def _done(done: "Compacted") -> str:
    if done.given_up:
        return "given up: another compaction was first"
    return (
        f"{counted(done.rows, 'record')}; {counted(done.parts_taken_in, 'part')} taken in, "
        f"{counted(done.rows_dropped, 'record')} dropped, {counted(done.deleted, 'file')} deleted"
    )


COMMAND = Command(_add_arguments, _run)
