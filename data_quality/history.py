"""Metrics of earlier days, read from their run records, for comparison with a day."""

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_quality.day_names import DayName
from jobs.schema.records import DayMetrics

RUNS = Path("data/runs")
_log = logging.getLogger("tidegate.records")
DAYS_OF_HISTORY = 28


@dataclass(frozen=True)
class EarlierDay:
    """What a published day is compared by.

    Attributes:
        figures: Of its last run.
        sketches: By lookup and column, of its run with the most answers by call.
        values: The rows with a value by lookup and column, of its last run.
        paths: By lookup and column, where its last run found the values in the answers.
        kept: The rows that its last run published again unchanged.
    """

    figures: DayMetrics
    sketches: dict[str, dict[str, Any]] = field(default_factory=dict)
    values: dict[str, dict[str, int]] = field(default_factory=dict)
    paths: dict[str, dict[str, str]] = field(default_factory=dict)
    kept: int = 0

    def column(self, lookup: str, column: str) -> tuple[str | None, int, int]:
        """Return a column's path, its rows with a value, and the rows with an answer.

        The path is empty if the day has no such column, and None if an older version kept the
        record.
        """
        figures = [figure for figure in self.figures.lookups if figure.name == lookup]
        answers = sum(figure.outcomes.get("ok", 0) for figure in figures)
        path = self.paths.get(lookup, {}).get(column, "")
        is_unknown = bool(figures) and lookup not in self.paths
        return None if is_unknown else path, self.values.get(lookup, {}).get(column, 0), answers


def earlier_days(enrichment: str, day: str, runs: Path = RUNS) -> dict[str, EarlierDay]:
    """Return the published days among the last DAYS_OF_HISTORY.

    For an hour, 2013-01-10T05Z, the earlier days are the same hour of those days; a partition with
    a name has none.
    """
    name = DayName.read(day)
    if name is None:
        return {}
    days = name.earlier(range(1, DAYS_OF_HISTORY + 1))
    found = {earlier: published_day(enrichment, earlier, runs) for earlier in days}
    return {earlier: published for earlier, published in found.items() if published is not None}


def published_day(
    enrichment: str, day: str, runs: Path = RUNS, *, table: str | None = None
) -> EarlierDay | None:
    """Return what the records say of a day as it is published in this table, by default in any that
    the enrichment has had; None if it never was.
    """
    published = [
        record
        for path in (runs / enrichment / day).glob("*.json")
        if path.name != "progress.json" and (record := _read(path)).get("state") == "published"
    ]
    if table is not None:
        published = [record for record in published if _declared(record).get("table") == table]
    if not published:
        return None
    latest = max(published, key=lambda record: record.get("published_at") or "")
    pictures = latest.get("pictures", {})
    return EarlierDay(
        DayMetrics.from_dict(latest["figures"]),
        _sketches(published),
        {lookup: picture.get("values", {}) for lookup, picture in pictures.items()},
        {
            lookup["name"]: dict(lookup["paths"])
            for lookup in _declared(latest).get("lookups", ())
            if lookup.get("paths")
        },
        (latest.get("facts", {}).get("changes") or {}).get("kept", 0),
    )


def _sketches(published: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the sketches by lookup and column: a replayed day has only a few answers by call."""
    found: dict[str, dict[str, Any]] = {}
    for record in published:
        for lookup, picture in record.get("pictures", {}).items():
            for column, sketch in picture.get("answers", {}).items():
                known = found.setdefault(lookup, {}).get(column)
                if known is None or known["answers"] <= sketch["answers"]:
                    found[lookup][column] = sketch
    return found


def _declared(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = record.get("facts", {}).get("declared", {})
    return found


def _read(path: Path) -> dict[str, Any]:
    """Read a record; empty if a power cut tore it, so that only this day is missing."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        DayMetrics.from_dict(record["figures"])
    except FileNotFoundError:  # the next batch of a stream removes the record of the batch before
        return {}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _log.warning("record %s is torn and passed over: %s", path, " ".join(str(error).split()))
        return {}
    return dict(record)
