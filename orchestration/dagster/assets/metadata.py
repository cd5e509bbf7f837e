"""Makes the metadata that Dagster shows of a day from the record of its run."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import dagster as dg

from jobs.errors import TidegateError
from jobs.schema.columns import OUTCOMES
from jobs.schema.records import DayRecord, DeclaredFacts, LookupMetrics
from jobs.tables.records import run_records
from jobs.wording import listed
from orchestration.common.report_server import served
from orchestration.dagster.assets import columns
from orchestration.dagster.declared import Declared


def report_url(enrichment: str, day: str) -> str:
    return served(f"reports/{enrichment}/{day}/index.html")


def log_url(enrichment: str, day: str, run_id: str) -> str:
    return served(f"runs/{enrichment}/{day}/{run_id}.spark.log")


def runbook(declared: Declared) -> dict[str, dg.MetadataValue]:
    """Returns the link to the declared runbook; empty without a runbook."""
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
    """Returns counts and times of a run as integers and floats, which Dagster plots over the days.

    latest: the last record of every day, from a caller that has already read them: there may be
    hundreds.
    """
    figures = record.figures
    metadata: dict[str, Any] = {
        "rows_in": figures.rows_in,
        "rows_out": figures.rows_out,
        "rows_late": figures.rows_late,
        "job_s": round(figures.job_s, 3),
        "dead_letters": record.dead_letters,
        "checks": checks_in_words(record),
        "declaration": _declaration(record.facts.declared),
        "declaration_changed": _declaration_changed(record, latest),
    }
    if record.facts.changes is not None:
        metadata |= {f"rows_{name}": count for name, count in record.facts.changes.counts.items()}
    if record.facts.unread:
        metadata["not_read"] = listed(record.facts.unread)
    if record.published_version is not None:
        metadata["published_version"] = record.published_version
    if figures.ledger_bytes is not None:
        metadata["ledger_bytes"] = figures.ledger_bytes
    for lookup in figures.lookups:
        metadata |= {
            f"{lookup.name}/{key}": value for key, value in _lookup_metadata(lookup).items()
        }
        if lookup.from_ledger and figures.job_s > 0:
            metadata[f"{lookup.name}/ledger_rows_per_s"] = round(
                lookup.from_ledger / figures.job_s, 1
            )
        if lookup.oldest_answer_at is not None and record.facts.finished_at:
            metadata[f"{lookup.name}/oldest_answer_days"] = _days(
                lookup.oldest_answer_at, record.facts.finished_at
            )
    return metadata


def checks_in_words(record: DayRecord) -> str:
    """Returns text such as `14 passed, not run: input_day_complete`."""
    passed = sum(verdict.status == "passed" for verdict in record.verdicts)
    others = {"failed": "red", "not_run": "not run"}
    named = [
        f"{word}: {', '.join(names)}"
        for status, word in others.items()
        if (names := [verdict.check for verdict in record.verdicts if verdict.status == status])
    ]
    return ", ".join([f"{passed} passed", *named])


def _days(since: str, until: str) -> float:
    """Returns the days between two times; 0 for an answer of the run itself: Spark keeps
    microseconds, a record's times fewer digits.
    """
    seconds = (dt.datetime.fromisoformat(until) - dt.datetime.fromisoformat(since)).total_seconds()
    return max(0.0, round(seconds / 86_400, 3))


def _declaration(declared: DeclaredFacts) -> str:
    versions = ", ".join(f"{lookup.name} v{lookup.version}" for lookup in declared.lookups)
    return f"{versions} ({declared.fingerprint})"


def _declaration_changed(record: DayRecord, latest: Sequence[DayRecord] | None) -> str:
    """Returns the fields that are declared differently from the run before, of whatever day."""
    known = run_records.latest(record.facts.declared.enrichment) if latest is None else latest
    earlier = [one for one in known if one.facts.started_at < record.facts.started_at]
    before = max(earlier, key=lambda one: one.facts.started_at, default=None)
    if before is None:
        return "first run"
    old, new = before.facts.declared, record.facts.declared
    if old.fingerprint == new.fingerprint:
        return "no"
    changed = sorted(
        name
        for name in old.fields.keys() | new.fields.keys()
        if old.fields.get(name) != new.fields.get(name)
    )
    return ", ".join(changed) if old.fields and changed else "yes"


def _lookup_metadata(lookup: LookupMetrics) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        f"rows_{outcome}": lookup.outcomes.get(outcome, 0) for outcome in OUTCOMES
    }
    # without a count of requests, as for a function, an attempt is a request
    sent = lookup.requests
    metadata |= {
        "requests_sent": lookup.calls if sent is None else sent.sent,
        "requests_retried": lookup.retried if sent is None else sent.retried,
        "requests_throttled": lookup.throttled if sent is None else sent.throttled,
    }
    metadata |= {"answers_from_ledger": lookup.from_ledger, "answers_shared": lookup.shared}
    metadata["known_share"] = round(lookup.known_share, 4)
    if lookup.stored is not None:
        metadata["answers_stored"] = lookup.stored
    metadata |= {"wall_s": round(lookup.wall_s, 3), "limit_s": round(lookup.limit_s, 3)}
    if lookup.limit_s > 0:
        metadata["wall_over_limit"] = round(lookup.wall_s / lookup.limit_s, 3)
    if lookup.limited_by:
        closed = round(lookup.throttled_s + lookup.down_s, 3)
        metadata |= {"limited_by": lookup.limited_by, "slots_in_use": round(lookup.slots_in_use, 3)}
        metadata |= {"gate_closed_s": closed}
    if lookup.billed is not None:
        for part in lookup.billed.parts:
            name = f"{part.unit}s" if lookup.billed.by_unit else "units"
            metadata |= {f"{name}_billed": part.units, f"{name}_lost": part.lost}
        currency = lookup.billed.currency.lower()
        metadata |= {
            f"cost_{currency}": float(lookup.billed.cost),
            f"cost_saved_{currency}": float(lookup.billed.saved),
        }
    for key in ("latency_p50_ms", "latency_p99_ms"):
        if getattr(lookup, key) is not None:
            metadata[key] = round(getattr(lookup, key), 3)
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
    """Returns whether readers find a table at this path."""
    from jobs.tables.delta.delta_log import table_at

    try:
        return table_at(path) is not None
    except TidegateError:
        return False


def readers_see(declared: DeclaredFacts, day: str) -> str:
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
