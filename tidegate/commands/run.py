"""`tidegate run`: runs days of an enrichment with the rules of the nightly job, without Dagster."""

import argparse

from jobs.declare.finding.discovery import Discovered
from jobs.errors import DeclarationError
from jobs.process.day_options import DayOptions
from tidegate.commands.command import Command, add_days, add_enrichment, all_declared, given_days
from tidegate.commands.day_json import add_json, message_stream, print_days
from tidegate.commands.days import (
    add_caps,
    add_engine,
    add_wait,
    given_caps,
    open_pipeline,
    waiting_for_jobs,
)
from tidegate.commands.several import run_each


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser, optional=True)
    parser.add_argument(
        "--all",
        action="store_true",
        help="every enrichment of the package, publishers of inputs before their readers",
    )
    add_days(parser)
    add_caps(parser)
    parser.add_argument(
        "--wait-for-jobs",
        type=float,
        default=0.0,
        metavar="S",
        help="seconds to wait for open jobs of a vendor (default 0: the day ends as waiting)",
    )
    add_engine(parser)
    add_wait(parser)
    add_json(parser)


def _run(options: argparse.Namespace) -> int:
    if options.all == (options.enrichment is not None):
        raise DeclarationError("write the name of an enrichment, or --all for every one.")
    return _run_all(options) if options.all else _run_one(options)


def _run_all(options: argparse.Namespace) -> int:
    """Run all enrichments of the package."""
    found = all_declared(options)
    for declared in found:
        given_days(options, declared.enrichment)  # refuses a wrong day before the first run

    def run_one(discovered: Discovered) -> int:
        print(discovered.enrichment.name, file=message_stream(options), flush=True)
        return _run_one(argparse.Namespace(**vars(options) | {"enrichment": discovered.reference}))

    return run_each(options, found, run_one)


def _run_one(options: argparse.Namespace) -> int:
    given = given_caps(options)
    pipeline = open_pipeline(options)
    days = given_days(options, pipeline.enrichment)
    events = waiting_for_jobs(
        pipeline, days, DayOptions(given, until_red=True), options.wait_for_jobs
    )
    return print_days(options, pipeline, events)


COMMAND = Command(_add_arguments, _run, needs=("spark",))
