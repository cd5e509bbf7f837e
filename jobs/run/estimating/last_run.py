"""What the last run of a lookup tells of the cost and time of its next calls."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.declare.lookup import Lookup
from jobs.declare.values.prices import cost_of
from jobs.schema.records import LookupMetrics, PriceFacts
from jobs.tables.records import run_records


@dataclass(frozen=True)
class LastRun:
    """A lookup's figures of the last run that called it, and its calls in flight then."""

    figures: LookupMetrics
    concurrency: int

    def cost(self, prices: Sequence[PriceFacts], calls: int) -> str | None:
        """Return what calls cost if they use as much; None if that run did not report it."""
        if self.figures.billed is None:
            return None
        spent = cost_of(prices, {part.unit: part.units for part in self.figures.billed.parts})
        return f"{spent * calls / self.figures.rows_called:.6f}"

    def with_key(self, rows: int) -> int:
        """Return how many of these rows have a key, if the share of those is the same."""
        outcomes = self.figures.outcomes
        before = sum(outcomes.values())
        return round(rows * (before - outcomes.get("skipped", 0)) / before)

    def seconds(self, lookup: Lookup, calls: int) -> float:
        spent = self.figures.limit_s * self.concurrency
        return spent / self.figures.rows_called * calls / lookup.facts().max_concurrency


def last_runs(enrichment: str) -> dict[str, LastRun]:
    """Return by lookup the last run that called it."""
    found: dict[str, LastRun] = {}
    for record in sorted(run_records.load(enrichment), key=lambda record: record.order):
        # after the lookups of a stream's batch come those that the day had before
        pairs = zip(record.figures.lookups, record.facts.declared.lookups, strict=False)
        found |= {
            figures.name: LastRun(figures, declared.max_concurrency)
            for figures, declared in pairs
            if figures.calls and figures.rows_called
        }
    return found
