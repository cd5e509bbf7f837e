"""`tidegate pack`: what the executors of a cluster need, in one zip."""

import argparse
from pathlib import Path

from tidegate.commands.command import RIGHT, Command, add_package


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("zip", type=Path, metavar="ZIP", help="the file to write, for spark-submit's --py-files")
    parser.add_argument("packages", nargs="*", metavar="NAME", help="further packages or modules of yours")
    add_package(parser)


def _run(options: argparse.Namespace) -> int:
    from jobs.process.packing import package

    print(package(options.zip, [options.package, *options.packages]))
    return RIGHT


COMMAND = Command("pack", "one zip with what a cluster's executors need of Tidegate and of you", _add_arguments, _run)
