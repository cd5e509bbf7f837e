"""`tidegate costs`: prints what the services billed in a month."""

import argparse
import datetime as dt
from decimal import Decimal
from pathlib import Path

from jobs.wording import counted, did_you_mean, money
from tidegate.commands.command import RIGHT, Command
from tidegate.commands.lines import aligned

HEADINGS = ("service", "enrichment", "lookup", "billed", "cost", "saved")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--month",
        default=f"{dt.datetime.now(dt.UTC):%Y-%m}",
        metavar="YYYY-MM",
        help="month, in UTC, whose runs are counted (default: this month)",
    )
    parser.add_argument(
        "--enrichment", metavar="NAME", help="only this enrichment (default: all with records here)"
    )
    parser.add_argument(
        "--csv",
        metavar="FILE",
        help="also write a line per day, lookup and unit, in columns of FOCUS",
    )


def _run(options: argparse.Namespace) -> int:
    from jobs.commands.costs import list_costs, recorded_enrichments

    costs = list_costs(options.month, options.enrichment)
    lines = [HEADINGS] + [
        (charge.service, charge.enrichment, charge.lookup,
         ", ".join(counted(part.units, part.unit) for part in charge.billed.parts),
         money(Decimal(charge.billed.cost), charge.billed.currency),
         money(Decimal(charge.billed.saved), charge.billed.currency))
        for charge in costs.by_lookup()
    ]  # fmt: skip
    if costs.charges:
        print(*aligned(lines), sep="\n")
    for currency, total in sorted(costs.totals().items()):
        print(f"{options.month}: {money(total, currency)}")
    if not costs.charges:
        which_enrichment, meant = "", ""
        if options.enrichment:
            which_enrichment = f" of {options.enrichment!r}"
            meant = did_you_mean(options.enrichment, recorded_enrichments())
        print(f"{options.month}: no run{which_enrichment} with a price was made here.{meant}")
    if costs.unrecorded:
        print(
            f"{counted(costs.unrecorded, 'run')} of a day in the sum wrote no table: stopped, "
            "killed or still at work."
        )
    if options.csv:
        Path(options.csv).write_text(costs.focus_csv(), encoding="utf-8")
    return RIGHT


COMMAND = Command(_add_arguments, _run)
