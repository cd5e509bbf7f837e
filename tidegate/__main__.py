"""The command line: `python -m tidegate check`."""

from __future__ import annotations

import argparse
import sys

from jobs.check import check_package
from jobs.declarations import require_day
from jobs.errors import TidegateError


def main(arguments: list[str] | None = None) -> int:
    """0 when everything is right, 2 when something is wrong with a declaration or its surroundings."""
    parser = argparse.ArgumentParser(prog="tidegate", description="Nightly tables enriched from outside systems.")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="every declaration against its input, table, secrets, services; no call")
    check.add_argument("--package", default="enrichments", help="holds the declarations (enrichments)")
    check.add_argument("--day", help="of the input, as 2013-01-10; by default the last one there is")
    options = parser.parse_args(arguments)
    try:
        return _check(options.package, options.day and require_day(options.day))
    except TidegateError as error:
        print(error, file=sys.stderr)
        return 2


def _check(package: str, day: str | None) -> int:
    right = True
    checked = 0
    for name, said, is_right in check_package(package, day):
        print(f"{name:30} {'right' if is_right else 'WRONG'}   {said}")
        right &= is_right
        checked += 1
    if not checked:
        print(f"{package} holds no Enrichment.", file=sys.stderr)
    return 0 if right and checked else 2


if __name__ == "__main__":
    sys.exit(main())
