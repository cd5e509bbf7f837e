"""Sketches of a day's answers, small enough for the run record, and their largest change.

A sketch of a column has shares of its answers: null, equal to a frequent text, and up to each of
some values. A text counts by its characters too, a list by its items.
"""

import datetime as dt
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_quality.day_names import DayName
from data_quality.rows.task_rows import Floats, TaskRows, as_numbers
from data_quality.rows.written_day import WrittenDay
from jobs.arrow_values import one_chunk
from jobs.schema import columns as schema
from jobs.schema.records import LookupFacts
from jobs.wording import rounded

SAMPLE = 10_000  # answers of a lookup, about
FEWEST_ANSWERS = 100  # that a day is compared by
SPREADS = 4  # standard deviations of the share that are usual
FREQUENT = 0.01  # share of a text that a sketch names
LONGEST = 60  # characters of such a text
LEVELS = np.arange(1, 40) / 40  # of the points of a sketch

RECENT = 3  # days; values that changed on most of them always do
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

Sketch = dict[str, Any]
# the name of the answers at an index, the share of each today, and the shares on earlier days
Shares = tuple[Callable[[int], str], Floats, Floats]
SharesOf = Callable[[Sketch, Sequence[Sketch]], Shares]


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
        return round(abs(self.now - self.usual) - self.tolerated, 9)  # 0.4 - 0.3 is over 0.1


def draw_sample(rows: TaskRows, lookup: LookupFacts, day: WrittenDay) -> pa.Table:
    """Return the answers that came by a call, of a large day a part of them."""
    return rows.once(("sample", lookup.name), lambda: _draw(rows, lookup, day))


def _draw(rows: TaskRows, lookup: LookupFacts, day: WrittenDay) -> pa.Table:
    metrics = day.find_metrics(lookup)
    part = SAMPLE / max(1, day.output.rows if metrics is None else metrics.answered)
    drawn = rows.one_of(schema.source(lookup.name), "call")
    drawn &= rows.one_of(schema.status(lookup.name), "ok")
    if part < 1:  # with a fixed seed: judged again, a day has the same verdict
        drawn &= np.random.default_rng(0).random(len(rows)) < part
    return rows.table.select(lookup.columns).take(pa.array(np.flatnonzero(drawn)))


def sketch_answers(samples: Sequence[pa.Table], lookup: LookupFacts, day: str) -> dict[str, Sketch]:
    """Return the sketch of each column, without texts for a lookup with a personal key."""
    name = DayName.read(day)
    if not samples or name is None:
        return {}
    answers = pa.concat_tables(samples, promote_options="permissive").unify_dictionaries()
    return {
        column: _sketch(one_chunk(answers[column]), kind, name.date, named=not lookup.hidden_key)
        for column, kind in lookup.returns
    }


def _sketch(column: pa.Array, kind: str, day: dt.date, *, named: bool) -> Sketch:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    given = column.drop_null()
    sketch: Sketch = {"type": kind, "answers": len(column), "texts": {}, "points": []}
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        sketch["start"] = dt.datetime.combine(day, dt.time(), dt.UTC).timestamp()
    numbers = _numbers(given)
    if numbers is not None:
        numbers = np.sort(numbers[np.isfinite(numbers)])
        sketch["points"] = _points(numbers)
    if named and len(given) and _is_text(given.type):
        # texts with the same beginning count together: a sketch has one share of each name
        counts = pc.utf8_slice_codeunits(given, 0, LONGEST).value_counts()
        frequent = counts.filter(pc.greater_equal(counts.field("counts"), FREQUENT * len(given)))
        sketch["texts"] = {
            pair["values"]: pair["counts"] / len(given) for pair in frequent.to_pylist()
        }
    present = len(given) if numbers is None else len(numbers)
    return sketch | {"null": 1 - present / len(column) if len(column) else 0.0}


def _numbers(given: pa.Array) -> Floats | None:
    """Return numbers in place of values; None of a type that has no order."""
    kind = given.type
    if _is_text(kind):
        given = pc.utf8_length(given)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        given = pc.binary_length(given)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        given = pc.list_value_length(given)
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        micros = given.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
        return as_numbers(micros.cast(pa.int64())) / 1e6
    elif pa.types.is_boolean(kind):
        given = given.cast(pa.int8())
    elif pa.types.is_nested(kind):
        return None
    return as_numbers(given)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _points(numbers: Floats) -> list[list[float]]:
    """Return some values, each with the shares of values below it and up to it."""
    if not len(numbers):
        return []
    at = np.unique(numbers[(LEVELS * len(numbers)).astype(np.int64)])
    below, up_to = (np.searchsorted(numbers, at, side) / len(numbers) for side in ("left", "right"))
    return [*map(list, zip(at.tolist(), below.tolist(), up_to.tolist(), strict=True))]


def largest_change(now: Sketch, before: Sequence[Sketch], tolerated: float) -> Change:
    """Return the share that is furthest from usual, which is its mean over the days before.

    As usual counts `tolerated`, and four standard deviations: of a sample of today's size, and of
    the days before beyond what their sizes explain. Values that differ on most days, such as
    increasing numbers, are not compared. Times are compared as they are and by their distance from
    the day's start: either may be as usual.

    Args:
        now: The day's sketch, of at least FEWEST_ANSWERS.
        before: Sketches of earlier days, oldest first, with the same type.
        tolerated: The largest difference of a share.
    """
    found = [_largest(_null_shares, now, before, tolerated)]
    days = [sketch for sketch in before if sketch["points"]]
    if now["points"] and len(days) > RECENT:
        found.append(_unless_moving(_text_shares, now, days, tolerated))
        by_value = (_point_shares, _moved_shares) if "start" in now else (_point_shares,)
        changes = [_unless_moving(shares, now, days, tolerated) for shares in by_value]
        judged = [change for change in changes if change is not None]
        found.append(min(judged, key=_excess) if judged else None)
    return max((change for change in found if change is not None), key=_excess)


def _excess(change: Change) -> float:
    return change.excess


def _unless_moving(
    shares: SharesOf, now: Sketch, before: Sequence[Sketch], tolerated: float
) -> Change | None:
    """Return the largest change; None if most of the last days had changed too."""
    change = _largest(shares, now, before, tolerated)
    if change is None or change.excess <= 0:
        return change
    recent = [_largest(shares, before[-k], before[:-k], tolerated) for k in range(1, RECENT + 1)]
    changed = sum(drift is not None and drift.excess > 0 for drift in recent)
    return None if 2 * changed > RECENT else change


def _largest(
    shares: SharesOf, now: Sketch, before: Sequence[Sketch], tolerated: float
) -> Change | None:
    shown, today, earlier = shares(now, before)
    if not len(today):
        return None
    part = 0 if shares is _null_shares else 1  # the other shares are of the answers with a value
    of, *sizes = (
        max(1, sketch["answers"] * (1 - part * sketch["null"])) for sketch in (now, *before)
    )
    usual, middle = earlier.mean(axis=0), (today + earlier.mean(axis=0)) / 2
    explained = usual * (1 - usual) * np.mean(1 / np.array(sizes))
    spread = np.maximum(0, earlier.var(axis=0) - explained)
    allowed = tolerated + SPREADS * np.sqrt(spread + middle * (1 - middle) / of)
    at = int(np.argmax(np.abs(today - usual) - allowed))
    return Change(shown(at), float(today[at]), float(usual[at]), float(allowed[at]))


def _null_shares(now: Sketch, before: Sequence[Sketch]) -> Shares:
    earlier = np.array([[sketch["null"]] for sketch in before])
    return lambda _: "are null", np.array([now["null"]]), earlier


def _text_shares(now: Sketch, before: Sequence[Sketch]) -> Shares:
    texts = [*dict.fromkeys(text for sketch in (now, *before) for text in sketch["texts"])]
    today, *earlier = (
        [sketch["texts"].get(text, 0.0) for text in texts] for sketch in (now, *before)
    )
    return lambda at: f"are {texts[at]!r}", np.array(today), np.array(earlier)


def _point_shares(now: Sketch, before: Sequence[Sketch], *, moved: bool = False) -> Shares:
    days = []
    for sketch in (now, *before):
        known = np.array(sketch["points"])
        known[:, 0] -= sketch["start"] if moved else 0
        days.append(known)
    values = np.unique(np.concatenate([days[0][:, 0], days[-1][:, 0]]))
    today, *earlier = (_shares_up_to(values, known) for known in days)

    def shown(at: int) -> str:
        if "start" not in now:
            return f"are at most {rounded(values[at], 6)}"
        seconds = float(values[at]) + (now["start"] if moved else 0)
        return f"are at most {_EPOCH + dt.timedelta(seconds=seconds)}"

    return shown, today, np.array(earlier)


_moved_shares = functools.partial(_point_shares, moved=True)


def _shares_up_to(at: Floats, known: Floats) -> Floats:
    """Return the shares of answers that are at most these values; between points about."""
    found: Floats = np.interp(
        at, np.repeat(known[:, 0], 2), known[:, 1:].ravel(), known[0, 1] / 2, (1 + known[-1, 2]) / 2
    )
    return found
