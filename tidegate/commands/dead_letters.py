"""`tidegate dead-letters`: prints the rows of a day that got no answer, each with the reason."""

import argparse
import csv
from pathlib import Path

from jobs.declare.values.calendar import require_day
from jobs.wording import counted
from tidegate.commands.command import RIGHT, Command, add_enrichment, named


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    parser.add_argument("--day", required=True, metavar="YYYY-MM-DD")
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help=("write them there, with all columns")
    )


def _run(options: argparse.Namespace) -> int:
    from jobs.commands.dead_letters import find_dead_letters

    enrichment = named(options).enrichment
    day = require_day(options.day, "--day", enrichment.input.every)
    found = find_dead_letters(enrichment, day)
    if options.csv is not None:
        with options.csv.open("w", newline="", encoding="utf-8", errors="replace") as file:
            writer = csv.DictWriter(file, list(found.rows[0]) if found.rows else [])
            writer.writeheader()
            writer.writerows(found.rows)
    else:
        for row in found.rows:
            print(
                (
                    f"{row['_lookup']}  {row['_status']}  {row['_key']}  {row['_error'] or ''}"
                ).rstrip()
            )
    print(f"{day}  {counted(len(found.rows), 'dead letter')} of run {found.run_id} ({found.state})")
    return RIGHT


COMMAND = Command(
    "dead-letters",
    "the rows of a day that got no answer, also of a held-back day",
    _add_arguments,
    _run,
    needs=("spark",),
)
