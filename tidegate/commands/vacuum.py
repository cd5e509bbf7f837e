"""`tidegate vacuum`: removes old versions of the tables, and runs that were never published."""

import argparse
from datetime import timedelta

from jobs.errors import DeclarationError
from jobs.wording import counted
from tidegate.commands.command import RIGHT, Command, add_enrichment, named

DAYS = 7


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    parser.add_argument(
        "--keep-days",
        type=int,
        default=DAYS,
        metavar="N",
        help=f"what is younger stays ({DAYS}); old versions end then",
    )


def _run(options: argparse.Namespace) -> int:
    if options.keep_days < 0:
        raise DeclarationError(f"--keep-days is {options.keep_days}; it must be 0 or more.")
    from jobs.commands import vacuum

    for one in vacuum.vacuum(
        named(options).enrichment, older_than=timedelta(days=options.keep_days)
    ):
        old, runs = (
            counted(one.removed.old, "old file"),
            counted(one.removed.runs, "unpublished run"),
        )
        print(f"{one.table}: {old} and {runs} removed", flush=True)
    return RIGHT


COMMAND = Command(_add_arguments, _run)
