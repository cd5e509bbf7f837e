"""Makes the metadata that Dagster shows of a day from the record of its run."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from jobs.errors import TidegateError
from jobs.schema.columns import OUTCOMES
from jobs.schema.records import DayRecord, DeclaredFacts, LookupMetrics
from jobs.tables.records import run_records
from jobs.wording import listed
from orchestration.dagster.assets import columns
from orchestration.dagster.declared import Declared

# outcomes that have a plot of every day; the others occur in few tables
ALWAYS = {"ok", "miss", "timeout", "error"}


def runbook(declared: Declared) -> dict[str, dg.MetadataValue]:
    """Return the link to the declared runbook; empty without a runbook."""
    url = declared.enrichment.runbook
    return {} if url is None else {"runbook": dg.MetadataValue.url(url)}


def shown(declared: Declared) -> dict[str, str]:
    output = declared.enrichment.output
    return {
        name: place
        for name, place in (("iceberg", output.iceberg), ("parquet", output.parquet))
        if place
    }


def figures_metadata(
    record: DayRecord, latest: Sequence[DayRecord] | None = None
) -> dict[str, Any]:
    """Return what a person compares over the days: Dagster plots its numbers. The report has the
    rest.

    Args:
        record: The record of the day.
        latest: The last record of every day, from a caller that has already read them: there may be
            hundreds.
    """
    figures = record.figures
    metadata: dict[str, Any] = {
        "rows_in": figures.rows_in,
        "dead_letters": record.dead_letters,
        "job_s": round(figures.job_s, 3),
        "checks": checks_in_words(record),
    }
    if record.facts.declared.event_time is not None:
        metadata["rows_late"] = figures.rows_late
    if record.facts.changes is not None:
        metadata |= {f"rows_{name}": count for name, count in record.facts.changes.counts.items()}
    if changed := _declaration_changed(record, latest):
        metadata["declaration_changed"] = changed
    if record.facts.unread:
        metadata["not_read"] = listed(record.facts.unread)
    if record.published_version is not None:
        metadata["published_version"] = record.published_version
    for lookup in figures.lookups:
        metadata |= {
            f"{lookup.name}/{key}": value for key, value in _lookup_metadata(lookup).items()
        }
    return metadata


def checks_in_words(record: DayRecord) -> str:
    """Return text such as `14 passed, not run: input_day_complete`."""
    passed = sum(verdict.status == "passed" for verdict in record.verdicts)
    others = {"failed": "red", "not_run": "not run"}
    named = [
        f"{word}: {', '.join(names)}"
        for status, word in others.items()
        if (names := [verdict.check for verdict in record.verdicts if verdict.status == status])
    ]
    return ", ".join([f"{passed} passed", *named])


def _declaration_changed(record: DayRecord, latest: Sequence[DayRecord] | None) -> str:
    """Return the fields that are declared differently from the run before, of whatever day; empty
    if none is.
    """
    known = run_records.latest(record.facts.declared.enrichment) if latest is None else latest
    earlier = [other for other in known if other.facts.started_at < record.facts.started_at]
    before = max(earlier, key=lambda other: other.facts.started_at, default=None)
    if before is None:
        return ""
    old, new = before.facts.declared, record.facts.declared
    if old.fingerprint == new.fingerprint:
        return ""
    changed = sorted(
        name
        for name in old.fields.keys() | new.fields.keys()
        if old.fields.get(name) != new.fields.get(name)
    )
    return ", ".join(changed) if old.fields and changed else "yes"


def _lookup_metadata(lookup: LookupMetrics) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        f"rows_{outcome}": lookup.outcomes.get(outcome, 0)
        for outcome in OUTCOMES
        if outcome in ALWAYS or lookup.outcomes.get(outcome)
    }
    # without a count of requests, as for a function, an attempt is a request
    sent = lookup.requests
    metadata |= {
        "requests_sent": lookup.calls if sent is None else sent.sent,
        "requests_retried": lookup.retried if sent is None else sent.retried,
        "answers_from_ledger": lookup.from_ledger,
    }
    if lookup.jobs:
        metadata["jobs"] = lookup.jobs
    if lookup.billed is not None:
        metadata[f"cost_{lookup.billed.currency.lower()}"] = float(lookup.billed.cost)
    if lookup.latency_p99_ms is not None:
        metadata["latency_p99_ms"] = round(lookup.latency_p99_ms, 3)
    if lookup.limited_by:
        metadata["limited_by"] = lookup.limited_by
    return metadata


def published_metadata(declared: Declared, record: DayRecord) -> dict[str, Any]:
    from deltalake import DeltaTable

    table = DeltaTable(declared.facts.table)
    types = [
        (column.name, str(column.type.to_json()).strip('"')) for column in table.schema().fields
    ]
    return {
        "dagster/row_count": record.rows_published,
        "dagster/uri": table.table_uri,
        "dagster/table_name": declared.name,
        "dagster/column_schema": columns.described(declared, types),
        "dagster/column_lineage": columns.lineage(declared, record.facts.input_columns),
    }


def is_table(path: str) -> bool:
    """Return whether readers find a table at this path."""
    from jobs.tables.delta.delta_log import table_at

    try:
        return table_at(path) is not None
    except TidegateError:
        return False


def readers_see(declared: DeclaredFacts, day: str) -> str:
    """Return what readers of the published table see of a day, in words."""
    from jobs.tables.delta.delta_log import table_at

    try:
        table = table_at(declared.table)
    except TidegateError as error:  # this error must not hide why the day failed
        return f"not known: {error}"
    if table is None:
        return "nothing: no day is published yet"
    days = sorted(partition[declared.partition] for partition in table.partitions())
    if day in days:
        return f"{day}, version {table.version()}, complete"
    newest = (
        f"newest day {days[-1]}, version {table.version()}, complete" if days else "no day at all"
    )
    return f"nothing of {day}; {newest}"
