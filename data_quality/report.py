"""The report: one page per day and one over all days, that open from a disk with no network.

Loads without Great Expectations and Spark: all it needs is in the records.
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib.resources
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from data_quality import charts
from jobs.schema import OUTCOMES, DayRecord, LookupFigures

PLOTLY = "plotly.min.js"  # once, beside the pages
DAYS_SHOWN = 60
MARKS = {"passed": "✓", "failed": "✗", "not_run": "–"}


def render(enrichment: str, records: list[DayRecord], folder: Path) -> Path:
    """Write `index.html` over all days and `<day>/index.html` for each; returns the index.

    Of a day with several records, the last one is shown. Pages of days without a record stay as they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _copy_plotly(folder)
    pages = _pages()
    in_time = sorted(records, key=lambda record: (record.facts.day, record.facts.started_at))
    days = list({record.facts.day: record for record in in_time}.values())
    for place, record in enumerate(days):
        page = pages.get_template("day.html").render(_of_a_day(enrichment, days, place), root="../")
        target = folder / record.facts.day / "index.html"
        target.parent.mkdir(exist_ok=True)
        _replace(target, page)
    index = folder / "index.html"
    _replace(index, pages.get_template("days.html").render(_of_all_days(enrichment, days[-DAYS_SHOWN:]), root=""))
    return index


def require(folder: Path) -> None:
    """See to it that pages can be written to this folder. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


@functools.cache
def _pages() -> jinja2.Environment:
    """The templates, each compiled once."""
    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("data_quality", "templates"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    pages.filters |= {"number": number, "seconds": seconds, "minute": minute, "mark": MARKS.__getitem__}
    return pages


def _of_a_day(enrichment: str, days: list[DayRecord], place: int) -> dict[str, Any]:
    record = days[place]
    lookups = [
        {
            "figures": figures,
            "wall_over_limit": wall_over_limit(figures),
            "charts": charts.of_a_lookup(figures, record.pictures.get(figures.name)),
        }
        for figures in record.figures.lookups
    ]
    return {
        "enrichment": enrichment,
        "record": record,
        "facts": record.facts,
        "state": state(record),
        "headline": headline(record),
        "stops": [verdict for verdict in record.verdicts if verdict.holds_back],
        "reason": reason(record),
        "readers_see": readers_see(days, place),
        "verdicts": record.verdicts,
        "lookups": lookups,
        "outcomes": charts.outcomes_of_a_day(record.figures),
        "outcomes_seen": [
            outcome for outcome in OUTCOMES if any(it.outcomes.get(outcome) for it in record.figures.lookups)
        ],
        "weekday": dt.date.fromisoformat(record.facts.day).strftime("%A"),
        "before": days[place - 1].facts.day if place else None,
        "after": days[place + 1].facts.day if place + 1 < len(days) else None,
    }


def _of_all_days(enrichment: str, days: list[DayRecord]) -> dict[str, Any]:
    # as on the page of the newest day; then what only earlier days have
    names = list(dict.fromkeys(verdict.check for record in reversed(days) for verdict in record.verdicts))
    found = [{verdict.check: verdict for verdict in record.verdicts} for record in days]
    held_back = [record for record in days if state(record) != "published"]
    last = next((record for record in reversed(days) if record.state == "published"), None)
    return {
        "enrichment": enrichment,
        "days": list(zip(days, found, strict=True)),
        "names": names,
        "months": _by_month([record.facts.day for record in days]),
        "state": state(days[-1]) if days else "no days",
        "held_back": held_back,
        "last_published": last,
        "charts": charts.of_all_days(days),
        "reason_of": reason,
        "state_of": state,
    }


def _by_month(days: Sequence[str]) -> list[list[dt.date]]:
    """Days in order, as dates, those of a month together."""
    dates = map(dt.date.fromisoformat, days)
    return [list(month) for _, month in itertools.groupby(dates, key=lambda date: (date.year, date.month))]


# -- in plain language -------------------------------------------------------------------------------------------------
def state(record: DayRecord) -> str:
    """`written` only until the day is published or held back: a verdict may already say which."""
    if record.state == "written" and any(verdict.holds_back for verdict in record.verdicts):
        return "held back"
    return record.state


def headline(record: DayRecord) -> str:
    """How the checks went, in a few words."""
    count = len(record.verdicts)
    passed = sum(verdict.status == "passed" for verdict in record.verdicts)
    stops = sum(verdict.holds_back for verdict in record.verdicts)
    warnings = sum(verdict.status == "failed" and not verdict.holds_back for verdict in record.verdicts)
    if not count:
        return "No check ran"
    parts = [f"{stops} {'check keeps' if stops == 1 else 'checks keep'} this day back"] if stops else []
    parts += [f"{warnings} {'check warns' if warnings == 1 else 'checks warn'}"] if warnings else []
    if passed == count:
        return "The check passed" if count == 1 else f"All {count} checks passed"
    return "; ".join([*parts, f"{passed} of {count} passed"])


def reason(record: DayRecord) -> str:
    """One sentence: why the day is in this state."""
    if record.reason:
        return record.reason
    stops = [verdict for verdict in record.verdicts if verdict.holds_back]
    if stops:
        more = f" ({len(stops)} checks keep the day back)" if len(stops) > 1 else ""
        return f"{stops[0].check}: {stops[0].sentence}{more}"
    warnings = [verdict for verdict in record.verdicts if verdict.status == "failed"]
    count = sum(verdict.status == "passed" for verdict in record.verdicts)
    passed = "1 check passed" if count == 1 else f"{count} checks passed"
    if warnings:
        return f"{passed}; a warning: {warnings[0].check}: {warnings[0].sentence}"
    not_run = [verdict for verdict in record.verdicts if verdict.status == "not_run"]
    return passed + (f", {len(not_run)} not run" if not_run else "")


def readers_see(days: list[DayRecord], place: int) -> str:
    """What a reader of the published table finds for this day."""
    record = days[place]
    if record.state == "published":
        version = "" if record.published_version is None else f", version {record.published_version}"
        return f"{record.facts.day}{version}, complete"
    others = [one for one in days if one.state == "published"]
    kept = f"nothing new of {record.facts.day}; what was published of it before stays"
    if not others:
        return kept
    return f"{kept}. The last published day is {others[-1].facts.day}"


def minute(time: str) -> str:
    """An ISO time as a person reads it; a dash where none is known."""
    return "–" if not time else f"{dt.datetime.fromisoformat(time).astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"


def wall_over_limit(figures: LookupFigures) -> float | None:
    return figures.wall_s / figures.limit_s if figures.limit_s else None


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.1f} s" if value < 600 else f"{value / 60:,.1f} min"


# -- files -------------------------------------------------------------------------------------------------------------
def _copy_plotly(folder: Path) -> None:
    source = importlib.resources.files("plotly") / "package_data" / PLOTLY
    target = folder / PLOTLY
    text = source.read_bytes()
    if not target.exists() or target.stat().st_size != len(text):
        draft = target.with_suffix(".draft")
        draft.write_bytes(text)
        draft.replace(target)


def _replace(target: Path, text: str) -> None:
    """A reader sees the old page or the new one."""
    draft = target.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(target)
