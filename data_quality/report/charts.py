"""The charts of the report as Plotly figures: plain data that the browser draws.

Colours are CSS variables of the page, such as var(--ok), which the browser resolves, light or dark,
when it draws.
"""

import datetime as dt
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from data_quality.day_names import DayName
from jobs.schema.columns import OUTCOMES
from jobs.schema.records import DayMetrics, DayRecord, LookupMetrics

LABELLED_DAYS = 5  # dates that fit side by side on a phone
FEWEST_BARS = 12  # a bar is as wide as if there were at least this many
_INK, _GRID = "var(--ink)", "var(--line)"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

Figure = dict[str, Any]  # data and layout for Plotly; legend: name, colour and kind of each series


def outcomes_of_a_day(figures: DayMetrics) -> Figure:
    names = [lookup.name for lookup in figures.lookups]
    counts = [lookup.outcomes for lookup in figures.lookups]
    bars = _outcome_bars(counts, names, "%{x:,} rows", "h")
    y = {"autorange": "reversed", "ticks": "", "showgrid": False}
    return _figure(
        bars, height=80 + 46 * len(names), barmode="stack", x={"title": {"text": "rows"}}, y=y
    )


def chart_lookup(figures: LookupMetrics, picture: dict[str, Any] | None) -> dict[str, Figure]:
    if not picture or not picture["slots"]:
        return {}
    return {"latency": _latency(figures, picture), "over_time": _over_time(picture)}


def _latency(figures: LookupMetrics, picture: dict[str, Any]) -> Figure:
    classes = picture["latency"]
    bars = []
    for outcome in dict.fromkeys(step["outcome"] for step in classes):
        steps = [step for step in classes if step["outcome"] == outcome]
        bar = _bar(
            outcome,
            [step["rows"] for step in steps],
            [(step["from_ms"] * step["to_ms"]) ** 0.5 for step in steps],
            "%{y:,} rows<br>%{customdata[0]:.3~g} to %{customdata[1]:.3~g} ms",
        )
        bar["width"] = [step["to_ms"] - step["from_ms"] for step in steps]
        bar["customdata"] = [[step["from_ms"], step["to_ms"]] for step in steps]
        bars.append(bar)
    low = math.log10(min(step["from_ms"] for step in classes)) - 0.05
    high = math.log10(max(step["to_ms"] for step in classes)) + 0.05
    x = {"type": "log", "title": {"text": "latency, ms"}, "dtick": 1, "range": [low, high]}
    figure = _figure(bars, height=300, barmode="stack", x=x, y={"title": {"text": "rows"}})
    marks = [
        _mark(value, text, line, (low, high))
        for value, text, line in (
            (figures.latency_p50_ms, "p50", 1),
            (figures.latency_p99_ms, "p99", 0),
        )
        if value
    ]
    figure["layout"]["shapes"] = [mark["shape"] for mark in marks]
    figure["layout"]["annotations"] = [mark["label"] for mark in marks]
    figure["layout"]["margin"]["t"] = 48
    return figure


def _mark(value: float, text: str, line: int, span: tuple[float, float]) -> dict[str, Any]:
    at = math.log10(value)
    place = (at - span[0]) / (span[1] - span[0])
    style = {"color": _INK, "width": 1.5, "dash": "dot"}
    ends = {"x0": value, "x1": value, "yref": "paper", "y0": 0, "y1": 1}
    return {
        "shape": {"type": "line", **ends, "line": style},
        "label": {
            "x": at,
            "y": 1,
            "yref": "paper",
            "yanchor": "bottom",
            "yshift": 4 + 18 * line,
            # stays inside
            "xanchor": "left" if place < 1 / 3 else "right" if place > 2 / 3 else "center",
            "text": f"{text} {value:,.0f} ms",
            "showarrow": False,
        },
    }


def _over_time(picture: dict[str, Any]) -> Figure:
    slots, width_s = picture["slots"], picture["width_s"]
    starts = [_clock(slot["start_s"]) for slot in slots]
    middles = [_clock(slot["start_s"] + width_s / 2) for slot in slots]
    traces = [
        bar | {"yaxis": "y2", "offset": 0, "width": width_s * 900}  # ms; a gap between two bars
        for bar in _outcome_bars([slot["outcomes"] for slot in slots], starts, "%{y:,} rows")
    ]
    for name, key, dash in (("p50", "p50_ms", "solid"), ("p99", "p99_ms", "dot")):
        traces.append(_line(middles, [slot[key] for slot in slots], name, dash, "%{y:,.0f} ms"))
    first, last = slots[0]["start_s"], slots[-1]["start_s"] + width_s
    spare = max(0, FEWEST_BARS * width_s - (last - first)) / 2
    x = {
        "type": "date",
        "anchor": "y2",
        "range": [_clock(first - spare), _clock(last + spare)],
        "nticks": 4,
        "tickangle": 0,
        "tickformat": "%H:%M:%S" if last - first < 1800 else "%H:%M",
    }
    y = {"title": {"text": "ms"}, "domain": [0.42, 1], "rangemode": "tozero"}
    figure = _figure(traces, height=360, barmode="stack", x=x, y=y)
    figure["layout"]["yaxis2"] = _axis({"title": {"text": "rows"}, "domain": [0, 0.3]})
    return figure


def chart_all_days(days: list[DayRecord]) -> dict[str, dict[str, Figure]]:
    names = list(dict.fromkeys(lookup.name for record in days for lookup in record.figures.lookups))
    return {name: _chart_lookup_over_days(name, days) for name in names}


def _chart_lookup_over_days(name: str, days: list[DayRecord]) -> dict[str, Figure]:
    found = [
        (record.facts.day, lookup)
        for record in days
        for lookup in record.figures.lookups
        if lookup.name == name
    ]
    x = [day for day, _ in found]
    outcomes = _outcome_bars([lookup.outcomes for _, lookup in found], x, "%{x}: %{y:,} rows")
    for bar in outcomes:  # of a few days: no wider than of many, so that their dates have room
        bar["width"] = 0.85 * min(1, len(x) / FEWEST_BARS)
    latency = [
        _line(x, [getattr(lookup, key) for _, lookup in found], label, dash, "%{x}: %{y:,.0f} ms")
        for label, key, dash in (
            ("p50", "latency_p50_ms", "solid"),
            ("p99", "latency_p99_ms", "dot"),
        )
    ]
    ratios = [lookup.wall_s / lookup.limit_s if lookup.limit_s else None for _, lookup in found]
    wall = [_line(x, ratios, "wall / limit", "solid", "%{x}: %{y:.2f} x the limit")]
    dates = _dates(x)
    return {
        "outcomes": _figure(
            outcomes, height=240, barmode="stack", x=dates, y={"title": {"text": "rows"}}
        ),
        "latency": _figure(
            latency, height=240, x=dates, y={"title": {"text": "ms"}, "rangemode": "tozero"}
        ),
        "wall": _figure(
            wall,
            height=240,
            x=dates,
            y={"title": {"text": "times the limit"}, "rangemode": "tozero"},
        ),
    }


def chart_answers(days: list[DayRecord]) -> dict[str, dict[str, Figure]]:
    """Return a chart of each column of the watched answers, by lookup."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for record in days:
        for name, picture in record.pictures.items():
            for column, sketch in picture.get("answers", {}).items():
                found.setdefault(name, {}).setdefault(column, {})[record.facts.day] = sketch
    return {
        name: {column: _chart_column(sketches) for column, sketches in columns.items()}
        for name, columns in found.items()
    }


def _chart_column(sketches: dict[str, dict[str, Any]]) -> Figure:
    """Draw the frequent texts of a column, or else its values, above the share of nulls."""
    days, of_days = [*sketches], [*sketches.values()]
    dashes = ("solid", "dash", "dot")
    texts = Counter[str]()
    for sketch in of_days:
        texts.update(sketch["texts"])
    if texts:
        shares = {
            text: [sketch["texts"].get(text, 0.0) for sketch in of_days]
            for text, _ in texts.most_common(len(dashes))
        }
        title, form = "share", ".1%"
    else:
        shares = {
            f"p{level * 100:.0f}": [_value_at(level, sketch["points"]) for sketch in of_days]
            for level in (0.5, 0.9, 0.1)
        }
        title, form = "value", ",.4~g"
    traces = [
        _line(days, values, name, dash, f"%{{x}}: %{{y:{form}}}")
        for (name, values), dash in zip(shares.items(), dashes, strict=False)
    ]
    nulls = _bar("null", [sketch["null"] for sketch in of_days], days, "%{x}: %{y:.1%}")
    nulls |= {"yaxis": "y2"}
    nulls["marker"]["color"] = colour("miss")
    x = _dates(days) | {"anchor": "y2"}
    y = {"title": {"text": title}, "domain": [0.42, 1]}
    figure = _figure([nulls, *traces], height=240, x=x, y=y)
    figure["layout"]["yaxis2"] = _axis(
        {"title": {"text": "null"}, "domain": [0, 0.3], "tickformat": ".0%", "rangemode": "tozero"}
    )
    return figure


def _value_at(level: float, points: list[list[float]]) -> float | None:
    return next((value for value, _, up_to in points if up_to >= level), None)


def _dates(days: Sequence[str]) -> dict[str, Any]:
    step = max(1, math.ceil(len(days) / LABELLED_DAYS))
    labelled = list(days[::step])
    return {
        "type": "category",
        "tickangle": 0,
        "tickvals": labelled,
        "ticktext": [
            _date(day, with_year=place == 0 or day[:4] != labelled[place - 1][:4])
            for place, day in enumerate(labelled)
        ],
        "range": [-0.5, len(days) - 0.5],
    }


def _date(day: str, *, with_year: bool) -> str:
    name = DayName.read(day)
    if name is None:
        return day
    date, hour = name.date, name.hour[1:].replace("Z", "h")
    return f"{date:%b} {date.day} {hour}".rstrip() + (f"<br>{date.year}" if with_year else "")


def _bar(
    outcome: str, values: Sequence[float], places: Sequence[Any], text: str, orientation: str = "v"
) -> dict[str, Any]:
    x, y = (places, values) if orientation == "v" else (values, places)
    return {
        "type": "bar",
        "orientation": orientation,
        "name": outcome,
        "x": x,
        "y": y,
        "marker": {"color": colour(outcome), "line": {"width": 0}},
        "hovertemplate": f"{text}<extra>{outcome.replace('_', ' ')}</extra>",
    }


def outcomes_in(counts: Sequence[Mapping[str, int]]) -> list[str]:
    """Return the outcomes that rows have, in display order."""
    return [outcome for outcome in OUTCOMES if any(count.get(outcome) for count in counts)]


def _outcome_bars(
    counts: Sequence[Mapping[str, int]], places: Sequence[Any], text: str, orientation: str = "v"
) -> list[dict[str, Any]]:
    """Return a bar for each outcome that rows have, with its count at each place."""
    return [
        _bar(outcome, [count.get(outcome, 0) for count in counts], places, text, orientation)
        for outcome in outcomes_in(counts)
    ]


def colour(outcome: str) -> str:
    """Return the CSS variable of an outcome's colour."""
    return f"var(--{outcome.replace('_', '-')})"


def _line(
    x: Sequence[str], y: Sequence[float | None], name: str, dash: str, text: str
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(x) <= FEWEST_BARS else "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": {"color": _INK, "dash": dash, "width": 2},
        "marker": {"size": 5},
        "hovertemplate": f"{text}<extra>{name}</extra>",
    }


def _clock(start_s: float) -> str:
    return dt.datetime.fromtimestamp(start_s, dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _axis(options: dict[str, Any]) -> dict[str, Any]:
    if "title" in options:
        options = options | {"title": options["title"] | {"font": {"size": 12}, "standoff": 6}}
    lines = dict.fromkeys(("gridcolor", "zerolinecolor", "linecolor"), _GRID)
    return {**lines, "automargin": True, "fixedrange": True, **options}


def _figure(
    traces: list[dict[str, Any]],
    *,
    height: int,
    barmode: str | None = None,
    x: dict[str, Any],
    y: dict[str, Any],
) -> Figure:
    layout: dict[str, Any] = {
        "height": height,
        "margin": {"l": 56, "r": 12, "t": 12, "b": 40},
        "font": {"family": _FONT, "size": 13, "color": _INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "showlegend": False,  # the page has a legend that wraps
        "xaxis": _axis(x),
        "yaxis": _axis(y),
        "bargap": 0.15,
    }
    if barmode:
        layout["barmode"] = barmode
    return {"data": traces, "layout": layout, "legend": [_legend(trace) for trace in traces]}


def _legend(trace: dict[str, Any]) -> dict[str, str]:
    if trace["type"] == "bar":
        # an outcome; the name of a line may be a text of the data
        name = trace["name"].replace("_", " ")
        return {"name": name, "kind": "bar", "colour": trace["marker"]["color"]}
    return {"name": trace["name"], "kind": trace["line"]["dash"], "colour": trace["line"]["color"]}
