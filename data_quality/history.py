"""A day against the days before it, read from the records of their runs."""

from __future__ import annotations

import datetime as dt
import json
import logging
import statistics
from pathlib import Path
from typing import Any

from data_quality.catalogue import DAYS_OF_HISTORY, WEEKS_OF_HISTORY
from data_quality.findings import Finding, rows, share
from jobs.schema import DayMetrics

RUNS = Path("data/runs")
_log = logging.getLogger("tidegate.records")
FEWEST, MOST = 0.6, 1.6  # rows of a complete day, in parts of the usual number


def earlier_days(enrichment: str, day: str, runs: Path = RUNS) -> dict[str, DayMetrics]:
    """Figures of the published days among the last DAYS_OF_HISTORY; of a day published twice, the later run."""
    last = dt.date.fromisoformat(day)
    figures = {}
    for back in range(1, DAYS_OF_HISTORY + 1):
        earlier = (last - dt.timedelta(days=back)).isoformat()
        published = [
            record
            for path in (runs / enrichment / earlier).glob("*.json")
            if path.name != "progress.json" and (record := _read(path)).get("state") == "published"
        ]
        if published:
            latest = max(published, key=lambda record: record.get("published_at") or "")
            figures[earlier] = DayMetrics.from_dict(latest["figures"])
    return figures


def _read(path: Path) -> dict[str, Any]:
    """A record as it stands; an empty one for a record that a power cut tore: one day less to compare with."""
    try:
        record = json.loads(path.read_text())
        DayMetrics.from_dict(record["figures"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _log.warning("record %s is torn and passed over: %s", path, " ".join(str(error).split()))
        return {}
    return dict(record)


def miss_shares(days: dict[str, DayMetrics], lookup: str) -> list[float]:
    found = [figures for day in days.values() for figures in day.lookups if figures.name == lookup]
    return [
        share(figures.outcomes.get("miss", 0), sum(figures.outcomes.values())) for figures in found if figures.outcomes
    ]


def same_weekday(days: dict[str, DayMetrics], day: str) -> list[int]:
    last = dt.date.fromisoformat(day)
    weeks = [(last - dt.timedelta(weeks=back)).isoformat() for back in range(1, WEEKS_OF_HISTORY + 1)]
    return [days[week].rows_in for week in weeks if week in days]


def miss_share_usual(misses: int, total: int, shares: list[float], tolerated: float) -> Finding:
    if not shares:
        return Finding.not_run("no earlier days to compare with")
    now, usual = share(misses, total), statistics.mean(shares)
    text = f"{now:.2%} misses; {usual:.2%} on the {len(shares)} days before; tolerated change {tolerated:.2%}"
    expected = f"{usual - tolerated:.4f} .. {usual + tolerated:.4f}"
    held = abs(now - usual) <= tolerated
    return Finding(held, text, 0 if held else misses, total, expected)


def input_day_complete(rows_in: int, row_counts: list[int]) -> Finding:
    if not row_counts:
        return Finding.not_run("no earlier day of the same weekday to compare with")
    usual = statistics.median(row_counts)
    text = f"{rows(rows_in)}; {usual:,.0f} on the same weekday of {len(row_counts)} weeks before"
    held = FEWEST * usual <= rows_in <= MOST * usual
    expected = f"{FEWEST * usual:,.0f} .. {MOST * usual:,.0f} rows"
    return Finding(held, text, 0 if held else abs(rows_in - round(usual)), rows_in, expected)
