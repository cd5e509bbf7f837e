"""`tidegate test`: prints what today's declaration would make of a published day; no call."""

import argparse

from jobs.declare.values.calendar import require_day
from tidegate.commands.command import (
    FAILED,
    RIGHT,
    Command,
    add_enrichment,
    add_json_object,
    named,
    print_found,
)
from tidegate.commands.diff import difference_lines
from tidegate.commands.lines import entry


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    parser.add_argument(
        "--against",
        "--day",
        required=True,
        metavar="YYYY-MM-DD",
        help="the published day to compare with",
    )
    add_json_object(parser)


def _run(options: argparse.Namespace) -> int:
    from data_quality.day_quality import CHECKS
    from jobs.commands.diffing.against import run_against

    enrichment = named(options).enrichment
    day = require_day(options.against, "--against", enrichment.input.every)
    tested = run_against(enrichment, day, CHECKS)
    verdict = tested.held_back or tested.lost
    text = f"would be held back: {verdict}" if verdict else "would be published"
    lines = [*difference_lines(tested.difference), "", *entry("", text, 0)]
    print_found(options, tested, lines)
    return FAILED if verdict else RIGHT


COMMAND = Command(_add_arguments, _run, needs=("spark",))
