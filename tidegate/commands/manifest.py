"""`tidegate manifest`: what Airflow must know of the enrichments, as JSON; made at deploy."""

from __future__ import annotations

import argparse
import json

from jobs.declare.discovery import discover
from tidegate.commands.command import RIGHT, Command, add_package


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_package(parser)


def _run(options: argparse.Namespace) -> int:
    from orchestration.common.manifest import manifest

    print(json.dumps(manifest(discover(options.package)), indent=2))
    return RIGHT


COMMAND = Command("manifest", "what Airflow must know of the enrichments, as JSON", _add_arguments, _run)
