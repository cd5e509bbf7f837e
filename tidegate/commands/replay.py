"""`tidegate replay`: calls again for the dead letters of a day, or some of them; nothing else."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.commands.replaying import replay
from jobs.commands.replaying.replay_where import Chosen, choose_letters, replay_chosen
from jobs.declare.values.calendar import require_day
from jobs.errors import DeclarationError
from jobs.process.day_pipeline import DayPipeline
from jobs.schema.facts import Facts
from jobs.wording import counted
from tidegate.commands.command import RIGHT, Command, add_enrichment, print_json
from tidegate.commands.day_json import add_json, message_stream, print_days, print_unchanged
from tidegate.commands.days import add_caps, add_engine, add_wait, given_caps, open_pipeline
from tidegate.commands.dead_letters import add_where, removed_letters

NOTHING = "No dead letter has this reason; nothing was called."
ONLY_SHOWN = "Nothing was called or changed. With --run these letters are called for again."


@dataclass(frozen=True)
class Price(Facts):
    """What --where --json prints without --run."""

    enrichment: str
    where: str
    letters: tuple[Any, ...]
    removed: int


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    parser.add_argument(
        "--day", metavar="YYYY-MM-DD", help="day to replay (with --where by default all days)"
    )
    add_where(parser)
    parser.add_argument(
        "--run",
        action="store_true",
        dest="do",
        help="with --where: call; without it, only print the price",
    )
    add_caps(parser)
    add_engine(parser)
    add_wait(parser)
    add_json(parser)


def _run(options: argparse.Namespace) -> int:
    if options.day is None and not options.where:
        raise DeclarationError("no day is given: write --day 2013-01-10, or --where 'a reason'.")
    if options.do and not options.where:
        raise DeclarationError(
            "--run goes with --where; without --where a replay runs at once. Leave --run out."
        )
    caps = given_caps(options)
    pipeline = open_pipeline(options)
    day = options.day and require_day(options.day, "--day", pipeline.enrichment.input.every)
    if options.where:
        return _run_chosen(options, pipeline, day, caps)
    events = replay.replay(pipeline, day, caps)
    if events is None:
        if options.json:
            return print_unchanged(
                pipeline.enrichment.name, day, "it has no dead letters; nothing was called."
            )
        print(f"{day}  has no dead letters: nothing to do, nothing was called.")
        return RIGHT
    return print_days(options, pipeline, events)


def _run_chosen(
    options: argparse.Namespace, pipeline: DayPipeline, day: str | None, caps: Sequence[str]
) -> int:
    chosen = choose_letters(pipeline.enrichment, options.where, day)
    if options.json and not options.do:
        priced = tuple(price for of_day in chosen for price in of_day.priced)
        removed = sum(day.removed for day in chosen)
        print_json(Price(pipeline.enrichment.name, options.where, priced, removed))
        return RIGHT
    for line in _lines(chosen):
        print(line, file=message_stream(options), flush=True)
    days = [day for day in chosen if day.keys]
    if not days and options.json:
        return print_unchanged(pipeline.enrichment.name, day, NOTHING)
    if not days or not options.do:
        print(ONLY_SHOWN if days else NOTHING)
        return RIGHT
    return print_days(options, pipeline, replay_chosen(pipeline, days, caps))


def _lines(chosen: Sequence[Chosen]) -> Iterator[str]:
    yield from removed_letters((day.day, day.removed) for day in chosen)
    for day in chosen:
        for priced in day.priced:
            least = "at least " if priced.requests_are_least else ""
            cost = f", {least}{priced.cost} at {priced.price}" if priced.cost is not None else ""
            requests = (
                f" in {counted(priced.requests, 'request')}"
                if priced.requests < priced.calls
                else ""
            )
            yield (
                f"{day.day}  {priced.lookup}: {counted(priced.letters, 'letter')}, "
                f"{counted(priced.calls, 'call')}{requests}{cost}"
            )


COMMAND = Command(_add_arguments, _run, needs=("spark",))
