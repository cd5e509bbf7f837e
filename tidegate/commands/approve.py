"""`tidegate approve`: a person approves a plan with its price, which an agent may then run once."""

import argparse
import sys

from jobs.declare.values.calendar import require_day
from jobs.wording import counted
from tidegate.commands.command import FAILED, RIGHT, Command, add_enrichment, named, print_json
from tidegate.commands.dead_letters import add_where


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    parser.add_argument("--day", metavar="YYYY-MM-DD", required=True)
    add_where(parser)
    parser.add_argument(
        "--max-cost", metavar="MONEY", help="approve up to this cost, in place of the planned cost"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--yes", action="store_true", help="approve without a question")
    only.add_argument("--json", action="store_true", help="print the plan; approve nothing")


def _run(options: argparse.Namespace) -> int:
    from jobs.commands.planning.approving import approve, price_plan

    enrichment = named(options).enrichment
    day = require_day(options.day, "--day", enrichment.input.every)
    priced = price_plan(enrichment, day, options.where or "", options.max_cost)
    if options.json:
        print_json(priced)
        return RIGHT
    asks = f"letters with {priced.where!r}" if priced.where else "run"
    print(
        f"{priced.enrichment} {day}, {asks}: {counted(priced.calls, 'call')}, {priced.price}, "
        f"plan {priced.plan}"
    )
    if not options.yes:
        if not sys.stdin.isatty():
            print("Nothing is approved: a person must answer yes, or give --yes.", file=sys.stderr)
            return FAILED
        try:
            answer = input("Approve it for one run? [yes/no] ")
        except EOFError:  # Ctrl-D
            answer = ""
        if answer.strip() != "yes":
            print("Nothing is approved.")
            return FAILED
    approve(priced)
    print("Approved, for one run of exactly this plan.")
    return RIGHT


COMMAND = Command(_add_arguments, _run)
