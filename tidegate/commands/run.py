"""`tidegate run`: days of an enrichment here and now, under the rules of the nightly job, without Dagster."""

from __future__ import annotations

import argparse

from tidegate.commands.command import Command, add_days, add_enrichment, days_of
from tidegate.commands.days import add_wait, target_of, tell


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    add_days(parser)
    add_wait(parser)


def _run(options: argparse.Namespace) -> int:
    return tell(target_of(options).run_all(days_of(options)))


COMMAND = Command("run", "enrich, check and publish days, one after the other, until one fails", _add_arguments, _run)
