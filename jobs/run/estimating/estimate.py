"""Estimates the calls of days, with reasons, without a call or a write."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from jobs.declare.chains import places_read
from jobs.declare.lookup import Lookup
from jobs.declare.values.calendar import name_unit
from jobs.declare.values.prices import cost_of, in_force, price_text, reported_units
from jobs.declare.vendor_jobs import JobLookup
from jobs.errors import DeclarationError, NoInput
from jobs.ledger.index import write_index
from jobs.ledger.plan import LedgerPlan
from jobs.run.changes.changed_rows import find_changes
from jobs.run.estimating.figures import Estimate, LookupEstimate
from jobs.run.estimating.forecast import forecast_cost
from jobs.run.estimating.key_counts import KeyCounts, count_keys
from jobs.run.estimating.last_run import LastRun, last_runs
from jobs.run.estimating.planned_keys import CALLS, PlannedKeys
from jobs.run.estimating.requests_of_calls import count_requests
from jobs.run.estimating.rungs import forecast_rungs
from jobs.run.keys.hits import open_folder
from jobs.run.keys.key_texts import ROWS, TEXT
from jobs.run.plan.column_checks import check_chained, check_columns, check_event_time
from jobs.run.plan.options import RunOptions, plan_ledger
from jobs.run.plan.preflight import find_day
from jobs.schema.records import PriceFacts
from jobs.storage.locked_folders import temporary_folder
from jobs.tables.records import run_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.declare.enrichment import Enrichment
    from jobs.input.day import InputDay
    from jobs.ledger.plan import LedgerPlan

BY_ROW, EVERY_DAY = "cache=None: every row is called for", "no ledger: every day asks its keys"


def estimate(
    spark: Callable[[], SparkSession],
    enrichment: Enrichment,
    days: Sequence[str],
    clock: Callable[[], int] = time.time_ns,
) -> Estimate:
    """Counts the calls of these days without making any.

    Days without input are left out and named; it is an error if no day has input.

    Args:
        spark: See PlannedKeys.
        enrichment: The enrichment.
        days: The days.
        clock: Returns the time in ns since the epoch.

    Raises:
        DeclarationError: No day has input, or the declaration does not fit the input.
        LedgerError: The ledger cannot be read.
    """
    found = _find_days(enrichment, days)
    changes: Counter[str] = Counter()
    for day, input_day in found.items() if enrichment.input.only_changed else ():
        changed = find_changes(enrichment, input_day, day)
        found[day] = changed.input_day
        changes.update(changed.changes.counts)
    inputs = tuple(found.values())
    plans = [plan_ledger(enrichment, lookup, "plan", RunOptions()) for lookup in enrichment.lookups]
    return Estimate(
        enrichment=enrichment.name,
        days=tuple(found),
        without_input=tuple(day for day in days if day not in found),
        lookups=tuple(_lookups(PlannedKeys(enrichment, inputs, spark), plans, clock)),
        published=_count_published(enrichment, found),
        rows=sum(input_day.rows for input_day in inputs),
        ledger=None if enrichment.ledger is None else enrichment.ledger.path,
        changes=tuple(changes.items()),
        waterfalls=forecast_rungs(enrichment, inputs, plans, clock() // 1000),
    )


def _find_days(enrichment: Enrichment, days: Sequence[str]) -> dict[str, InputDay]:
    """Returns the days that have input, which fits the declaration."""
    found = {}
    for day in days:
        try:
            found[day] = find_day(enrichment, day)
        except NoInput:
            if len(days) == 1:
                raise
    if not found:
        raise DeclarationError(
            f"{enrichment.name}: input: none of the {len(days)} {name_unit(days)}s has any; "
            "nothing to plan."
        )
    for input_day in found.values():
        check_columns(enrichment, input_day.names)
        check_event_time(enrichment, input_day.schema)
        check_chained(enrichment, input_day)
    return found


def _lookups(
    planned: PlannedKeys, plans: Sequence[LedgerPlan | None], clock: Callable[[], int]
) -> Iterator[LookupEstimate]:
    """Yields the estimate of each lookup. Later keys may be made of earlier lookups' answers."""
    lookups = planned.enrichment.lookups
    runs, read = last_runs(planned.enrichment.name), places_read(lookups)
    with temporary_folder() as folder:
        for number, (lookup, plan) in enumerate(zip(lookups, plans, strict=True)):
            wanted = planned.of(number, has_ledger=plan is not None)
            now_us = clock() // 1000
            counts = count_keys(lookup, wanted, plan, now_us)
            if plan is not None and number in read and counts.answers.num_rows:
                index = str(folder / f"answers-{number}.arrow")
                write_index(index, counts.answers)
                planned.answered[number] = replace(plan, index=index)
            yield estimate_lookup(
                lookup, wanted, counts, plan, runs.get(lookup.name),
                unknown=planned.unknown.get(number, 0), now_us=now_us,
            )  # fmt: skip


def _count_published(enrichment: Enrichment, days: dict[str, InputDay]) -> int:
    """Counts the days that are published with the current declaration."""
    return sum(
        record.state == "published" and record.facts.declared.fingerprint == enrichment.fingerprint
        for record in run_records.latest(enrichment.name)
        if record.facts.day in days
    )


def estimate_lookup(
    lookup: Lookup,
    wanted: pa.Table,
    counts: KeyCounts,
    plan: LedgerPlan | None,
    last: LastRun | None,
    *,
    unknown: int,
    now_us: int,
) -> LookupEstimate:
    """Returns the estimate of a lookup.

    Args:
        lookup: The lookup.
        wanted: Its keys, as `PlannedKeys.of` returns them.
        counts: What becomes of them.
        plan: Its ledger.
        last: The last run that called it.
        unknown: The rows whose key is made of an answer that is not stored.
        now_us: µs since the epoch.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    calls = pc.sum(counts.called[CALLS]).as_py() or 0
    each = lookup.max_items if isinstance(lookup, JobLookup) else lookup.batch_size
    sent = count_requests(lookup, calls, None if last is None else last.figures)
    keys, in_ledger = wanted.num_rows, counts.answers.num_rows
    today = datetime.fromtimestamp(now_us / 1e6, UTC).date().isoformat()
    prices = in_force(lookup.prices, today)
    more_calls = BY_ROW if lookup.cache is None else EVERY_DAY
    estimated = LookupEstimate(
        name=lookup.name,
        rows=pc.sum(wanted[ROWS]).as_py() or 0,
        keys=keys,
        in_ledger=in_ledger,
        oldest_days=_oldest_days(counts.answers, now_us),
        asked=keys - in_ledger,
        because=tuple((reason, count) for reason, count in counts.because.items() if count),
        calls=calls,
        calls_because="" if calls == counts.called.num_rows else more_calls,
        requests=sent.requests,
        requests_are_least=sent.are_least,
        batch_size=each,
        cost=None,
        price=price_text(prices),
        later_price=_later_price(lookup, today),
        seconds=_seconds(lookup, calls, last),
        concurrency=lookup.concurrency,
    )
    estimated = _with_cost(estimated, lookup, prices, counts.called, plan=plan, last=last)
    return _with_unknown(estimated, lookup, prices, unknown, last) if unknown else estimated


def _oldest_days(answers: pa.Table, now_us: int) -> float | None:
    oldest = pc.min(answers["answered_at"].cast(pa.int64())).as_py()
    # another machine's clock may be ahead
    return None if oldest is None else max(0, now_us - oldest) / 86_400e6


def _later_price(lookup: Lookup, today: str) -> str:
    later = [(one.since, one) for one in lookup.prices if one.since and one.since > today]
    if not later:
        return ""
    since, price = min(later, key=lambda one: one[0])
    return f"{price_text([price])} from {since}"


def _seconds(lookup: Lookup, calls: int, last: LastRun | None) -> float | None:
    if calls == 0:
        return 0.0
    return None if last is None else last.seconds(lookup, calls)


def _with_cost(
    estimated: LookupEstimate,
    lookup: Lookup,
    prices: Sequence[PriceFacts],
    called: pa.Table,
    *,
    plan: LedgerPlan | None,
    last: LastRun | None,
) -> LookupEstimate:
    """Adds the cost, if it is known: from stored answers, from the prices, or as the last run's."""
    if plan is not None and lookup.bill and lookup.batch_size == 1 and prices:
        forecast = forecast_cost(lookup, open_folder(plan), prices, called[TEXT], called[CALLS])
        if forecast is not None:
            return replace(
                estimated,
                cost=f"{forecast.cost:.6f}",
                cost_between=(f"{forecast.low:.6f}", f"{forecast.high:.6f}"),
                sample=forecast.sample,
            )
    if lookup.prices and not reported_units(lookup.prices):
        exact = cost_of(prices, {"item": estimated.calls, "request": estimated.requests})
        return replace(estimated, cost=f"{exact:f}")
    if prices and last is not None and (cost := last.cost(prices, estimated.calls)) is not None:
        return replace(estimated, cost=cost, as_last_run=last.figures.rows_called)
    return estimated


def _with_unknown(
    estimated: LookupEstimate,
    lookup: Lookup,
    prices: Sequence[PriceFacts],
    unknown: int,
    last: LastRun | None,
) -> LookupEstimate:
    """Adds the calls for rows whose key is made of an answer that is not stored."""
    expected, seconds = None, None
    if last is not None:
        expected = last.with_key(unknown)
        seconds = _seconds(lookup, estimated.calls + expected, last)
    calls = estimated.calls + unknown
    is_exact = estimated.cost is not None and not (estimated.cost_between or estimated.as_last_run)
    sent = count_requests(lookup, calls, None if last is None else last.figures)
    most = cost_of(prices, {"item": calls, "request": sent.requests})
    return replace(
        estimated,
        unknown=unknown,
        expected=expected,
        seconds=seconds,
        cost_at_most=f"{most:f}" if is_exact else None,
    )
