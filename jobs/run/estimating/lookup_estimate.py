"""Estimates the calls of a lookup, their cost and their time."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from jobs.declare.lookup import Lookup
from jobs.declare.values.prices import cost_of, in_force, price_text, reported_units
from jobs.declare.vendor_jobs import JobLookup
from jobs.ledger.plan import LedgerPlan
from jobs.run.estimating.figures import LookupEstimate
from jobs.run.estimating.forecast import forecast_cost
from jobs.run.estimating.key_counts import KeyCounts
from jobs.run.estimating.last_run import LastRun
from jobs.run.estimating.planned_keys import CALLS
from jobs.run.estimating.requests_of_calls import count_requests
from jobs.run.keys.key_texts import ROWS, TEXT
from jobs.schema.records import PriceFacts

NO_CACHE, NO_LEDGER = "cache=None: every row is called for", "no ledger: every day asks its keys"


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
    """Return the estimate of a lookup.

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
    more_calls = NO_CACHE if lookup.cache is None else NO_LEDGER
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
    later = [(price.since, price) for price in lookup.prices if price.since and price.since > today]
    if not later:
        return ""
    since, price = min(later, key=lambda pair: pair[0])
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
    """Add the cost, if it is known: from stored answers, from the prices, or as the last run's."""
    if plan is not None and lookup.bill and lookup.batch_size == 1 and prices:
        forecast = forecast_cost(lookup, plan.open_folder(), prices, called[TEXT], called[CALLS])
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
    """Add the calls for rows whose key is made of an answer that is not stored."""
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
