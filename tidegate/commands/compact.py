"""`tidegate compact`: merges the many small parts of the ledgers into a few sorted files."""

import argparse

from jobs.declare.finding.discovery import discover
from jobs.wording import counted
from tidegate.commands.command import RIGHT, Command, add_package


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
    kept = ledgers.named(declared, options.lookup) if options.lookup else ledgers.kept_by(declared)
    compacted = compact.compact(kept)
    if not compacted:
        print("Nothing is stored yet.")
    for ledger in compacted:
        done = ledger.done
        message = (
            "given up: another compaction was first"
            if done.given_up
            else f"{counted(done.rows, 'record')}; {counted(done.parts_taken_in, 'part')} taken "
            f"in, {counted(done.rows_dropped, 'record')} dropped, {counted(done.deleted, 'file')} "
            "deleted"
        )
        print(f"{ledger.lookup:20}  {message}   {ledger.folder}", flush=True)
    return RIGHT


COMMAND = Command(_add_arguments, _run)
