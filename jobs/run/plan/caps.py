"""Caps on a run's attempts, in calls or money."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from jobs.declare.lookup import Lookup
from jobs.declare.values.prices import SENT, Money, cost_of, in_force, read_money
from jobs.errors import DeclarationError
from jobs.ledger.plan import CallCap
from jobs.limits.fair_shares import even_shares
from jobs.run.plan.options import RunOptions
from jobs.schema.records import PriceFacts


def divide_cap(options: RunOptions, lookups: Sequence[Lookup], tasks: int) -> CallCap | None:
    if options.max_cost is not None:
        cap = cap_on_cost(lookups, options.max_cost, tasks)
    elif options.max_calls is not None:
        cap = cap_on_calls(lookups, options.max_calls, tasks)
    else:
        return None
    if options.cap_left is not None:
        cap = replace(cap, parts=(options.cap_left / tasks,) * tasks)
    return cap


def cap_on_calls(lookups: Sequence[Lookup], most: int, tasks: int) -> CallCap:
    parts = tuple(map(float, even_shares(most, tasks)))
    message = f"max_calls {most:,}"
    return CallCap(
        message if min(parts) or not most else _too_little(message, f"{tasks:,}", tasks),
        parts,
        (1.0,) * len(lookups),
    )


def _too_little(message: str, least: str, tasks: int) -> str:
    """Return a clause for a cap under which a task may never call, however often it runs."""
    for_each = f" for each of the {tasks:,} tasks of this run" if tasks > 1 else ""
    return f"{message}, which is less than one call{for_each} (give at least {least}),"


def divided_by_need(cap: CallCap, needs: Sequence[float]) -> CallCap:
    """Return the cap divided by the needs of each task's keys, and the rest evenly.

    If the cap is too low, each task gets an equal part, or what it needs if that is less.

    Args:
        cap: The cap.
        needs: For each task, what an attempt at each of its keys costs together.
    """
    parts = [0.0] * len(needs)
    left = sum(cap.parts)
    for count, task in enumerate(sorted(range(len(needs)), key=lambda task: needs[task])):
        parts[task] = min(needs[task], left / (len(needs) - count))
        left -= parts[task]
    return replace(cap, parts=tuple(part + max(0.0, left) / len(parts) for part in parts))


def cap_on_cost(
    lookups: Sequence[Lookup],
    most: str,
    tasks: int,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> CallCap:
    """Return a cap on the cost of a run ("5 USD") at today's prices, divided over the tasks.

    An attempt at a key reserves its price; if a request asks for many keys and is billed as a unit,
    a full request is assumed. Where only an answer reports what it cost, an attempt reserves the
    most that it may cost. What requests and answers cost is settled once the attempt has ended.

    Raises DeclarationError if the amount cannot be compared with the prices, or no lookup has a
    price.
    """
    money = read_money(most, "max-cost")
    today = now().date().isoformat()
    weights, settled = [], []
    for lookup in lookups:
        prices = in_force(lookup.prices, today)
        if prices and prices[0].currency != money.currency:
            raise DeclarationError(
                f"max-cost is {most!r}, but lookup {lookup.name} is billed in "
                f"{prices[0].currency}; name that currency."
            )
        weights.append(_most_of_attempt(lookup, prices, most))
        # a refused batch sends its keys again, in halves
        is_settled = lookup.batch_size > 1 or {price.unit for price in prices} - {"item"}
        settled.append(prices if is_settled else ())
    if not any(weights):
        raise DeclarationError(
            f"max-cost is {most!r}, but no lookup has a price in force; declare one, or use "
            "--max-calls."
        )
    # counted in calls of the dearest lookup, so that whole numbers stay exact
    largest = max(weights)
    part = float(money.amount / largest / tasks + Decimal("1e-9"))
    message = f"max_cost {money}"
    if part < 1:
        message = _too_little(message, str(Money(largest * tasks, money.currency)), tasks)
    return CallCap(
        message,
        (part,) * tasks,
        tuple(float(weight / largest) for weight in weights),
        tuple(
            {
                price.unit: float(cost_of([price], {price.unit: 1}) / largest)
                for price in lookup_prices
            }
            for lookup_prices in settled
        ),
        tuple(lookup.batch_size for lookup in lookups),
    )


def _most_of_attempt(lookup: Lookup, prices: Sequence[PriceFacts], most: str) -> Decimal:
    """Return what an attempt at a key costs, or the most that it may cost.

    Raises:
        DeclarationError: Only an answer reports, and nothing declares the most.
    """
    reported = [price for price in prices if price.unit not in SENT]
    open_ended = [price.unit for price in reported if price.at_most is None]
    declared = [
        read_money(budget.at_most, "") for budget in lookup.budgets if budget.at_most is not None
    ]
    if open_ended and declared:
        return min(money.amount for money in declared) / lookup.batch_size
    if open_ended:
        raise DeclarationError(
            f"max-cost is {most!r}, but lookup {lookup.name} is billed per {open_ended[0]}, which "
            "only an answer reports; declare at_most in that price, or use --max-calls."
        )
    # the cost of requests, and what their answers report, is divided by their keys
    of_request = {"request": 1} | {price.unit: price.at_most or 0 for price in reported}
    return cost_of(prices, of_request) / lookup.batch_size + cost_of(prices, {"item": 1})
