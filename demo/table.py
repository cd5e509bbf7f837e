"""The table at the demo's end, and calls by two counts: the service's log and the audit columns."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import pyarrow.parquet as pq

from demo.calls import Call, Tally
from jobs.schema import columns as schema
from jobs.schema.columns import OUTCOMES
from jobs.schema.records import DayRecord, LookupMetrics
from tidegate.commands.lines import aligned

# outcomes with a column even when no row has them
ALWAYS = ("ok", "miss", "skipped", "timeout", "error")
LEFT = ("day", "lookup", "checks", "published")


def day_table(records: Sequence[DayRecord]) -> str:
    every = [lookup for record in records for lookup in record.figures.lookups]
    outcomes = [
        name
        for name in OUTCOMES
        if name in ALWAYS or any(lookup.outcomes.get(name) for lookup in every)
    ]
    head = ["day", "lookup", "rows", *outcomes, "|", "late", "|", "calls", "from ledger", "|"]
    head += ["wall", "limit", "wall/limit", "|"]
    lines = [[*head, "checks", "published"]]
    for record in records:
        for number, lookup in enumerate(record.figures.lookups):
            lines.append(_line(record, lookup, outcomes, first=number == 0))
    right = {place for place, name in enumerate(lines[0]) if name not in LEFT}
    return "\n".join(aligned(lines, right))


def _line(
    record: DayRecord, lookup: LookupMetrics, outcomes: Iterable[str], *, first: bool
) -> list[str]:
    figures = record.figures
    ratio = f"{lookup.wall_s / lookup.limit_s:.2f}" if lookup.limit_s else "-"
    version = f"version {record.published_version}" if record.state == "published" else record.state
    return [
        record.facts.day if first else "",
        lookup.name,
        f"{figures.rows_out:,}",
        *(f"{lookup.outcomes.get(name, 0):,}" for name in outcomes),
        "|",
        f"{figures.rows_late:,}",
        "|",
        f"{lookup.calls:,}",
        f"{lookup.from_ledger:,}",
        "|",
        f"{lookup.wall_s:.2f} s",
        f"{lookup.limit_s:.2f} s",
        ratio,
        "|",
        checks_in_words(record) if first else "",
        version if first else "",
    ]


def checks_in_words(record: DayRecord) -> str:
    """Return `18 passed`, or with other results `16 passed, 1 failed, 1 not run`."""
    counts = Counter(verdict.status for verdict in record.verdicts)
    return (
        ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.most_common())
        or "none ran"
    )


def requests_at_service(calls: Sequence[Call]) -> str:
    tally = Tally.of(calls)
    return f"{tally.calls:,} requests for {tally.distinct_keys:,} distinct keys"


def asked_twice(calls: Sequence[Call]) -> str:
    return f"{requests_at_service(calls)}; asked twice: {Tally.of(calls).asked_twice:,}"


def counted_by_us(records: Iterable[DayRecord]) -> Counter[str]:
    attempts = schema.attempts("weather")
    counts: Counter[str] = Counter()
    for record in records:
        for file in record.facts.files:
            for row in pq.read_table(
                file, columns=["origin", "scheduled_departure", attempts]
            ).to_pylist():
                if row[attempts]:
                    counts[f"{row['origin']}/{_moment(row['scheduled_departure'])}"] += len(
                        row[attempts]
                    )
    return counts


def _moment(moment: datetime) -> str:
    utc = moment.astimezone(UTC) if moment.tzinfo else moment
    return utc.strftime("%Y-%m-%dT%H:%M:%SZ")


def agreement(calls: Iterable[Call], audited: Counter[str]) -> str:
    theirs = Counter(call.key for call in calls)
    different = [key for key in sorted(theirs | audited) if theirs[key] != audited[key]]
    if not different:
        return f"audit columns: {audited.total():,}, the same for every key"
    first = different[0]
    return (
        f"audit columns: {audited.total():,}; {len(different)} keys differ, "
        f"the first: {first}, {theirs[first]} there, {audited[first]} here"
    )
