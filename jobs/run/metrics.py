"""What happened on a day, counted on the written files by one Spark job."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it

from jobs import schema
from jobs.declare.prices import SENT, cost_of, in_force
from jobs.schema import Billed, DayMetrics, DeclaredFacts, LookupFacts, LookupMetrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def count(written: DataFrame, declared: DeclaredFacts, *, rows_in: int, job_s: float) -> DayMetrics:
    """The figures of the day whose rows are `written`."""
    wanted = [F.count("*").alias("rows"), F.count_if(F.col(schema.LATE)).alias("late")]
    for lookup in declared.lookups:
        wanted += _aggregates(lookup)
    found = written.agg(*wanted).first()
    assert found is not None  # an aggregate without a group always gives one row
    saved = {lookup.name: _saved(lookup, written) for lookup in declared.lookups if found[f"{lookup.name}.from_ledger"]}
    return DayMetrics(
        rows_in=rows_in,
        rows_out=found["rows"],
        rows_late=found["late"],
        lookups=tuple(
            replace(
                _figures(lookup, found, saved.get(lookup.name, "0")),
                keys_called=_keys_called(lookup, written) if found[f"{lookup.name}.rows_called"] else None,
            )
            for lookup in declared.lookups
        ),
        job_s=round(job_s, 3),
    )


def _aggregates(lookup: LookupFacts) -> list[Column]:
    name = lookup.name
    columns = (schema.status, schema.source, schema.attempts, schema.latency_ms)
    status, source, attempts, latency = (F.col(column(name)) for column in columns)
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
        F.count_if(F.size(attempts) > 0).alias(f"{name}.rows_called"),
        F.count_if(source == "ledger").alias(f"{name}.from_ledger"),
        F.count_if(source == "shared").alias(f"{name}.shared"),
        F.count_if(status.isin("ok", "miss") & (source == "call")).alias(f"{name}.answered"),
        F.sum(F.size(F.filter(attempts, lambda one: one["throttled"]))).alias(f"{name}.throttled"),
        F.unix_micros(F.min(schema.published_answered_at(name))).alias(f"{name}.oldest"),
    ]


def _keys_called(lookup: LookupFacts, written: DataFrame) -> int | None:
    """Distinct keys that were asked; by their hashes, so that few bytes are shuffled."""
    if not lookup.asks_once or schema.key(lookup.name) not in written.columns:
        return None
    called = written.where(F.size(schema.attempts(lookup.name)) > 0)
    return called.select(F.xxhash64(schema.key(lookup.name))).distinct().count()


def _saved(lookup: LookupFacts, written: DataFrame) -> str:
    """What the answers from the ledger would have cost at today's price, each key asked once."""
    if not lookup.prices or lookup.prices[0].unit not in SENT:
        return "0"
    known = written.where(F.col(schema.source(lookup.name)) == "ledger")
    keys = known.select(schema.key(lookup.name)).distinct().count()
    price = in_force(lookup.prices, dt.datetime.now(dt.UTC).date().isoformat())
    return f"{cost_of(price, -(-keys // _keys_per_unit(lookup))):f}"


def _keys_per_unit(lookup: LookupFacts) -> int:
    return lookup.batch_size if lookup.prices[0].unit == "request" else 1


def _billed(lookup: LookupFacts, saved: str) -> Billed | None:
    """What is not paid again. What is, only those who sent know: a request asks for many keys, a key may need many."""
    if not lookup.prices:
        return None
    first = lookup.prices[0]
    return Billed(0, 0, first.unit, f"{cost_of(first, 0):f}", first.currency, saved)


def _figures(lookup: LookupFacts, found: Row, saved: str) -> LookupMetrics:
    name = lookup.name
    oldest = found[f"{name}.oldest"]
    p50, p99 = found[f"{name}.latency"] or (None, None)
    return LookupMetrics(
        name=name,
        outcomes={outcome: found[f"{name}.{outcome}"] for outcome in schema.OUTCOMES},
        calls=found[f"{name}.calls"] or 0,
        retried=found[f"{name}.retried"] or 0,
        wall_s=((found[f"{name}.last"] or 0) - (found[f"{name}.first"] or 0)) / 1e6,
        limit_s=(found[f"{name}.spent"] or 0) / 1e6 / lookup.max_attempts_at_once,
        latency_p50_ms=p50,
        latency_p99_ms=p99,
        rows_called=found[f"{name}.rows_called"],
        from_ledger=found[f"{name}.from_ledger"],
        shared=found[f"{name}.shared"],
        answered=found[f"{name}.answered"],
        billed=_billed(lookup, saved),
        throttled=found[f"{name}.throttled"] or 0,
        oldest_answer_at=oldest and dt.datetime.fromtimestamp(oldest / 1e6, dt.UTC).isoformat(timespec="seconds"),
    )
