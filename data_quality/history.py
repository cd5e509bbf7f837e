"""Metrics of earlier days, read from their run records, for comparison with a day."""

import json
import logging
from pathlib import Path
from typing import Any

from data_quality.day_names import DayName
from jobs.schema.records import DayMetrics

RUNS = Path("data/runs")
_log = logging.getLogger("tidegate.records")
DAYS_OF_HISTORY = 28


def earlier_days(enrichment: str, day: str, runs: Path = RUNS) -> dict[str, DayMetrics]:
    """Returns metrics of the published days among the last DAYS_OF_HISTORY, each of its last run.

    For an hour, 2013-01-10T05Z, the earlier days are the same hour of those days; a partition with
    a name has none.
    """
    name = DayName.read(day)
    if name is None:
        return {}
    figures = {}
    for back in range(1, DAYS_OF_HISTORY + 1):
        earlier = name.earlier(back)
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
    """Reads a record; empty if a power cut tore it, so that only this day is missing."""
    try:
        record = json.loads(path.read_text())
        DayMetrics.from_dict(record["figures"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _log.warning("record %s is torn and passed over: %s", path, " ".join(str(error).split()))
        return {}
    return dict(record)
