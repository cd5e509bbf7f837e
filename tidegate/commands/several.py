"""Runs several enrichments in one command."""

import argparse
import sys
from collections.abc import Callable, Sequence

from jobs.declare.finding.discovery import Discovered
from jobs.declare.finding.upstreams import find_upstream, upstream_first
from jobs.errors import TidegateError
from tidegate.commands.command import RIGHT
from tidegate.commands.exit_status import exit_status


def run_each(
    options: argparse.Namespace, found: Sequence[Discovered], run_one: Callable[[Discovered], int]
) -> int:
    """Run enrichments, publishers of inputs before their readers.

    After an enrichment that does not publish, the others run, except readers of its table.

    Args:
        options: Of the command.
        found: The enrichments.
        run_one: Runs one of them, and returns its exit status.

    Returns:
        The first exit status that is not RIGHT.

    Raises:
        DeclarationError: Enrichments read each other's tables in a circle.
    """
    enrichments = [discovered.enrichment for discovered in found]
    failed, status = set[str](), RIGHT
    for declared in upstream_first(found):
        name, upstream = declared.enrichment.name, find_upstream(declared.enrichment, enrichments)
        if upstream is not None and upstream.name in failed:
            reason = f"{name} is not run: {upstream.name} did not publish."
            ended = _tell(options, name, TidegateError(reason))
        else:
            try:
                ended = run_one(declared)
            except TidegateError as error:
                ended = _tell(options, name, error)
        if ended:
            failed.add(name)
        status = status or ended
    return status


def _tell(options: argparse.Namespace, name: str, error: TidegateError) -> int:
    print(error, file=sys.stderr)
    named = argparse.Namespace(**vars(options) | {"enrichment": name})
    return exit_status(named, error)
