"""`tidegate run`: runs days of an enrichment with the rules of the nightly job, without Dagster."""

import argparse

from jobs.process.day_options import DayOptions
from jobs.run.plan.options import RunOptions
from tidegate.commands.command import Command, add_days, add_enrichment, days_of
from tidegate.commands.day_json import add_json, tell_as_asked
from tidegate.commands.days import add_engine, add_wait, open_pipeline, waiting_for_jobs


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    add_days(parser)
    parser.add_argument(
        "--max-calls",
        type=int,
        metavar="N",
        help="stop, resumable, when a day has made so many calls",
    )
    parser.add_argument(
        "--max-cost", metavar="MONEY", help="the same for what the calls cost, as '5 USD'"
    )
    parser.add_argument(
        "--wait-for-jobs",
        type=float,
        default=0.0,
        metavar="S",
        help="look again for so long if jobs of a vendor are open (0: end as waiting)",
    )
    add_engine(parser)
    add_wait(parser)
    add_json(parser)


def _run(options: argparse.Namespace) -> int:
    # refuses an invalid cap before Spark starts
    RunOptions(max_calls=options.max_calls, max_cost=options.max_cost)
    caps = {"--max-calls": options.max_calls, "--max-cost": options.max_cost}
    given = [
        part for name, value in caps.items() if value is not None for part in (name, str(value))
    ]
    pipeline = open_pipeline(options)
    days = days_of(options, pipeline.enrichment)
    events = waiting_for_jobs(
        pipeline, days, DayOptions(given, until_red=True), options.wait_for_jobs
    )
    return tell_as_asked(options, pipeline, events)


COMMAND = Command(
    "run",
    "enrich, check and publish days, one after the other, until one fails",
    _add_arguments,
    _run,
    needs=("spark",),
)
