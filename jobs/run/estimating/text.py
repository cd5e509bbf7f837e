"""An estimate as text."""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

from jobs.declare.values.calendar import name_unit
from jobs.run.estimating.figures import Estimate, LookupEstimate, WaterfallEstimate
from jobs.wording import counted, percent

DAY = 86_400  # s
MOST_DAYS = 10  # named
UNKNOWN_COST = "unknown, as only answers report what a call uses: `tidegate try` finds out,"


def estimate_text(estimate: Estimate) -> str:
    """Return what `tidegate plan` prints."""
    return "\n".join(_lines(estimate))


def _lines(estimate: Estimate) -> Iterator[str]:
    first, last, without = estimate.days[0], estimate.days[-1], estimate.without_input
    span = first if first == last else f"{first} .. {last}"
    published = f"{estimate.published} published with this declaration"
    days = counted(len(estimate.days), name_unit(estimate.days))
    yield f"{estimate.enrichment}   {span}   {days}, {published}"
    if without:
        more = " ..." if len(without) > MOST_DAYS else ""
        yield _line("no input", ", ".join(without[:MOST_DAYS]) + more)
    changes = ", ".join(f"{count:,} {name}" for name, count in estimate.changes)
    yield _line("rows", f"{estimate.rows:,}{'   because: ' if changes else ''}{changes}")
    for lookup in estimate.lookups:
        yield from _lookup_lines(lookup, has_ledger=estimate.ledger is not None)
    for waterfall in estimate.waterfalls:
        yield from _waterfall_lines(waterfall)


def _line(name: str, text: str) -> str:
    return f"  {name:<18} {text}"


def _lookup_lines(lookup: LookupEstimate, *, has_ledger: bool) -> Iterator[str]:
    age = lookup.oldest_days
    old = "" if age is None else f"{age:,.1f} days" if age >= 1 else _time(age * DAY)
    oldest = old and f"   oldest answer {old} old"
    because = ", ".join(f"{reason} {count:,}" for reason, count in lookup.because)
    yield lookup.name
    yield _line("distinct keys", f"{lookup.keys:,} of {counted(lookup.rows, 'row')}")
    if has_ledger:
        yield _line("  in the ledger", f"{lookup.in_ledger:,}{oldest}")
    else:
        yield "    no ledger: every run asks all"
    yield _line("  asked anew", f"{lookup.asked:,}{'   because: ' if because else ''}{because}")
    if lookup.calls_because:
        yield _line("  calls", f"{lookup.calls:,}   {lookup.calls_because}")
    each = f"   {lookup.batch_size:,} items each" if lookup.batch_size > 1 else ""
    several = "   as many per call as on the last run" if lookup.requests > lookup.calls else ""
    yield _line("requests", f"{_least(lookup)}{lookup.requests:,}{each}{several}")
    if lookup.unknown:
        rows = counted(lookup.unknown, "row has", "rows have")
        about = "" if lookup.expected is None else f"; about {lookup.expected:,} as on the last run"
        most = f"at most {lookup.calls + lookup.unknown:,}"
        yield _line("with unknown keys", f"{most}   {rows} a key made of answers not stored{about}")
    if lookup.cost is not None:
        yield _line("cost", _cost(lookup, lookup.cost))
    elif lookup.price:
        yield _line("cost", f"{UNKNOWN_COST} at {lookup.price}")
    in_flight = f"{counted(lookup.concurrency, 'call')} in flight"
    yield _line(
        "time",
        "unknown: no earlier run measured a call"
        if lookup.seconds is None
        else f"about {_time(lookup.seconds)} with {in_flight}",
    )


def _cost(lookup: LookupEstimate, cost: str) -> str:
    later = f"; {lookup.later_price}" if lookup.later_price else ""
    at_price = f"at {lookup.price}" if lookup.price else "as no price is in force today"
    currency = lookup.price.split(" ")[1] if lookup.price else ""
    how = ""
    if lookup.cost_between is not None:
        answers = counted(lookup.sample, "stored answer")
        how = f", {' to '.join(lookup.cost_between)} with 95 %, from {answers},"
    if lookup.as_last_run:
        how = f", if they use as much as the {lookup.as_last_run:,} of the last run,"
    most = "" if lookup.cost_at_most is None else f" to {lookup.cost_at_most}"
    return f"{f'{_least(lookup)}{cost}{most} {currency}'.rstrip()}{how} {at_price}{later}"


def _least(lookup: LookupEstimate) -> str:
    return "at least " if lookup.requests_are_least else ""


def _waterfall_lines(waterfall: WaterfallEstimate) -> Iterator[str]:
    currency = waterfall.currency
    yield f"{waterfall.name}   expected, if answers are as the stored ones"
    for rung in waterfall.rungs:
        cost = "" if rung.cost is None else f"   {rung.cost} {currency}".rstrip()
        fill = f"   fills {percent(rung.fill, 1)} of the rows"
        sample = f"   from {rung.sample:,} stored answers"
        yield _line(rung.vendor, f"about {rung.calls:,.0f} calls{cost}{fill}{sample}")
    if waterfall.cheapest:
        declared = sum(Decimal(rung.cost or 0) for rung in waterfall.rungs)
        both = f"{waterfall.cheapest_cost} {currency} instead of {declared} {currency}"
        order = f"{', '.join(waterfall.cheapest)}: {both}"
        yield _line("cheapest order", f"{order}, if their answers do not depend on each other")


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else str(timedelta(seconds=round(seconds)))
