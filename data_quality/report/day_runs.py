"""Lists the runs of a day; a run that a later run replaced stays on the day's page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from jobs.schema.costs import sum_by_currency
from jobs.schema.facts import Facts
from jobs.schema.records import DayRecord, UnwrittenRun


@dataclass(frozen=True)
class RunLine(Facts):
    """A run of a day. A run that wrote no files has no counts, but for calls that have a price."""

    run_id: str
    started_at: str
    ended_at: str
    state: str
    reason: str
    rows: int | None = None
    calls: int | None = None
    from_ledger: int | None = None
    dead_letters: int | None = None
    cost: str = ""  # such as `0.10 USD, 2.00 EUR`
    jobs: int = 0

    @property
    def costs(self) -> dict[str, Decimal]:
        """What the run was billed, by currency."""
        costs = (cost.split() for cost in self.cost.split(", ") if cost)
        return sum_by_currency((currency, Decimal(amount)) for amount, currency in costs)


def list_day_runs(
    day: str, records: Sequence[DayRecord], unwritten: Sequence[UnwrittenRun]
) -> tuple[RunLine, ...]:
    """Return the day's runs by their start; a run killed after it wrote files has one line."""
    lines = {run.run_id: _ended(run) for run in unwritten if run.day == day}
    written = {
        record.facts.run_id: _written(record) for record in records if record.facts.day == day
    }
    for run_id, line in written.items():
        ended = lines.get(run_id)
        if line.state != "written" or ended is None:
            lines[run_id] = line
        else:
            lines[run_id] = replace(
                line, state=ended.state, reason=ended.reason, ended_at=ended.ended_at
            )
    return tuple(sorted(lines.values(), key=lambda line: line.started_at))


def _ended(run: UnwrittenRun) -> RunLine:
    return RunLine(
        run.run_id, run.started_at, run.ended_at, run.state, run.reason, calls=run.calls,
        cost=run.cost,
    )  # fmt: skip


def _written(record: DayRecord) -> RunLine:
    facts, lookups = record.facts, record.figures.lookups
    version = "" if record.published_version is None else f" as version {record.published_version}"
    return RunLine(
        facts.run_id,
        facts.started_at,
        facts.finished_at,
        record.state + version,
        record.reason,
        record.figures.rows_out,
        record.figures.calls,
        sum(lookup.from_ledger for lookup in lookups),
        record.dead_letters,
        ", ".join(f"{cost} {currency}" for currency, cost in record.figures.cost.items()),
        record.figures.jobs,
    )
