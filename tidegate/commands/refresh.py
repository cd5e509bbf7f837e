"""`tidegate refresh`: calls again for answers that meet a condition, and reruns their days."""

import argparse
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TextIO

from jobs.commands import ledgers
from jobs.commands.replaying import refresh
from jobs.commands.replaying.refresh import Matched
from jobs.declare.finding.discovery import Discovered, discover
from jobs.declare.finding.upstreams import find_downstream
from jobs.declare.values.calendar import name_unit, require_day
from jobs.process.day_options import ANY_AGE, DayOptions
from jobs.wording import counted
from tidegate.commands.command import RIGHT, Command, add_package
from tidegate.commands.day_json import add_json, message_stream, print_days
from tidegate.commands.days import add_engine, add_wait, pipeline
from tidegate.commands.several import run_each


def moment(text: str) -> dt.datetime:
    """Return a moment, in UTC if the text names no zone. argparse tells errors by its name."""
    return at if (at := dt.datetime.fromisoformat(text)).tzinfo else at.replace(tzinfo=dt.UTC)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lookup", metavar="LOOKUP")
    parser.add_argument(
        "--where",
        required=True,
        metavar="SQL",
        help='condition on the answers, such as "answer.lat = 0"',
    )
    parser.add_argument(
        "--answered-from", metavar="YYYY-MM-DD", help="first day of the answers, UTC"
    )
    parser.add_argument(
        "--answered-to", metavar="YYYY-MM-DD", help="last day of the answers, UTC, inclusive"
    )
    parser.add_argument(
        "--answered-before",
        type=moment,
        metavar="MOMENT",
        help="only answers before this time, such as 2013-01-19T05:00Z, so that a repeated command "
        "leaves new answers out",
    )
    parser.add_argument(
        "--run",
        action="store_true",
        dest="do",
        help="expire the answers and run the days; without it, only print them",
    )
    add_package(parser)
    add_engine(parser)
    add_wait(parser)
    add_json(parser)


def _run(options: argparse.Namespace) -> int:
    first = options.answered_from and require_day(options.answered_from, "--answered-from")
    last = options.answered_to and require_day(options.answered_to, "--answered-to")
    status, discovered = RIGHT, discover(options.package)
    for kept in ledgers.named(discovered, options.lookup):
        matched = refresh.find(
            kept, options.where, first=first, last=last, before=options.answered_before
        )
        _say(options.lookup, matched, message_stream(options))
        stand = [enrichment for _, enrichment, days in matched.days if days]
        if downstream := find_downstream(stand, [other.enrichment for other in discovered]):
            names = ", ".join(enrichment.name for enrichment in downstream)
            print(
                f"  Made of these tables, and not run again here: {names}. Run these days of them "
                "afterwards.",
                file=message_stream(options),
            )
        if not options.do:
            continue
        refresh.expire(kept, matched)
        days = {reference: days for reference, _, days in matched.days}

        def run_one(discovered: Discovered, days: Mapping[str, Sequence[str]] = days) -> int:
            run = pipeline(discovered.reference, discovered.enrichment, options)
            options_of_run = DayOptions(ANY_AGE, until_red=True)
            in_turn = refresh.input_first(discovered.enrichment, days[discovered.reference])
            return print_days(options, run, run.run(in_turn, options_of_run))

        found = [Discovered(reference, enrichment) for reference, enrichment, _ in matched.days]
        ended = run_each(options, found, run_one)
        status = status or ended
    if not options.do:
        print(
            "Nothing was changed. With --run they are asked again, and these days run again.",
            file=message_stream(options),
        )
    return status


def _say(lookup: str, matched: Matched, file: TextIO) -> None:
    before = f", and {len(matched.void):,} that an earlier refresh marked" if matched.void else ""
    meet = counted(len(matched.keys), "stored answer meets", "stored answers meet")
    print(f"{lookup}: {meet} the condition{before}.", file=file)
    for _, enrichment, days in matched.days:
        unit = name_unit(days)
        used = counted(len(days), f"{unit} uses", f"{unit}s use")
        print(
            f"  {enrichment.name}: {used} them{': ' if days else ''}{', '.join(days)}",
            file=file,
            flush=True,
        )


COMMAND = Command(_add_arguments, _run, needs=("spark",))
