"""What Dagster shows of a day: metadata keys and values from the record of its run."""

from typing import Any

from jobs import records
from jobs.schema import OUTCOMES, DayRecord, DeclaredFacts, LookupFigures
from orchestration import columns
from orchestration.declared import Declared
from orchestration.report_server import served


def report_url(enrichment: str, day: str) -> str:
    return served(f"reports/{enrichment}/{day}/index.html")


def log_url(enrichment: str, day: str, run_id: str) -> str:
    return served(f"runs/{enrichment}/{day}/{run_id}.spark.log")


def figures_metadata(record: DayRecord) -> dict[str, Any]:
    """Counts and times of a run: integers and floats, so that Dagster plots them over the days."""
    figures = record.figures
    metadata: dict[str, Any] = {
        "rows_in": figures.rows_in,
        "rows_out": figures.rows_out,
        "rows_late": figures.rows_late,
        "job_s": round(figures.job_s, 3),
        "dead_letters": record.dead_letters,
        "declaration": record.facts.declared.fingerprint,
        "declaration_changed": _declaration_changed(record),
    }
    for lookup in figures.lookups:
        metadata |= {f"{lookup.name}/{key}": value for key, value in _lookup_metadata(lookup).items()}
    return metadata


def _declaration_changed(record: DayRecord) -> str:
    """Whether the run before this one, of whatever day, had another declaration."""
    others = [
        one for one in records.latest(record.facts.declared.enrichment) if one.facts.run_id != record.facts.run_id
    ]
    before = max(others, key=lambda one: one.facts.started_at, default=None)
    if before is None:
        return "first run"
    return "no" if before.facts.declared.fingerprint == record.facts.declared.fingerprint else "yes"


def _lookup_metadata(lookup: LookupFigures) -> dict[str, Any]:
    metadata: dict[str, Any] = {f"rows_{outcome}": lookup.outcomes.get(outcome, 0) for outcome in OUTCOMES}
    metadata |= {"requests_sent": lookup.calls, "requests_retried": lookup.retried}
    metadata |= {"answers_from_ledger": lookup.from_ledger, "answers_shared": lookup.shared}
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
        metadata |= {"units_billed": lookup.billed.units, "units_lost": lookup.billed.lost}
        metadata |= {f"cost_{lookup.billed.currency.lower()}": float(lookup.billed.cost)}
    for key in ("latency_p50_ms", "latency_p99_ms"):
        if getattr(lookup, key) is not None:
            metadata[key] = round(getattr(lookup, key), 3)
    return metadata


def published_metadata(declared: Declared, record: DayRecord) -> dict[str, Any]:
    """What is true only of a published day: where it is, which version, its columns and where they come from."""
    from deltalake import DeltaTable

    table = DeltaTable(declared.facts.table)
    types = [(column.name, str(column.type.to_json()).strip('"')) for column in table.schema().fields]
    return {
        "published_version": record.published_version,
        "dagster/row_count": record.figures.rows_out,
        "dagster/uri": table.table_uri,
        "dagster/table_name": declared.name,
        "dagster/column_schema": columns.described(declared, types),
        "dagster/column_lineage": columns.lineage(declared, record.facts.input_columns),
    }


def readers_see(declared: DeclaredFacts, day: str) -> str:
    """What a reader of the published table finds of the day at this moment."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(declared.table):
        return "nothing: no day is published yet"
    table = DeltaTable(declared.table)
    days = sorted(partition[declared.partition] for partition in table.partitions())
    if day in days:
        return f"{day}, version {table.version()}, complete"
    newest = f"newest day {days[-1]}, version {table.version()}, complete" if days else "no day at all"
    return f"nothing of {day}; {newest}"
