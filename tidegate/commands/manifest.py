"""`tidegate manifest`: prints at deploy, as JSON, what Airflow must know of the enrichments."""

import argparse
import json
import sys
from pathlib import Path

from jobs.declare.finding.discovery import discover
from tidegate.commands.command import RIGHT, Command, add_package


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_package(parser)
    help_ = "copy tidegate_airflow.py into this folder, that of Airflow's plugins"
    parser.add_argument("--plugin", type=Path, metavar="FOLDER", help=help_)


def _run(options: argparse.Namespace) -> int:
    from orchestration.airflow import copy_plugin
    from orchestration.common.manifest import manifest

    print(json.dumps(manifest(options.package, discover(options.package)), indent=2))
    if options.plugin:
        print(f"copied to {copy_plugin(options.plugin)}", file=sys.stderr)
    return RIGHT


COMMAND = Command(_add_arguments, _run)
