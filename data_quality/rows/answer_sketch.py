"""Sketches of a day's answers, small enough for the run record, and their largest change.

A sketch of a column has shares of its answers: null, equal to a frequent text, and up to each of
some values. A text counts by its characters too, a list by its items, a time from the day's start.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_quality.day_names import DayName
from data_quality.rows.task_rows import Floats, TaskRows, as_array, as_numbers
from data_quality.rows.written_day import WrittenDay
from jobs.schema import columns as schema
from jobs.schema.records import LookupFacts

SAMPLE = 10_000  # answers of a lookup, about
FEWEST_ANSWERS = 100  # that a day is compared by
SPREADS = 4  # standard deviations of the share that are usual
FREQUENT = 0.01  # share of a text that a sketch names
LONGEST = 60  # characters of such a text
LEVELS = np.arange(1, 40) / 40  # of the points of a sketch

Sketch = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """A share of a column's answers, today and on the days before.

    Attributes:
        what: The answers, as "are null".
        tolerated: The largest difference from `usual` that is as usual.
    """

    what: str
    now: float
    usual: float
    tolerated: float

    @property
    def excess(self) -> float:
        return abs(self.now - self.usual) - self.tolerated


def draw_sample(rows: TaskRows, lookup: LookupFacts, day: WrittenDay) -> pa.Table:
    """Returns the answers that came by a call, of a large day a part of them."""
    return rows.once(("sample", lookup.name), lambda: _draw(rows, lookup, day))


def _draw(rows: TaskRows, lookup: LookupFacts, day: WrittenDay) -> pa.Table:
    metrics = day.find_metrics(lookup)
    part = SAMPLE / max(1, day.output.rows if metrics is None else metrics.answered)
    drawn = rows.one_of(schema.source(lookup.name), "call")
    drawn &= rows.one_of(schema.status(lookup.name), "ok")
    if part < 1:  # with a fixed seed: judged again, a day has the same verdict
        drawn &= np.random.default_rng(0).random(len(rows)) < part
    names = [column for column, _ in lookup.returns]
    return rows.table.select(names).take(pa.array(np.flatnonzero(drawn)))


def sketch_answers(samples: Sequence[pa.Table], lookup: LookupFacts, day: str) -> dict[str, Sketch]:
    """Returns the sketch of each column. Of a lookup with a personal key it names no text."""
    name = DayName.read(day)
    if not samples or name is None:
        return {}
    answers = pa.concat_tables(samples, promote_options="permissive").unify_dictionaries()
    return {
        column: _sketch(as_array(answers[column]), kind, name.date, named=not lookup.hidden_key)
        for column, kind in lookup.returns
    }


def _sketch(column: pa.Array, kind: str, day: dt.date, *, named: bool) -> Sketch:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    given = column.drop_null()
    sketch: Sketch = {"type": kind, "answers": len(column), "texts": {}, "points": []}
    numbers = _numbers(given, day)
    if numbers is not None:
        numbers = np.sort(numbers[np.isfinite(numbers)])
        sketch["points"] = _points(numbers)
    if named and len(given) and _is_text(given.type):
        counts = given.value_counts()
        frequent = counts.filter(pc.greater_equal(counts.field("counts"), FREQUENT * len(given)))
        sketch["texts"] = {
            one["values"][:LONGEST]: one["counts"] / len(given) for one in frequent.to_pylist()
        }
    there = len(given) if numbers is None else len(numbers)
    return sketch | {"null": 1 - there / len(column) if len(column) else 0.0}


def _numbers(given: pa.Array, day: dt.date) -> Floats | None:
    """Returns numbers in place of values; None of a type that has no order."""
    kind = given.type
    if _is_text(kind):
        given = pc.utf8_length(given)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        given = pc.binary_length(given)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        given = pc.list_value_length(given)
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        micros = given.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
        start = dt.datetime.combine(day, dt.time(), dt.UTC).timestamp()
        return as_numbers(micros.cast(pa.int64())) / 1e6 - start
    elif pa.types.is_boolean(kind):
        given = given.cast(pa.int8())
    elif pa.types.is_nested(kind):
        return None
    return as_numbers(given)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _points(numbers: Floats) -> list[list[float]]:
    """Returns some values, each with the shares of values below it and up to it."""
    if not len(numbers):
        return []
    at = np.unique(numbers[(LEVELS * len(numbers)).astype(np.int64)])
    below, up_to = (np.searchsorted(numbers, at, side) / len(numbers) for side in ("left", "right"))
    return [*map(list, zip(at.tolist(), below.tolist(), up_to.tolist(), strict=True))]


def largest_change(now: Sketch, before: Sequence[Sketch], tolerated: float) -> Change:
    """Returns the share that is furthest from usual, which is its mean over the days before.

    As usual counts `tolerated`, and four standard deviations: of a sample of today's size, and of
    the days before beyond what their sizes explain.

    Args:
        now: The day's sketch, of at least FEWEST_ANSWERS.
        before: Sketches of earlier days, with the same type.
        tolerated: The largest difference of a share.
    """
    changes = []
    for what, share, of, shares, sizes in _shares(now, before):
        usual = float(np.mean(shares))
        spread = max(0.0, float(np.var(shares) - np.mean(usual * (1 - usual) / sizes)))
        middle = (share + usual) / 2
        chance = middle * (1 - middle) / of
        changes.append(Change(what, share, usual, tolerated + SPREADS * (spread + chance) ** 0.5))
    return max(changes, key=lambda change: change.excess)


def _shares(
    now: Sketch, before: Sequence[Sketch]
) -> Iterator[tuple[str, float, float, Sequence[float] | Floats, Floats]]:
    """Yields which answers, their share today, of how many, and both on each day before."""
    sizes = np.array([one["answers"] for one in before], float)
    yield "are null", now["null"], now["answers"], [one["null"] for one in before], sizes
    days = [one for one in before if one["points"]]
    if not now["points"] or not days:
        return
    given, *sizes_given = (one["answers"] * (1 - one["null"]) for one in (now, *days))
    sizes = np.array(sizes_given)
    for text in dict.fromkeys(text for one in (now, *days) for text in one["texts"]):
        shares = [one["texts"].get(text, 0.0) for one in days]
        yield f"are {text!r}", now["texts"].get(text, 0.0), given, shares, sizes
    at = np.array(sorted({point[0] for one in (now, days[-1]) for point in one["points"]}))
    today, *earlier = (_shares_up_to(at, one["points"]) for one in (now, *days))
    for value, share, shares in zip(at, today, np.transpose(earlier), strict=True):
        yield f"are at most {value:g}", float(share), given, shares, sizes


def _shares_up_to(at: Floats, points: list[list[float]]) -> Floats:
    """Returns the shares of answers that are at most these values; between points about."""
    known = np.array(points)
    found: Floats = np.interp(
        at, np.repeat(known[:, 0], 2), known[:, 1:].ravel(), known[0, 1] / 2, (1 + known[-1, 2]) / 2
    )
    return found
