"""`tidegate vacuum`: removes old versions of the tables, and runs that were never published."""

import argparse

from tidegate.commands.command import RIGHT, Command, add_enrichment, named

DAYS = 7


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    parser.add_argument(
        "--keep-days",
        type=int,
        default=DAYS,
        metavar="N",
        help=f"days for which replaced versions and unpublished runs stay (default: {DAYS})",
    )


def _run(options: argparse.Namespace) -> int:
    from jobs.commands.vacuum import parse_age, vacuum

    older_than = parse_age(options.keep_days)
    for vacuumed in vacuum(named(options).enrichment, older_than=older_than):
        print(f"{vacuumed.table}: {vacuumed.removed.words} removed", flush=True)
    return RIGHT


COMMAND = Command(_add_arguments, _run)
