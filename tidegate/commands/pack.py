"""`tidegate pack`: packs what the executors of a cluster need into a zip."""

import argparse
import sys
from pathlib import Path

from jobs.wording import counted
from tidegate.commands.command import RIGHT, Command, add_package

NAMED = 5  # files that are left out


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "zip", type=Path, metavar="ZIP", help="the file to write, for spark-submit's --py-files"
    )
    parser.add_argument(
        "packages", nargs="*", metavar="NAME", help="your further packages or modules"
    )
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="PATTERN",
        help="also take files of this name, such as 'prices.csv' or '*.json' (default: modules)",
    )
    add_package(parser)


def _run(options: argparse.Namespace) -> int:
    from jobs.process.packing import package

    packed = package(options.zip, [options.package, *options.packages], options.data)
    if packed.left_out:
        more = len(packed.left_out) - NAMED
        named = ", ".join(packed.left_out[:NAMED]) + (f" and {more} more" if more > 0 else "")
        print(
            f"{counted(len(packed.left_out), 'file')} left out, because only modules are taken: "
            f"{named}. --data PATTERN takes those that the executors read.",
            file=sys.stderr,
        )
    print(packed.zip)
    return RIGHT


COMMAND = Command(_add_arguments, _run)
