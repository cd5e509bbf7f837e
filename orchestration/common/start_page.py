"""The page over all tables: what is wrong first, the last night's work, then a line per table."""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jobs.wording import counted, listed, percent, priced
from orchestration.common.table_status import DayStatus, Status, TableStatus, Work, add_costs

DAYS = 14  # of a table; of hours and names as many
KINDS = {"published": "passed", "running": "not_run", "waiting": "not_run"}  # CSS classes
MARKS = {"published": "✓", "running": "▸", "waiting": "…", "missing": "?"}


def describe(
    status: Status, now: dt.datetime, reports: Path, error: str = "", services: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what the page shows.

    Args:
        status: The tables.
        now: The time.
        reports: The folder of the reports, to link to those that exist.
        error: Why there are no tables.
        services: Their names, each with a page.
    """
    tables = status.tables
    known = {table.enrichment for table in tables}
    folders = sorted(path.name for path in reports.glob("*") if path.is_dir())
    return {
        "root": "reports/",
        "now": now,
        "error": error,
        "headline": error or _headline(tables),
        "is_red": bool(error) or any(table.rank[0] == 0 for table in tables),
        "figures": _figures(tables),
        "wrong": [_wrong(table, reports) for table in tables if table.rank[0] == 0],
        "earlier": [found for table in tables if (found := _earlier(table, reports))["days"]],
        "lines": [_line(table, now, reports) for table in tables if not table.error],
        "others": [name for name in folders if name not in known],
        "services": [(name, f"service/{quote(name, safe='')}") for name in services],
        "count": DAYS,
    }


def _headline(tables: Sequence[TableStatus]) -> str:
    if not tables:
        return "No enrichment is declared here."
    broken = [table.enrichment for table in tables if table.error]
    wrong = [table.enrichment for table in tables if table.rank[0] == 0 and not table.error]
    known, texts = len(tables) - len(broken), list[str]()
    count = counted(known, "table")
    if wrong and known == 1:
        texts = [f"{wrong[0]} lacks its last day"]
    elif wrong:
        lack = "lacks its" if len(wrong) == 1 else "lack their"
        texts = [f"{len(wrong)} of {count} {lack} last day: {listed(wrong)}"]
    if broken:
        texts.append(f"{listed(broken)} cannot be read")
    if texts:
        return f"{'; '.join(texts)}."
    waiting = [table for table in tables if table.last and table.last.state != "published"]
    idle = [table for table in tables if not table.last]
    states = ((len(waiting), "not due yet, running, or waiting"), (len(idle), "never run"))
    more = [f"{number} {text}" for number, text in states if number]
    published = len(tables) - len(waiting) - len(idle)
    whole = f"The last day of {published or 'none'} of {count} is published"
    return f"{whole}; {', '.join(more)}." if more else "The last day of every table is published."


def _figures(tables: Sequence[TableStatus]) -> list[tuple[str, str]]:
    night, month = [[table.last_24_hours for table in tables], [t.this_month for t in tables]]
    calls, stored = (_sum(night, name) for name in ("calls", "answers_from_ledger"))
    return [
        (f"{_sum(night, 'runs'):,}", "runs in 24 hours"),
        (f"{_sum(night, 'rows'):,}", "rows in 24 hours"),
        (f"{calls:,}", "calls in 24 hours"),
        (percent(stored / (calls + stored), 0) if stored else "–", "answers from the ledger"),
        (_costs(night), "billed in 24 hours"),
        (_costs(month), "billed this month, UTC"),
    ]


def _sum(work: Iterable[Work], name: str) -> int:
    return sum(getattr(day, name) for day in work)


def _costs(work: Iterable[Work]) -> str:
    return priced(add_costs(*(day.cost for day in work))) or "–"


def _wrong(table: TableStatus, reports: Path) -> dict[str, Any]:
    last = table.last
    if last is None:
        return {"name": table.enrichment, "href": "", "day": "", "state": "wrong",
                "reason": table.error, "next_step": "", "letters": ""}  # fmt: skip
    return {
        "name": table.enrichment,
        "href": _page(table, last, reports),
        "day": last.day,
        "state": last.state,
        "reason": last.reason,
        "next_step": last.next_step,
        "letters": f"letters/{table.enrichment}?day={last.day}" if last.dead_letters else "",
    }


def _earlier(table: TableStatus, reports: Path) -> dict[str, Any]:
    days = [day for day in reversed(table.unpublished) if day.waits or day is not table.last]
    return {
        "name": table.enrichment,
        "days": [(day.day, day.state, day.reason, _page(table, day, reports)) for day in days],
    }


def _line(table: TableStatus, now: dt.datetime, reports: Path) -> dict[str, Any]:
    days = table.days[-DAYS:]
    seen, last = table.seen, table.last
    currency = next((name for day in reversed(days) for name in day.cost), "")
    return {
        "name": table.enrichment,
        "href": f"reports/{table.enrichment}/index.html" if _has_report(table, reports) else "",
        "days": [
            {
                "href": _page(table, day, reports),
                "kind": KINDS.get(day.state, "failed"),
                "mark": MARKS.get(day.state, "✗"),
                "title": f"{day.day}: {day.state}. {day.reason}",
            }
            for day in days
        ],
        "last": last,
        "cost": "–" if last is None else priced(last.cost) or "–",
        "month": priced(table.this_month.cost) or "–",
        "charts": {
            "calls": _chart(days, [day.calls for day in days], "calls", "{:,}".format),
            "cost": _chart(
                days,
                [day.cost.get(currency) for day in days],
                "cost",
                lambda cost: priced({currency: cost}),
            ),
            "p99": _chart(
                days, [day.p99_ms for day in days], "p99 of the latency", "{:,.0f} ms".format
            ),
        },
        "seen": seen.day if seen else f"none of the last {len(table.days)}" if days else "nothing",
        "age": _age(now, seen.published_at) if seen and seen.published_at else "",
    }


def _chart(
    days: Sequence[DayStatus],
    values: Sequence[float | None],
    label: str,
    shown: Callable[[float], str],
) -> dict[str, Any] | None:
    """Return the bars of a chart: place, share of the highest, and title. None without a value."""
    known = [value for value in values if value is not None]
    top = max(known, default=0)
    if not top:
        return None
    bars = [
        (place, value / top, f"{day.day}: {shown(value)}")
        for place, (day, value) in enumerate(zip(days, values, strict=True), DAYS - len(days))
        if value is not None
    ]
    span = f"{shown(min(known))} to {shown(top)}"
    return {"label": f"{label} of the last days: {span}", "bars": bars}


def _has_report(table: TableStatus, reports: Path) -> bool:
    return (reports / table.enrichment / "index.html").exists()


def _page(table: TableStatus, day: DayStatus, reports: Path) -> str:
    """Return the address of a day's page, relative to this page; empty without such a page."""
    exists = (reports / table.enrichment / day.day / "index.html").exists()
    return f"reports/{table.enrichment}/{day.day}/index.html" if exists else ""


def _age(now: dt.datetime, at: str) -> str:
    hours = (now - dt.datetime.fromisoformat(at)).total_seconds() / 3600
    if hours < 1:
        return "< 1 h ago"
    return f"{hours:.0f} h ago" if hours < 48 else f"{hours / 24:.0f} days ago"
