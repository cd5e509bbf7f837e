"""What the report draws of a day, counted in one Spark job and small enough to stay in the record of the run."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it

from data_quality.findings import missing
from jobs import schema
from jobs.schema import DayFacts, LookupFacts

SLOTS = 60  # the time of the run is drawn in at most so many pieces
_WIDTHS_S = (1, 5, 15, 60, 300, 900, 3600, 14_400)
_STEPS = 25  # latency classes per power of ten: each 10 % wider than the one before
_NARROWEST_MS = 0.1


def count(frame: DataFrame, facts: DayFacts) -> dict[str, Any]:
    """By lookup: the width of a slot in s, the slots of the run's time, and the latency histogram.

    A slot has its start (s since the epoch), rows by outcome, and p50 and p99 (ms) of the rows with an answer, read off
    the histogram's classes, hence within 10 %. Lookups without the audit columns are left out.
    """
    lookups = [
        lookup
        for lookup in facts.declared.lookups
        if not missing(
            frame, [schema.status(lookup.name), schema.attempts(lookup.name), schema.latency_ms(lookup.name)]
        )
    ]
    if not lookups or not facts.files:
        return {}
    width_s = _width_s(facts)
    groups = reduce(
        lambda one, other: one.unionAll(other), (_classes(frame, lookup, facts, width_s) for lookup in lookups)
    )
    cells: dict[str, Counter[tuple[int, str, int]]] = {lookup.name: Counter() for lookup in lookups}
    for row in groups.groupBy("lookup", "slot", "outcome", "class").count().collect():
        cells[row["lookup"]][row["slot"], row["outcome"], row["class"]] += row["count"]
    return {name: _picture(found, width_s) for name, found in cells.items()}


def _width_s(facts: DayFacts) -> int:
    began_s, ended_s = _span_s(facts)
    return next((width for width in _WIDTHS_S if ended_s - began_s <= width * SLOTS), _WIDTHS_S[-1])


def _span_s(facts: DayFacts) -> tuple[float, float]:
    """Start and end of the run, in s since the epoch."""
    began = dt.datetime.fromisoformat(facts.started_at)
    ended = dt.datetime.fromisoformat(facts.finished_at) if facts.finished_at else began
    return began.timestamp(), ended.timestamp()


def _classes(frame: DataFrame, lookup: LookupFacts, facts: DayFacts, width_s: int) -> DataFrame:
    """Of each row with an attempt: its slot, its outcome, its latency class."""
    first = F.try_element_at(F.col(schema.attempts(lookup.name)), F.lit(1))["start"]
    latency = F.greatest(F.col(schema.latency_ms(lookup.name)), F.lit(_NARROWEST_MS))
    # A clock that is wrong by years gives one slot at either end, not a million slots.
    ends = [moment_s // width_s for moment_s in _span_s(facts)]
    slot = _between(F.floor(first / (width_s * 1_000_000)), int(ends[0]) - SLOTS, int(ends[1]) + SLOTS)
    step = _between(F.floor(F.log10(latency / _NARROWEST_MS) * _STEPS), 0, 10 * _STEPS)
    outcome = F.col(schema.status(lookup.name))
    known = F.when(outcome.isin(*schema.OUTCOMES), outcome).otherwise("none")
    columns = [F.lit(lookup.name).alias("lookup"), slot.alias("slot"), known.alias("outcome"), step.alias("class")]
    return frame.where(first.isNotNull() & latency.isNotNull()).select(*columns)


def _between(value: Column, lowest: int, highest: int) -> Column:
    return F.least(F.greatest(value, F.lit(lowest)), F.lit(highest)).cast("int")


def _picture(cells: Counter[tuple[int, str, int]], width_s: int) -> dict[str, Any]:
    histogram: Counter[tuple[int, str]] = Counter()
    slots: dict[int, Counter[str]] = {}
    answered: dict[int, Counter[int]] = {}
    for (slot, outcome, step), count in cells.items():
        histogram[step, outcome] += count
        slots.setdefault(slot, Counter())[outcome] += count
        if outcome in ("ok", "miss"):
            answered.setdefault(slot, Counter())[step] += count
    return {
        "width_s": width_s,
        "slots": [
            {
                "start_s": slot * width_s,
                "outcomes": dict(sorted(slots[slot].items())),
                "p50_ms": _percentile(answered.get(slot, Counter()), 0.50),
                "p99_ms": _percentile(answered.get(slot, Counter()), 0.99),
            }
            for slot in sorted(slots)
        ],
        "latency": [
            {"from_ms": _edge_ms(step), "to_ms": _edge_ms(step + 1), "outcome": outcome, "rows": count}
            for (step, outcome), count in sorted(histogram.items())
        ],
    }


def _edge_ms(step: int) -> float:
    return float(f"{_NARROWEST_MS * 10 ** (step / _STEPS):.4g}")


def _percentile(classes: Counter[int], part: float) -> float | None:
    """Upper edge of the class in which that part of the rows is reached."""
    wanted, seen = math.ceil(part * classes.total()), 0
    for step in sorted(classes):
        seen += classes[step]
        if seen >= wanted:
            return _edge_ms(step + 1)
    return None
