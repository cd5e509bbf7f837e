"""Renders the report: a page per day and a page over all days, which open without a network.

Loads without Great Expectations and Spark: the run records contain all its data.
"""

import datetime as dt
import functools
import itertools
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from data_quality.day_names import DayName
from data_quality.next_step import next_step
from data_quality.report import charts
from data_quality.report.days import Day, list_days, state
from jobs.schema.costs import sum_by_currency
from jobs.schema.records import DayRecord, LookupMetrics, UnwrittenRun
from jobs.storage import durable
from jobs.wording import counted, percent, priced, requested

PLOTLY = "plotly.min.js"  # a single copy beside the pages
DAYS_SHOWN = 60
# URL of Dagster's web page, to which each day links; by default of this machine, if it is installed
DAGSTER_URL = "TIDEGATE_UI_URL"
ORDER = ("failed", "not_run", "passed")  # of checks
MARKS = {"passed": "✓", "failed": "✗", "not_run": "–"}


def render(
    enrichment: str,
    records: Sequence[DayRecord],
    folder: Path,
    unwritten: Sequence[UnwrittenRun] = (),
) -> Path:
    """Write `index.html` over all days and `<day>/index.html` for each; return the index.

    A day with several records shows the last record, the end of a later run without files, and a
    line for each run. Pages of days without records stay unchanged.
    """
    _copy_plotly(folder)
    pages = _pages()
    days = list_days(records, unwritten)
    for place, day in enumerate(days):
        values = _around_a_day(enrichment, days, place, folder)
        if day.record is None:
            page = pages.get_template("unwritten.html").render(values, root="../")
        else:
            page = pages.get_template("day.html").render(
                values | _describe_record(day, day.record), root="../"
            )
        _replace(folder / day.day / "index.html", page)
    index = folder / "index.html"
    _replace(
        index, pages.get_template("days.html").render(_describe_all_days(enrichment, days), root="")
    )
    return index


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """Return a page of a server, by the file name of its template."""
    return _pages().get_template(template).render(values)


def require(folder: Path) -> None:
    """Check that pages can be written to this folder. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


@functools.cache
def _pages() -> jinja2.Environment:
    pages = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    pages.filters |= {
        "number": number,
        "seconds": seconds,
        "minute": minute,
        "mark": MARKS.__getitem__,
        "prose": prose,
        "priced": priced,
        "percent": percent,
    }
    return pages


def _around_a_day(enrichment: str, days: list[Day], place: int, folder: Path) -> dict[str, Any]:
    day = days[place]
    run_id = (
        day.unwritten.run_id if day.unwritten else day.record.facts.run_id if day.record else ""
    )
    log = f"../../../runs/{enrichment}/{day.day}/{run_id}.log"
    dagster = os.environ.get(DAGSTER_URL) or (find_spec("dagster") and "http://127.0.0.1:3000")
    return {
        "enrichment": enrichment,
        "day": day.day,
        "weekday": _weekday(day.day),
        "unwritten": day.unwritten,
        "runs": day.runs if len(day.runs) > 1 else (),
        "readers_see": readers_see(days, place),
        "dagster": dagster
        and f"{dagster.rstrip('/')}/assets/{enrichment}?view=partitions&partition={day.day}",
        # none before Spark starts
        "log": log if Path(os.path.normpath(folder / day.day / log)).exists() else None,
        "before": days[place - 1].day if place else None,
        "after": days[place + 1].day if place + 1 < len(days) else None,
    }


def _describe_record(day: Day, record: DayRecord) -> dict[str, Any]:
    lookups = [
        {
            "figures": figures,
            "wall_over_limit": wall_over_limit(figures),
            "charts": charts.chart_lookup(figures, record.pictures.get(figures.name)),
        }
        for figures in record.figures.lookups
    ]
    return {
        "record": record,
        "facts": record.facts,
        "state": state(record),
        "headline": headline(day, record),
        "checked": checked(record),
        "stops": record.red,
        "next_step": next_step(record) if state(record) == "held back" else "",
        "verdicts": sorted(record.verdicts, key=lambda verdict: ORDER.index(verdict.status)),
        "lookups": lookups,
        "outcomes": charts.outcomes_of_a_day(record.figures),
        "outcomes_seen": charts.outcomes_in([lookup.outcomes for lookup in record.figures.lookups]),
    }


def _describe_all_days(enrichment: str, every: list[Day]) -> dict[str, Any]:
    days = every[-DAYS_SHOWN:]
    # in the order of the newest day; then checks of earlier days only
    names = list(dict.fromkeys(verdict.check for day in reversed(days) for verdict in day.verdicts))
    found = [{verdict.check: verdict for verdict in day.verdicts} for day in days]
    records = [day.record for day in days if day.record is not None]
    newest = DayName.read(days[-1].day) if days else None
    return {
        "enrichment": enrichment,
        "count": counted(len(days), "day")
        if len(days) == len(every)
        else f"the last {len(days)} of {len(every):,} days",
        "days": list(zip(days, found, strict=True)),
        "names": names,
        "groups": _groups([day.day for day in days]),
        # for its age; browsers would read a date in a name, too, and none in an hour
        "newest_date": str(newest.date) if newest else "",
        "state": days[-1].state if days else "no days",
        "unpublished": [day for day in days if day.shown is None],
        "outdated": [day for day in days if day.shown and day.state != "published"],
        "last_published": next(
            (day.shown for day in reversed(every) if day.shown is not None), None
        ),
        "charts": charts.chart_all_days(records),
        "answers": charts.chart_answers(records),
    }


def _weekday(day: str) -> str:
    """Return the weekday of a day or an hour; empty for a partition with a name."""
    name = DayName.read(day)
    return f"{name.date:%A}" if name else ""


def _groups(days: Sequence[str]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Group days by month and hours by day, each with a label; names have no heading."""
    read = [(day, DayName.read(day)) for day in days]
    groups = [("", [(day, day) for day, name in read if name is None])]
    named = [(day, name) for day, name in read if name is not None]
    for (date, by_hours), members in itertools.groupby(
        named, key=lambda member: _group_day(member[1])
    ):
        labelled = [(day, name.hour[1:3] or str(name.date.day)) for day, name in members]
        fits = len(labelled) > 2
        form = ("%d %b" if fits else "%d") if by_hours else ("%b %Y" if fits else "%b")
        groups.append((date.strftime(form), labelled))
    return [group for group in groups if group[1]]


def _group_day(name: DayName) -> tuple[dt.date, bool]:
    """Return the day of an hour, or the first of a day's month; and whether it is an hour."""
    return (name.date, True) if name.hour else (name.date.replace(day=1), False)


# -- sentences -------------------------------------------------------------------------------------
def headline(day: Day, record: DayRecord) -> str:
    """Return a day in a line: rows, calls, jobs and cost of its last run, then of all its runs."""
    begin = {"published": "Published", "held back": "Held back"}.get(state(record), "Written")
    last = record.figures
    figures = _figures(last.calls, last.jobs, last.cost)
    line = f"{begin}: {counted(record.rows_published, 'row')}, {figures}"
    if len(day.runs) < 2:
        return line
    calls, jobs = (sum(getattr(run, name) or 0 for run in day.runs) for name in ("calls", "jobs"))
    costs = sum_by_currency(cost for run in day.runs for cost in run.costs.items())
    whole = _figures(calls, jobs, costs)
    return f"{line}; its {len(day.runs)} runs together: {whole}"


def _figures(calls: int, jobs: int, costs: Mapping[str, Decimal]) -> str:
    return ", ".join(text for text in (requested(calls, jobs), priced(costs)) if text)


def checked(record: DayRecord) -> str:
    """Return how many checks passed, warn, hold the day back, or did not run."""
    count, verdicts = len(record.verdicts), record.verdicts
    if not count:
        return "No check ran"
    passed = sum(verdict.status == "passed" for verdict in verdicts)
    if passed == count:
        return "The check passed" if count == 1 else f"All {count} checks passed"
    stops = len(record.red)
    warnings = sum(verdict.status == "failed" and not verdict.holds_back for verdict in verdicts)
    idle = sum(verdict.status == "not_run" and not verdict.holds_back for verdict in verdicts)
    parts = [
        (stops, "holds this day back" if stops == 1 else "hold this day back"),
        (warnings, "warns" if warnings == 1 else "warn"),
        (idle, "did not run"),
    ]
    return f"{passed} of {counted(count, 'check')} passed; " + ", ".join(
        f"{number} {text}" for number, text in parts if number
    )


def readers_see(days: list[Day], place: int) -> str:
    """Describe what readers find of a day, by its records: the last published run."""
    day = days[place]
    if day.shown is not None:
        version = (
            ""
            if day.shown.published_version is None
            else f", version {day.shown.published_version}"
        )
        if day.is_published:
            return f"{day.day}{version}, complete"
        return f"{day.day}{version}, of the run that started {minute(day.shown.facts.started_at)}"
    others = [other.day for other in days if other.shown is not None]
    return f"nothing of {day.day}" + (f"; the last published day is {others[-1]}" if others else "")


def minute(time: str) -> str:
    if not time:
        return "–"
    return f"{dt.datetime.fromisoformat(time).astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"


def prose(sentence: str) -> Markup:
    """Return a sentence as HTML; commands, which are in backticks in it, in another font."""
    escaped = str(escape(sentence))
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", escaped))  # noqa: S704  # it is escaped


def wall_over_limit(figures: LookupMetrics) -> float | None:
    return figures.wall_s / figures.limit_s if figures.limit_s else None


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.1f} s" if value < 600 else f"{value / 60:,.1f} min"


# -- files -----------------------------------------------------------------------------------------
def _copy_plotly(folder: Path) -> None:
    package = find_spec("plotly")  # to import it takes as long as to write a page
    assert package is not None
    assert package.origin is not None
    source, target = Path(package.origin).with_name("package_data") / PLOTLY, folder / PLOTLY
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        durable.replace(target, source.read_bytes())


def _replace(target: Path, text: str) -> None:
    durable.replace(target, text.encode(errors="replace"))  # a file's name need not be UTF-8
