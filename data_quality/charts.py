"""The pictures of the report as Plotly figures: plain data, drawn by the browser."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

from jobs.schema import OUTCOMES, DayFigures, DayRecord, LookupFigures

COLOURS = {
    "ok": "#2a7f62",
    "miss": "#8fb8a8",
    "skipped": "#c9ced6",
    "fallback": "#6f8fc9",
    "timeout": "#e0a030",
    "error": "#c8442f",
    "unknown": "#7b4b94",
    "not_asked": "#e8eaee",
    "none": "#000000",
}
_INK, _GRID = "#3b4351", "#e6e9ee"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

Figure = dict[str, Any]


def outcomes_of_a_day(figures: DayFigures) -> Figure:
    """One bar per lookup, made of its outcomes."""
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "name": outcome,
            "y": [lookup.name for lookup in figures.lookups],
            "x": [lookup.outcomes.get(outcome, 0) for lookup in figures.lookups],
            "marker": {"color": COLOURS[outcome]},
            "hovertemplate": "%{x:,} rows<extra>" + outcome + "</extra>",
        }
        for outcome in OUTCOMES
        if any(lookup.outcomes.get(outcome) for lookup in figures.lookups)
    ]
    height = 130 + 46 * len(figures.lookups)
    return _figure(bars, height=height, barmode="stack", x={"title": {"text": "rows"}}, y={"autorange": "reversed"})


def of_a_lookup(figures: LookupFigures, picture: dict[str, Any] | None) -> dict[str, Figure]:
    """Latency histogram, and outcomes and percentiles over the time of the run; empty without anything to draw."""
    if not picture or not picture["slots"]:
        return {}
    return {"latency": _latency(figures, picture), "over_time": _over_time(picture)}


def _latency(figures: LookupFigures, picture: dict[str, Any]) -> Figure:
    classes = picture["latency"]
    bars = []
    for outcome in dict.fromkeys(one["outcome"] for one in classes):
        mine = [one for one in classes if one["outcome"] == outcome]
        bars.append(
            {
                "type": "bar",
                "name": outcome,
                "x": [(one["from_ms"] * one["to_ms"]) ** 0.5 for one in mine],
                "width": [one["to_ms"] - one["from_ms"] for one in mine],
                "y": [one["rows"] for one in mine],
                "marker": {"color": COLOURS[outcome], "line": {"width": 0}},
                "customdata": [[one["from_ms"], one["to_ms"]] for one in mine],
                "hovertemplate": "%{y:,} rows<br>%{customdata[0]:.3~g} to %{customdata[1]:.3~g} ms"
                "<extra>" + outcome + "</extra>",
            }
        )
    lines = [
        _vertical(value, text)
        for value, text in ((figures.latency_p50_ms, "p50"), (figures.latency_p99_ms, "p99"))
        if value
    ]
    x = {"type": "log", "title": {"text": "latency, ms"}, "dtick": 1}
    figure = _figure(bars, height=300, barmode="stack", x=x, y={"title": {"text": "rows"}})
    figure["layout"]["shapes"] = [line["shape"] for line in lines]
    figure["layout"]["annotations"] = [line["label"] for line in lines]
    return figure


def _vertical(value: float, text: str) -> dict[str, Any]:
    at = math.log10(value)
    line = {"color": _INK, "width": 1, "dash": "dot"}
    return {
        "shape": {"type": "line", "x0": value, "x1": value, "yref": "paper", "y0": 0, "y1": 1, "line": line},
        "label": {
            "x": at,
            "y": 1,
            "yref": "paper",
            "yanchor": "top",
            "xanchor": "left",
            "text": f" {text} {value:.0f} ms",
            "showarrow": False,
        },
    }


def _over_time(picture: dict[str, Any]) -> Figure:
    slots = picture["slots"]
    times = [_clock(slot["start_s"]) for slot in slots]
    present = [outcome for outcome in OUTCOMES if any(slot["outcomes"].get(outcome) for slot in slots)]
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": outcome,
            "x": times,
            "y": [slot["outcomes"].get(outcome, 0) for slot in slots],
            "marker": {"color": COLOURS[outcome], "line": {"width": 0}},
            "yaxis": "y2",
            "hovertemplate": "%{y:,} rows<extra>" + outcome + "</extra>",
        }
        for outcome in present
    ]
    for name, key, dash in (("p50", "p50_ms", "solid"), ("p99", "p99_ms", "dot")):
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": times,
                "y": [slot[key] for slot in slots],
                "line": {"color": _INK, "dash": dash, "width": 2},
                "marker": {"size": 4},
                "hovertemplate": "%{y:,.0f} ms<extra>" + name + "</extra>",
            }
        )
    figure = _figure(traces, height=360, barmode="stack", x={"type": "date", "anchor": "y2"})
    figure["layout"]["yaxis"] |= {"title": {"text": "ms"}, "domain": [0.42, 1]}
    figure["layout"]["yaxis2"] = _axis({"title": {"text": "rows"}, "domain": [0, 0.3]})
    return figure


def of_all_days(days: list[DayRecord]) -> dict[str, dict[str, Figure]]:
    """By lookup: outcomes, percentiles and wall over limit, a point per day."""
    names = list(dict.fromkeys(lookup.name for record in days for lookup in record.figures.lookups))
    return {name: _of_a_lookup_over_days(name, days) for name in names}


def _of_a_lookup_over_days(name: str, days: list[DayRecord]) -> dict[str, Figure]:
    found = [(record.facts.day, lookup) for record in days for lookup in record.figures.lookups if lookup.name == name]
    x = [day for day, _ in found]
    present = [outcome for outcome in OUTCOMES if any(lookup.outcomes.get(outcome) for _, lookup in found)]
    outcomes = [
        {
            "type": "bar",
            "name": outcome,
            "x": x,
            "y": [lookup.outcomes.get(outcome, 0) for _, lookup in found],
            "marker": {"color": COLOURS[outcome], "line": {"width": 0}},
            "hovertemplate": "%{y:,} rows<extra>" + outcome + "</extra>",
        }
        for outcome in present
    ]
    latency = [
        _line(x, [getattr(lookup, key) for _, lookup in found], label, dash, "%{y:,.0f} ms")
        for label, key, dash in (("p50", "latency_p50_ms", "solid"), ("p99", "latency_p99_ms", "dot"))
    ]
    ratios = [lookup.wall_s / lookup.limit_s if lookup.limit_s else None for _, lookup in found]
    wall = [_line(x, ratios, "wall / limit", "solid", "%{y:.2f} x the limit")]
    dates = {"type": "category", "tickangle": -45, "nticks": 16}
    return {
        "outcomes": _figure(outcomes, height=300, barmode="stack", x=dates, y={"title": {"text": "rows"}}),
        "latency": _figure(latency, height=260, x=dates, y={"title": {"text": "ms"}, "rangemode": "tozero"}),
        "wall": _figure(wall, height=260, x=dates, y={"title": {"text": "times the limit"}, "rangemode": "tozero"}),
    }


def _line(x: list[str], y: list[float | None], name: str, dash: str, text: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": x,
        "y": y,
        "line": {"color": _INK, "dash": dash, "width": 2},
        "marker": {"size": 5},
        "hovertemplate": text + "<extra>" + name + "</extra>",
    }


def _clock(start_s: int) -> str:
    return dt.datetime.fromtimestamp(start_s, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _axis(own: dict[str, Any]) -> dict[str, Any]:
    return {"gridcolor": _GRID, "zerolinecolor": _GRID, "linecolor": _GRID, "automargin": True, **own}


def _figure(
    traces: list[dict[str, Any]],
    *,
    height: int,
    barmode: str | None = None,
    x: dict[str, Any] | None = None,
    y: dict[str, Any] | None = None,
) -> Figure:
    layout: dict[str, Any] = {
        "height": height,
        "margin": {"l": 64, "r": 16, "t": 56, "b": 44},
        "font": {"family": _FONT, "size": 13, "color": _INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "traceorder": "normal"},
        "xaxis": _axis(x or {}),
        "yaxis": _axis(y or {}),
        "bargap": 0.15,
    }
    if barmode:
        layout["barmode"] = barmode
    return {"data": traces, "layout": layout}
