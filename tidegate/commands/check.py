"""`tidegate check`: checks declarations, inputs, tables, secrets and services; no call."""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial

from jobs.declare.finding.discovery import beside
from jobs.declare.values.calendar import is_day, require_day
from jobs.process.spark_submit import spark_submit_from_environment
from jobs.schema.records import DeclaredFacts
from tidegate.commands.command import (
    RIGHT,
    STOPPED,
    WRONG,
    Command,
    add_enrichment,
    given_day,
    named,
)
from tidegate.commands.days import add_engine
from tidegate.terminal import GREEN, RED, YELLOW, write_coloured

COLOURS = {"right": GREEN, "STOPS": YELLOW, "WRONG": RED}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser, optional=True)
    parser.add_argument(
        "--day", help="day of the input, such as 2013-01-10 (default: the last one)"
    )
    add_engine(parser)


def _run(options: argparse.Namespace) -> int:
    from jobs.commands.check import Finding, check_enrichment, check_package

    only = named(options) if options.enrichment else None
    if only is not None:
        given_day(options, only.enrichment)
    elif options.day and not is_day(options.day, "hour"):
        require_day(options.day, "--day")
    spark_submit_from_environment(options.engine, options.conf)  # refuses what a run would refuse
    findings, find_wrong = set(), partial(_find_wrong, _why_verdicts_are_refused())
    if only is None:
        found = check_package(options.package, options.day, options.engine, find_wrong=find_wrong)
    else:
        found = check_enrichment(
            only, beside(only), options.day, options.engine, find_wrong=find_wrong
        )
    for name, message, finding in found:
        sys.stdout.write(f"{name:30} ")
        write_coloured(sys.stdout, finding.value, COLOURS[finding.value])
        print(f"   {message}")
        findings.add(finding)
    if not findings:
        print(f"{options.package} holds no Enrichment; declare one in a module.", file=sys.stderr)
    if not findings or Finding.WRONG in findings:
        return WRONG
    return STOPPED if Finding.STOPS in findings else RIGHT


def _why_verdicts_are_refused() -> list[str]:
    """Return why the database of verdicts cannot store them; empty if it can, or if none is set."""
    from data_quality import verdict_store

    if not os.environ.get(verdict_store.URL):  # a run makes a file
        return []
    try:
        verdict_store.require()
    except verdict_store.VerdictsRefused as error:
        return [str(error)]
    return []


def _find_wrong(
    refused: Sequence[str], declared: DeclaredFacts, columns: Sequence[str] | None
) -> list[str]:
    """Return why its checks cannot be made, or their verdicts not be stored, a sentence each."""
    from data_quality.declared_checks import find_wrong_checks

    return [*find_wrong_checks(declared, columns), *refused]


COMMAND = Command(_add_arguments, _run)
