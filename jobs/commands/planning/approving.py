"""Plans that a person approves with their price before an agent may have them run, each once."""

import hashlib
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from jobs.commands.planning.plan import plan
from jobs.commands.replaying.replay_where import choose_letters
from jobs.declare.enrichment import Enrichment
from jobs.declare.values.prices import read_money
from jobs.errors import DeclarationError
from jobs.schema.costs import sum_by_currency
from jobs.schema.facts import Facts
from jobs.storage import durable

ROOT = Path("data/approved")
FREE = "free"  # the price without a declared price


@dataclass(frozen=True)
class PricedPlan(Facts):
    """What a day, or a replay of some of its dead letters, asks for and costs at most.

    Attributes:
        plan: Hash of the declaration, of what is asked for, and of the price.
        enrichment: Its name.
        day: The day.
        where: The reason of the letters of a replay; empty for a run.
        calls: A call for each key, without those that repeat a failed one.
        price: As `0.20 USD`, or `free`.
        capped: Whether the person named the price, in place of the planned cost.
    """

    plan: str
    enrichment: str
    day: str
    where: str
    calls: int
    price: str
    capped: bool = False

    @property
    def command(self) -> list[str]:
        """The arguments of the command that does it and stops at its price or calls."""
        most = f"--max-cost={self.price}"
        if self.price == FREE:
            most = f"--max-calls={self.calls}"
        chosen = [f"--where={self.where}", "--run"] if self.where else []
        return [
            "replay" if chosen else "run", self.enrichment, f"--day={self.day}", *chosen, most
        ]  # fmt: skip


def price_plan(enrichment: Enrichment, day: str, where: str, max_cost: str | None) -> PricedPlan:
    """Price a run of a day, or with `where` a replay of its letters with this reason; no call.

    Raises:
        DeclarationError: The cost cannot be known before, and no `max_cost` is given.
    """
    asked = []
    if where:
        for chosen in choose_letters(enrichment, where, day):
            asked += [(price.lookup, price.calls, price.cost) for price in chosen.priced]
    else:
        asked += [
            (lookup.name, lookup.calls + lookup.unknown, lookup.cost_at_most or lookup.cost)
            for lookup in plan(enrichment, [day]).lookups
        ]
    if max_cost is None:
        price = _price(enrichment, asked)
    else:
        most = read_money(max_cost, "--max-cost")
        price = f"{most.amount:f} {most.currency}"
    content = [enrichment.facts().to_json(), day, where, asked, price]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    calls = sum(calls for _, calls, _ in asked)
    return PricedPlan(digest, enrichment.name, day, where, calls, price, max_cost is not None)


def _price(enrichment: Enrichment, asked: list[tuple[str, int, str | None]]) -> str:
    prices = {lookup.name: lookup.prices for lookup in enrichment.lookups}
    billed = [(name, cost) for name, calls, cost in asked if prices[name] and calls]
    if unknown := [name for name, cost in billed if cost is None]:
        raise DeclarationError(
            f"lookup {unknown[0]}: its cost is not known before its answers; give --max-cost."
        )
    costs = sum_by_currency((prices[name][0].currency, Decimal(cost or 0)) for name, cost in billed)
    if len(costs) > 1:
        raise DeclarationError(f"the cost has several currencies: {', '.join(costs)}.")
    return next((f"{cost:f} {currency}" for currency, cost in costs.items()), FREE)


def approve(priced: PricedPlan) -> None:
    """Let the plan be carried out once."""
    durable.write(ROOT / f"{priced.plan}.json", priced.to_json().encode())


def approved(plan: str) -> PricedPlan | None:
    """Return the approved plan of this hash; None if nobody approved it, or it was used."""
    if not re.fullmatch(r"[0-9a-f]{16}", plan):
        return None
    try:
        return PricedPlan.from_json((ROOT / f"{plan}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def use(priced: PricedPlan) -> bool:
    """Use up the approval; return False if another run did."""
    try:
        (ROOT / f"{priced.plan}.json").unlink()
    except FileNotFoundError:
        return False
    return True
