"""`tidegate check`: every declaration against its input, table, secrets and services; nothing is asked of a service."""

import argparse
import sys

from jobs.declare.calendar import is_day, require_day
from tidegate.commands.command import RIGHT, WRONG, Command, add_package


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_package(parser)
    parser.add_argument("--day", help="of the input, as 2013-01-10; by default the last one there is")


def _run(options: argparse.Namespace) -> int:
    from jobs.commands.check import check_package

    if options.day and not is_day(options.day, "hour"):
        require_day(options.day)
    right = True
    checked = 0
    for name, message, is_right in check_package(options.package, options.day):
        print(f"{name:30} {'right' if is_right else 'WRONG'}   {message}")
        right &= is_right
        checked += 1
    if not checked:
        print(f"{options.package} holds no Enrichment.", file=sys.stderr)
    return RIGHT if right and checked else WRONG


COMMAND = Command(
    "check", "every declaration against its input, table, secrets, services; no call", _add_arguments, _run
)
