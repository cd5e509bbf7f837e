"""Output for programs: with --json an object per day, and an exit status per state."""

import argparse
import json
import sys
from collections.abc import Iterable
from typing import TextIO

from jobs.errors import DeclarationError, TidegateError
from jobs.process.day_events import DayEvent, DayResult, DayStage, DaysWarning
from jobs.process.day_pipeline import DayPipeline
from orchestration.common.day_results import EXIT_CODES, describe_result, result
from orchestration.common.states import FAILED, UNCHANGED, WRONG
from tidegate.commands.days import tell
from tidegate.commands.stages import Stages


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a JSON object per day; the exit status is that of its state",
    )


def print_days(
    options: argparse.Namespace, pipeline: DayPipeline, events: Iterable[DayEvent]
) -> int:
    """Run days and print a line for each, or with --json an object. Returns the exit status."""
    shown = tell_as_json if options.json else tell
    return shown(pipeline.enrichment.name, events)


def tell_as_json(enrichment: str, events: Iterable[DayEvent]) -> int:
    """Print an object per finished day.

    Returns the status of the first day that is not published, or whose summaries are not all made.
    """
    stages = Stages(in_place=False)
    status = 0
    for event in events:
        match event:
            case DayStage():
                stages.show(event)
            case DayResult():
                ended = describe_result(enrichment, event)
                print(json.dumps(ended), flush=True)
                status = status or EXIT_CODES[FAILED if ended["unmade"] else ended["state"]]
            case DaysWarning():
                print(f"{event.day}  warning     {event.sentence}", file=sys.stderr, flush=True)
    return status


def print_unchanged(enrichment: str, day: str | None, reason: str) -> int:
    print(json.dumps(result(enrichment, day, UNCHANGED, reason)), flush=True)
    return EXIT_CODES[UNCHANGED]


def tell_error(options: argparse.Namespace, error: TidegateError) -> int:
    """Print the object of an error before any day ran. Returns the exit status."""
    state = WRONG if isinstance(error, DeclarationError) else error.state
    enrichment = getattr(options, "enrichment", "")
    print(
        json.dumps(result(enrichment, getattr(options, "day", None), state, str(error))), flush=True
    )
    return EXIT_CODES[state]


def message_stream(options: argparse.Namespace) -> TextIO:
    """Return the stream for messages: with --json, stdout has only objects."""
    return sys.stderr if options.json else sys.stdout
