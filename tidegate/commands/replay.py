"""`tidegate replay`: the dead letters of a day, and nothing else, are asked again."""

from __future__ import annotations

import argparse

from jobs.declare.enrichment import require_day
from tidegate.commands.command import RIGHT, Command, add_enrichment
from tidegate.commands.days import add_wait, pipeline_of, tell


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    parser.add_argument("--day", required=True, metavar="YYYY-MM-DD")
    add_wait(parser)


def _run(options: argparse.Namespace) -> int:
    from jobs.commands import replay

    day = require_day(options.day, "--day")
    events = replay.replay(pipeline_of(options), day)
    if events is None:
        print(f"{day}  has no dead letters: nothing to do, nothing was called.")
        return RIGHT
    return tell(events)


COMMAND = Command(
    "replay",
    "ask again for the dead letters of a day, and nothing else; publish it",
    _add_arguments,
    _run,
    needs=("spark",),
)
