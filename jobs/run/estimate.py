"""Estimates the calls of days, with reasons, without a call or a write."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from jobs.declare.chains import places_read
from jobs.declare.ledger_settings import FOR_EVER
from jobs.declare.values.fingerprint import plain
from jobs.declare.values.prices import cost_of, in_force, price_text, reported_units
from jobs.declare.vendor_jobs import JobLookup
from jobs.errors import DeclarationError, NoInput
from jobs.ledger.index import write_index
from jobs.ledger.job_files import JobFiles
from jobs.ledger.selection import select
from jobs.ledger.stored_request import read_request, versions, what_changed
from jobs.run.changes.changed_rows import find_changes
from jobs.run.forecast import forecast_cost
from jobs.run.keys.hits import open_folder
from jobs.run.keys.judged_answers import needing_no_call
from jobs.run.keys.key_texts import ROWS, TEXT
from jobs.run.plan.options import RunOptions, plan_ledger
from jobs.run.plan.preflight import check_chained, check_columns, check_event_time, find_day
from jobs.run.planned_keys import CALLS, PlannedKeys
from jobs.run.requests_of_calls import count_requests
from jobs.run.rungs import WaterfallEstimate, forecast_rungs, render_waterfall
from jobs.schema.facts import Facts
from jobs.storage.locked_folders import temporary_folder
from jobs.tables.records import run_records
from jobs.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.declare.enrichment import Enrichment
    from jobs.declare.lookup import Lookup
    from jobs.ledger.plan import LedgerPlan
    from jobs.schema.records import Billed, LookupMetrics, PriceFacts

NO_ANSWER, OUTLIVED, REFRESHED = "no answer stored", "ttl run out", "declared expired"
IN_JOBS = "in an open job"
DAY = 86_400  # s
FAILED = "answered with an error"  # by error_when or required
UNKNOWN_COST = "unknown, as only answers report what a call uses: `tidegate try` finds out,"
BY_ROW, EVERY_DAY = "cache=None: every row is called for", "no ledger: every day asks its keys"


@dataclass(frozen=True)
class LookupEstimate(Facts):
    """The estimate of a lookup. keys = in_ledger + asked, and asked = the sum of `because`."""

    name: str
    rows: int  # with a key
    keys: int  # distinct keys
    in_ledger: int
    oldest_days: float | None  # age of the oldest answer that would be used
    asked: int
    because: tuple[tuple[str, int], ...]  # reason -> keys
    # a call for each of `asked`; without a cache for each of their rows, without a ledger on each
    # day
    calls: int
    calls_because: str  # why calls exceed `asked`; empty if they do not
    requests: int  # of the calls, with full batches; as many per call as on the last run
    batch_size: int
    # decimal; None: no price is declared, or only answers show the units and few are stored
    cost: str | None
    price: str  # such as "0.0040 USD per item"; empty: no price is declared
    later_price: str  # such as "0.0046 USD per item from 2026-12-01"; empty without a later price
    seconds: float | None  # None: unknown, as no earlier run measured a call
    concurrency: int  # calls in flight
    # where the cost is a forecast from stored answers: it is between these 95 times of 100
    cost_between: tuple[str, str] | None = None
    sample: int = 0  # those answers
    # calls that may come on top: rows whose key is made of an answer that is not stored
    unknown: int = 0
    expected: int | None = None  # of them, if the share of rows with a key is that of the last run
    cost_at_most: str | None = None  # with those calls
    # where the cost is that of the last run's calls, the number of these; without an interval
    as_last_run: int = 0
    # calls may send more (pages, a coroutine), and no run has shown how many
    requests_are_least: bool = False


@dataclass(frozen=True)
class Estimate(Facts):
    """The estimate of an enrichment's days; a key of several days counts once."""

    enrichment: str
    days: tuple[str, ...]  # with input
    without_input: tuple[str, ...]
    published: int  # of the days, with the current declaration
    rows: int  # that would be enriched
    ledger: str | None
    lookups: tuple[LookupEstimate, ...]
    # new, changed, expired, gone and kept rows of a table without days
    changes: tuple[tuple[str, int], ...] = ()
    waterfalls: tuple[WaterfallEstimate, ...] = ()  # with enough stored answers

    def render(self) -> str:
        first, last = self.days[0], self.days[-1]
        span = first if first == last else f"{first} .. {last}"
        count = counted(len(self.days), "day")
        lines = [
            (
                f"{self.enrichment}   {span}   {count}, {self.published} published with this "
                "declaration"
            )
        ]
        if self.without_input:
            lines.append(
                "  no input           "
                f"{', '.join(self.without_input[:10])}{' ...' * (len(self.without_input) > 10)}"
            )
        changes = ", ".join(f"{count:,} {name}" for name, count in self.changes)
        lines.append(
            f"  rows               {self.rows:,}{'   because: ' if changes else ''}{changes}"
        )
        for lookup in self.lookups:
            lines += _rendered(lookup, has_ledger=self.ledger is not None)
        for waterfall in self.waterfalls:
            lines += render_waterfall(waterfall)
        return "\n".join(lines)


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
    found, without = {}, []
    for day in days:
        try:
            found[day] = find_day(enrichment, day)
        except NoInput:
            if len(days) == 1:
                raise
            without.append(day)
    if not found:
        raise DeclarationError(
            f"{enrichment.name}: input: none of the {len(days)} days has any; nothing to plan."
        )
    for input_day in found.values():
        check_columns(enrichment, input_day.names)
        check_event_time(enrichment, input_day.schema)
        check_chained(enrichment, input_day)
    changes: Counter[str] = Counter()
    for day, input_day in found.items() if enrichment.input.only_changed else ():
        changed = find_changes(enrichment, input_day, day)
        found[day] = changed.input_day
        changes.update(changed.changes.counts)
    planned = PlannedKeys(enrichment, tuple(found.values()), spark)
    plans = [plan_ledger(enrichment, lookup, "plan", RunOptions()) for lookup in enrichment.lookups]
    last_runs, read = _last_runs(enrichment), places_read(enrichment.lookups)
    lookups = []
    with temporary_folder() as folder:
        for number, (lookup, plan) in enumerate(zip(enrichment.lookups, plans, strict=True)):
            wanted = planned.of(number, has_ledger=plan is not None)

            def keep(
                answers: pa.Table, number: int = number, plan: LedgerPlan | None = plan
            ) -> None:
                if plan is not None and number in read and answers.num_rows:
                    index = str(folder / f"answers-{number}.arrow")
                    write_index(index, answers)
                    planned.answered[number] = replace(plan, index=index)

            last, now_us = last_runs.get(lookup.name), clock() // 1000
            estimated = _estimated(lookup, wanted, plan, last, now_us=now_us, keep=keep)
            unknown = planned.unknown.get(number, 0)
            lookups.append(_with_unknown(estimated, lookup, unknown, last, now_us))
    latest = [record for record in run_records.latest(enrichment.name) if record.facts.day in found]
    published = [
        one
        for one in latest
        if one.state == "published" and one.facts.declared.fingerprint == enrichment.fingerprint
    ]
    return Estimate(
        enrichment=enrichment.name,
        days=tuple(found),
        without_input=tuple(without),
        published=len(published),
        rows=sum(input_day.rows for input_day in found.values()),
        ledger=None if enrichment.ledger is None else enrichment.ledger.path,
        lookups=tuple(lookups),
        changes=tuple(changes.items()),
        waterfalls=forecast_rungs(enrichment, tuple(found.values()), plans, clock() // 1000),
    )


@dataclass(frozen=True)
class _LastRun:
    """A lookup's figures of the last run that called it, and its calls in flight then."""

    figures: LookupMetrics
    concurrency: int


def _estimated(
    lookup: Lookup,
    wanted: pa.Table,
    plan: LedgerPlan | None,
    last: _LastRun | None,
    *,
    now_us: int,
    keep: Callable[[pa.Table], None],
) -> LookupEstimate:
    keys = wanted.num_rows
    because: dict[str, int] = {}
    in_ledger, in_jobs, oldest = 0, 0, None
    missing = wanted
    if plan is not None:
        selected = select(open_folder(plan), wanted[TEXT], now_us=now_us, ttl=plan.ttl)
        answers, failed = needing_no_call(lookup, plan, selected.answers, now_us)
        keep(answers)
        in_ledger = answers.num_rows
        missing = _without(wanted, answers["key"].combine_chunks())
        oldest = pc.min(answers["answered_at"].cast(pa.int64())).as_py()
        if isinstance(lookup, JobLookup):
            missing = _without(missing, JobFiles(open_folder(plan)).open_keys())
            in_jobs = keys - in_ledger - missing.num_rows
        no_answer = {OUTLIVED: selected.expired, REFRESHED: selected.refreshed, FAILED: failed}
        never_asked = missing
        for reason, texts in no_answer.items():
            before, never_asked = never_asked, _without(never_asked, texts)
            because[reason] = before.num_rows - never_asked.num_rows
        because |= _asked_before(lookup, plan, never_asked[TEXT], now_us)
    asked = keys - in_ledger
    because[NO_ANSWER] = asked - in_jobs - sum(because.values())
    because[IN_JOBS] = in_jobs
    calls = pc.sum(missing[CALLS]).as_py() or 0
    each = lookup.max_items if isinstance(lookup, JobLookup) else lookup.batch_size
    sent = count_requests(lookup, calls, None if last is None else last.figures)
    calls_because = BY_ROW if lookup.cache is None else EVERY_DAY
    today = _utc_day(now_us)
    prices = in_force(lookup.prices, today)
    later = min(
        (one for one in lookup.prices if (one.since or "") > today),
        key=lambda one: one.since or "",
        default=None,
    )
    estimated = LookupEstimate(
        name=lookup.name,
        rows=pc.sum(wanted[ROWS]).as_py() or 0,
        keys=keys,
        in_ledger=in_ledger,
        # another machine's clock may be ahead
        oldest_days=None if oldest is None else max(0, now_us - oldest) / 86_400e6,
        asked=asked,
        because=tuple((reason, count) for reason, count in because.items() if count),
        calls=calls,
        calls_because="" if calls + in_jobs == asked else calls_because,
        requests=sent.requests,
        requests_are_least=sent.are_least,
        batch_size=each,
        cost=None,
        price=price_text(prices),
        later_price=f"{price_text([later])} from {later.since}" if later is not None else "",
        seconds=_seconds(lookup, calls, last),
        concurrency=lookup.concurrency,
    )
    return _with_cost(estimated, lookup, prices, missing, plan=plan, last=last)


def _with_cost(
    estimated: LookupEstimate,
    lookup: Lookup,
    prices: Sequence[PriceFacts],
    missing: pa.Table,
    *,
    plan: LedgerPlan | None,
    last: _LastRun | None,
) -> LookupEstimate:
    """Adds the cost, if it is known: from stored answers, from the prices, or as the last run's."""
    if plan is not None and lookup.bill and lookup.batch_size == 1 and prices:
        forecast = forecast_cost(lookup, open_folder(plan), prices, missing[TEXT], missing[CALLS])
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
    if prices and last is not None and last.figures.billed is not None:
        cost = _cost_as_last_run(last.figures, last.figures.billed, prices, estimated.calls)
        return replace(estimated, cost=cost, as_last_run=last.figures.rows_called)
    return estimated


def _with_unknown(
    estimated: LookupEstimate,
    lookup: Lookup,
    unknown: int,
    last: _LastRun | None,
    now_us: int,
) -> LookupEstimate:
    if not unknown:
        return estimated
    expected, seconds = None, None
    if last is not None:
        outcomes = last.figures.outcomes
        rows = sum(outcomes.values())
        expected = round(unknown * (rows - outcomes.get("skipped", 0)) / rows)
        seconds = _seconds(lookup, estimated.calls + expected, last)
    calls = estimated.calls + unknown
    sent = count_requests(lookup, calls, None if last is None else last.figures)
    units = {"item": calls, "request": sent.requests}
    is_exact = estimated.cost is not None and not (estimated.cost_between or estimated.as_last_run)
    most = cost_of(in_force(lookup.prices, _utc_day(now_us)), units)
    return replace(
        estimated,
        unknown=unknown,
        expected=expected,
        seconds=seconds,
        cost_at_most=f"{most:f}" if is_exact else None,
    )


def _cost_as_last_run(
    last: LookupMetrics, billed: Billed, prices: Sequence[PriceFacts], calls: int
) -> str:
    """Returns what the calls cost if they use as much as the last run's."""
    cost = cost_of(prices, {part.unit: part.units for part in billed.parts})
    return f"{cost * calls / last.rows_called:.6f}"


def _utc_day(now_us: int) -> str:
    return datetime.fromtimestamp(now_us / 1e6, UTC).date().isoformat()


def _without(wanted: pa.Table, known: pa.Array) -> pa.Table:
    return wanted.filter(pc.invert(pc.is_in(wanted[TEXT], value_set=known)))


def _asked_before(
    lookup: Lookup, plan: LedgerPlan, texts: pa.ChunkedArray, now_us: int
) -> dict[str, int]:
    """Counts keys that only an earlier request was called for, by the change since then."""
    because: dict[str, int] = {}
    now = plain(lookup.request_facts())
    folder = open_folder(plan)
    for sibling in (found for found in versions(folder) if found.fingerprint != folder.fingerprint):
        if not len(texts):
            break
        known = select(sibling, texts, now_us=now_us, ttl=FOR_EVER).answers["key"]
        if len(known):
            reason = what_changed(read_request(sibling), now)
            because[reason] = because.get(reason, 0) + len(known)
            texts = texts.filter(pc.invert(pc.is_in(texts, value_set=known.combine_chunks())))
    return because


def _last_runs(enrichment: Enrichment) -> dict[str, _LastRun]:
    found: dict[str, _LastRun] = {}
    for record in sorted(run_records.load(enrichment.name), key=lambda record: record.order):
        pairs = zip(record.figures.lookups, record.facts.declared.lookups, strict=True)
        found |= {
            figures.name: _LastRun(figures, declared.max_concurrency)
            for figures, declared in pairs
            if figures.calls and figures.rows_called
        }
    return found


def _seconds(lookup: Lookup, calls: int, last: _LastRun | None) -> float | None:
    if calls == 0:
        return 0.0
    if last is None:
        return None
    spent = last.figures.limit_s * last.concurrency
    return spent / last.figures.rows_called * calls / lookup.facts().max_concurrency


def _rendered(lookup: LookupEstimate, *, has_ledger: bool) -> list[str]:
    age = lookup.oldest_days
    old = "" if age is None else f"{age:,.1f} days" if age >= 1 else _time(age * DAY)
    oldest = old and f"   oldest answer {old} old"
    because = ", ".join(f"{reason} {count:,}" for reason, count in lookup.because)
    each = f"   {lookup.batch_size:,} items each" if lookup.batch_size > 1 else ""
    at = f"{counted(lookup.concurrency, 'call')} in flight"
    least = "at least " if lookup.requests_are_least else ""
    several = "   as many per call as on the last run" if lookup.requests > lookup.calls else ""
    took = (
        "unknown: no earlier run measured a call"
        if lookup.seconds is None
        else f"about {_time(lookup.seconds)} with {at}"
    )
    lines = [
        f"{lookup.name}",
        f"  distinct keys      {lookup.keys:,} of {counted(lookup.rows, 'row')}",
        f"    in the ledger    {lookup.in_ledger:,}{oldest}"
        if has_ledger
        else "    no ledger: every run asks all",
        f"    asked anew       {lookup.asked:,}{'   because: ' if because else ''}{because}",
        *(
            [f"    calls            {lookup.calls:,}   {lookup.calls_because}"]
            if lookup.calls_because
            else ()
        ),
        f"  requests           {least}{lookup.requests:,}{each}{several}",
        f"  time               {took}",
    ]
    if lookup.unknown:
        more = f"at most {lookup.calls + lookup.unknown:,}"
        rows = f"{counted(lookup.unknown, 'row has', 'rows have')}"
        about = "" if lookup.expected is None else f"; about {lookup.expected:,} as on the last run"
        text = f"{more}   {rows} a key made of answers not stored{about}"
        lines.insert(-1, f"  with unknown keys  {text}")
    if lookup.cost is not None:
        later = f"; {lookup.later_price}" if lookup.later_price else ""
        at_price = f"at {lookup.price}" if lookup.price else "as no price is in force today"
        currency = lookup.price.split(" ")[1] if lookup.price else ""
        between = ""
        if lookup.cost_between is not None:
            between = (
                f", {' to '.join(lookup.cost_between)} with 95 %, from "
                f"{counted(lookup.sample, 'stored answer')},"
            )
        if lookup.as_last_run:
            between = f", if they use as much as the {lookup.as_last_run:,} of the last run,"
        most = "" if lookup.cost_at_most is None else f" to {lookup.cost_at_most}"
        cost = f"{least}{lookup.cost}{most} {currency}".rstrip()
        lines.insert(-1, f"  cost               {cost}{between} {at_price}{later}")
    elif lookup.price:
        lines.insert(-1, f"  cost               {UNKNOWN_COST} at {lookup.price}")
    return lines


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else str(timedelta(seconds=round(seconds)))
