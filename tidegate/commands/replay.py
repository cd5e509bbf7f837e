"""`tidegate replay`: calls again for the dead letters of a day, and nothing else."""

import argparse

from jobs.declare.values.calendar import require_day
from tidegate.commands.command import RIGHT, Command, add_enrichment
from tidegate.commands.day_json import add_json, tell_as_asked, tell_unchanged
from tidegate.commands.days import add_engine, add_wait, open_pipeline


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    parser.add_argument("--day", required=True, metavar="YYYY-MM-DD")
    add_engine(parser)
    add_wait(parser)
    add_json(parser)


def _run(options: argparse.Namespace) -> int:
    from jobs.commands import replay

    pipeline = open_pipeline(options)
    day = require_day(options.day, "--day", pipeline.enrichment.input.every)
    events = replay.replay(pipeline, day)
    if events is None:
        if options.json:
            return tell_unchanged(
                pipeline.enrichment.name, day, ("it has no dead letters; nothing was called.")
            )
        print(f"{day}  has no dead letters: nothing to do, nothing was called.")
        return RIGHT
    return tell_as_asked(options, pipeline, events)


COMMAND = Command(
    "replay",
    "ask again for the dead letters of a day, and nothing else; publish it",
    _add_arguments,
    _run,
    needs=("spark",),
)
