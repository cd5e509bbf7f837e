"""Writes a package's enrichments as JSON, for an orchestrator that does not load declarations."""

import datetime as dt
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jobs.declare.finding.discovery import Discovered
from jobs.declare.values.table_conflicts import refuse_conflicts
from jobs.declare.vendor_jobs import JobLookup
from jobs.storage.urls import is_url
from orchestration.common.day_results import FORMAT
from orchestration.common.deadlines import AGAIN_AFTER
from orchestration.common.report_server import report_url


def manifest(package: str, found: Sequence[Discovered]) -> dict[str, Any]:
    """Return all enrichments of a package by name, as its command needs them. Raises
    DeclarationError for a conflict.
    """
    refuse_conflicts(found)
    return {
        "format": FORMAT,
        "tidegate": version("tidegate"),
        "made_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "folder": str(Path.cwd()),
        "python": sys.executable,
        "package": package,
        "again_after_s": AGAIN_AFTER.total_seconds(),
        "enrichments": [
            _entry(discovered)
            for discovered in sorted(found, key=lambda discovered: discovered.enrichment.name)
        ],
    }


def _entry(discovered: Discovered) -> dict[str, Any]:
    enrichment = discovered.enrichment
    tables = {table.what: _address(table.path) for table in enrichment.tables()}
    looks = [
        lookup.poll_every.total_seconds()
        for lookup in enrichment.lookups
        if isinstance(lookup, JobLookup)
    ]
    has_dead_letters = any(lookup.dead_letters for lookup in enrichment.facts().lookups)
    return {
        "name": enrichment.name,
        "reference": discovered.reference,
        "description": enrichment.description,
        "owners": list(enrichment.owners),
        "runbook": enrichment.runbook,
        "report": report_url(enrichment.name),
        "schedule": enrichment.schedule,
        "publish_by": enrichment.publish_by,
        "zone": enrichment.zone,
        "every": enrichment.input.every,
        "start": enrichment.start,
        "end": enrichment.end,
        "modes": ["nightly"]
        if enrichment.ledger is None
        else ["nightly", "replay", "remap", "refresh"],
        "lookups": [lookup.name for lookup in enrichment.lookups],
        "poll_every_s": min(looks) if looks else None,
        "input": f"iceberg://{table}"
        if (table := enrichment.input.table)
        else _address(enrichment.input.path),
        "table": tables["table"],
        "dead_letters": tables["dead letters"] if has_dead_letters else None,
        "summaries": {
            summary.name: tables[f"summary {summary.name}"] for summary in enrichment.summaries
        },
    }


def _address(path: str) -> str:
    return path if is_url(path) else Path(path).absolute().as_uri()
