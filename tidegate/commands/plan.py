"""`tidegate plan`: prints which calls days would make, why, at what cost and how long; no call."""

import argparse

from tidegate.commands.command import RIGHT, Command, add_days, add_enrichment, given_days, named


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    add_days(parser)


def _run(options: argparse.Namespace) -> int:
    from jobs.commands.planning.plan import plan
    from jobs.run.estimating.text import estimate_text

    enrichment = named(options).enrichment
    print(estimate_text(plan(enrichment, given_days(options, enrichment))))
    return RIGHT


COMMAND = Command(_add_arguments, _run)
