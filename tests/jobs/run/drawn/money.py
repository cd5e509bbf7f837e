"""What the calls of a drawn lookup may cost: the most of each, and its budget.

Nothing here imports the product.
"""

import random
from dataclasses import replace
from decimal import Decimal

from tests.jobs.run.drawn.natures import Look

WITH_MODEL = ("http", "body", "pages", "batch", "coroutine")
MOST_TOKENS = 400  # of a call; the vendor uses fewer


def with_money(look: Look, seed: int) -> Look:
    """The lookup with a budget or prices by day, where it is drawn so."""
    draws = random.Random(f"money:{seed}:{look.name}")
    budget = most_of_call(look) * draws.choice((0, 0, 0, 2, 8, 25))
    has_older_prices, in_thousands = draws.random() < 0.3, draws.random() < 0.3
    model = draws.choice(("", "", "own", "any")) if look.kind in WITH_MODEL else ""
    fields = look.fields | ({"model": "mine"} if model else {})
    return replace(
        look, budget=budget, has_older_prices=has_older_prices, in_thousands=in_thousands,
        model=model, fields=fields,
    )  # fmt: skip


def most_units(look: Look, unit: str) -> int:
    """The most units of a call that has one attempt."""
    if unit == "token":
        return MOST_TOKENS
    if unit == "item":
        return look.max_items
    return look.max_pages or 1


def most_of_call(look: Look) -> Decimal:
    """The most that an attempt costs, in USD."""
    return sum(
        (Decimal(amount) * most_units(look, unit) for amount, unit in look.prices), Decimal(0)
    )
