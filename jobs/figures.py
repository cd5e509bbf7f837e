"""What happened on a day, counted on the written files by one Spark job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it

from jobs import schema
from jobs.schema import DayFigures, DeclaredFacts, LookupFacts, LookupFigures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def count(written: DataFrame, declared: DeclaredFacts, *, rows_in: int, job_s: float) -> DayFigures:
    """The figures of the day whose rows are `written`."""
    wanted = [F.count("*").alias("rows"), F.count_if(F.col(schema.LATE)).alias("late")]
    for lookup in declared.lookups:
        wanted += _aggregates(lookup.name)
    found = written.agg(*wanted).first()
    assert found is not None  # an aggregate without a group always gives one row
    return DayFigures(
        rows_in=rows_in,
        rows_out=found["rows"],
        rows_late=found["late"],
        lookups=tuple(_figures(lookup, found) for lookup in declared.lookups),
        job_s=round(job_s, 3),
    )


def _aggregates(name: str) -> list[Column]:
    status, attempts, latency = (F.col(column(name)) for column in (schema.status, schema.attempts, schema.latency_ms))
    spent = F.aggregate(attempts, F.lit(0).cast("bigint"), lambda total, one: total + one["end"] - one["start"])
    answered = F.when(status.isin("ok", "miss"), latency)
    return [
        *(F.count_if(status == outcome).alias(f"{name}.{outcome}") for outcome in schema.OUTCOMES),
        F.sum(F.size(attempts)).alias(f"{name}.calls"),
        F.sum(F.greatest(F.size(attempts) - 1, F.lit(0))).alias(f"{name}.retried"),
        F.min(F.array_min(attempts["start"])).alias(f"{name}.first"),
        F.max(F.array_max(attempts["end"])).alias(f"{name}.last"),
        F.sum(spent).alias(f"{name}.spent"),
        F.percentile_approx(answered, F.array(F.lit(0.5), F.lit(0.99)), 10_000).alias(f"{name}.latency"),
    ]


def _figures(lookup: LookupFacts, found: Row) -> LookupFigures:
    name = lookup.name
    p50, p99 = found[f"{name}.latency"] or (None, None)
    return LookupFigures(
        name=name,
        outcomes={outcome: found[f"{name}.{outcome}"] for outcome in schema.OUTCOMES},
        calls=found[f"{name}.calls"] or 0,
        retried=found[f"{name}.retried"] or 0,
        wall_s=((found[f"{name}.last"] or 0) - (found[f"{name}.first"] or 0)) / 1e6,
        limit_s=(found[f"{name}.spent"] or 0) / 1e6 / lookup.max_attempts_at_once,
        latency_p50_ms=p50,
        latency_p99_ms=p99,
    )
