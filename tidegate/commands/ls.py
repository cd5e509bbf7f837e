"""`tidegate ls`: prints the enrichments of a package, with their tables and schedules."""

import argparse
from dataclasses import dataclass

from jobs.declare.finding.discovery import Discovered, discover
from jobs.schema.facts import Facts
from jobs.wording import listed
from tidegate.commands.command import Command, add_json_object, add_package, print_found
from tidegate.commands.lines import aligned

HEADINGS = ("enrichment", "declared in", "lookups", "schedule", "table")


@dataclass(frozen=True)
class DeclaredLookup(Facts):
    """A lookup as declared."""

    lookup: str
    kind: str
    service: str
    keys: dict[str, str]  # part -> Spark SQL
    returns: str
    timeout: float | None
    when: str = ""  # Spark SQL; empty: every row with a key is asked for


@dataclass(frozen=True)
class Declared(Facts):
    """An enrichment as declared."""

    enrichment: str
    reference: str  # module:name
    description: str
    owners: tuple[str, ...]
    runbook: str | None
    input: str
    table: str
    ledger: str | None
    schedule: str | None
    publish_by: str | None
    zone: str
    start: str
    personal: tuple[str, ...]
    lookups: tuple[DeclaredLookup, ...]


@dataclass(frozen=True)
class Listed(Facts):
    """The object of --json."""

    enrichments: tuple[Declared, ...]


def describe(found: Discovered) -> Declared:
    """Return what users see of a declaration, without secrets and addresses of services."""
    enrichment = found.enrichment
    return Declared(
        enrichment.name, found.reference, enrichment.description, tuple(enrichment.owners),
        enrichment.runbook, enrichment.facts().input_path, enrichment.output.path,
        enrichment.facts().ledger, enrichment.schedule, enrichment.publish_by, enrichment.zone,
        enrichment.start, tuple(enrichment.pii),
        tuple(
            DeclaredLookup(
                lookup.name, lookup.kind, lookup.service_name, dict(lookup.keys), lookup.returns,
                lookup.timeout, lookup.when or "",
            )
            for lookup in (lookup.as_written for lookup in enrichment.lookups)
        ),
    )  # fmt: skip


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_package(parser)
    add_json_object(parser)


def _run(options: argparse.Namespace) -> int:
    found = [describe(discovered) for discovered in discover(options.package)]
    lines = [
        (description.enrichment, description.reference.partition(":")[0],
         listed([lookup.lookup for lookup in description.lookups], 3), description.schedule or "",
         description.table)
        for description in found
    ]  # fmt: skip
    nothing = f"{options.package} has no Enrichment."
    shown = aligned([HEADINGS, *lines]) if lines else [nothing]
    return print_found(options, Listed(tuple(found)), shown)


COMMAND = Command(_add_arguments, _run)
