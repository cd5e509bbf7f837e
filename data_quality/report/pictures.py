"""The data of a day's charts, small enough for the run record."""

import datetime as dt
import math
from collections import Counter
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from data_quality.check import count_values
from data_quality.rows.answer_sketch import draw_sample, sketch_answers
from data_quality.rows.task_rows import Floats, Places, TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.schema import columns as schema
from jobs.schema.columns import OUTCOMES
from jobs.schema.records import DayFacts, LookupFacts

SLOTS = 60  # the highest number of time slots in a chart
_WIDTHS_S = (1, 5, 15, 60, 300, 900, 3600, 14_400)
_STEPS = 25  # latency classes per power of ten: each is 10 % wider than the one before
_NARROWEST_MS = 0.1
_KNOWN = (*OUTCOMES, schema.NONE)

Cells = Counter[tuple[int, str, int]]  # rows by slot, outcome and latency class
# of some rows, by lookup: cells, values by column, and a sample of the answers
Part = tuple[dict[str, Cells], dict[str, Counter[str]], dict[str, pa.Table]]


class Pictures:
    """Computes for each lookup time slots, their width in s, the latency histogram, the number of
    values of each column, and where the declaration watches the answers a sketch of each column.

    A slot has its start (s since the epoch), rows by outcome, and p50 and p99 (ms) of the rows with
    an answer, within 10 %, from the histogram's classes. Lookups without audit columns are omitted.
    """

    def __init__(self, facts: DayFacts) -> None:
        self._facts = facts

    @cached_property
    def _width_s(self) -> int:
        return _width_s(self._facts)

    def summarize(self, rows: TaskRows, day: WrittenDay) -> Part:
        needed = (schema.status, schema.attempts, schema.latency_ms)
        lookups = self._facts.declared.lookups
        drawn = [
            lookup
            for lookup in lookups
            if {column(lookup.name) for column in needed} <= set(rows.names)
        ]
        watched = drawn if self._facts.declared.answer_change is not None else ()
        return (
            {lookup.name: self._cells(rows, lookup) for lookup in drawn},
            {lookup.name: count_values(rows, lookup) for lookup in drawn},
            {lookup.name: draw_sample(rows, lookup, day) for lookup in watched},
        )

    def _cells(self, rows: TaskRows, lookup: LookupFacts) -> Cells:
        """Count the rows with an attempt."""
        begun, latency = rows.calls(lookup.name).begun, rows.numbers(schema.latency_ms(lookup.name))
        drawn = ~np.isnan(begun) & ~np.isnan(latency)
        # A clock that is wrong by years yields a single slot at either end, not a million slots.
        first, last = (int(moment_s // self._width_s) for moment_s in _span_s(self._facts))
        slots = _whole(begun[drawn] / (self._width_s * 1e6), first - SLOTS, last + SLOTS)
        wide = np.maximum(latency[drawn], _NARROWEST_MS) / _NARROWEST_MS
        classes = _whole(np.log10(wide) * _STEPS, 0, 10 * _STEPS)
        outcomes = np.full(len(rows), len(OUTCOMES))
        for number, outcome in enumerate(OUTCOMES):
            outcomes[rows.one_of(schema.status(lookup.name), outcome)] = number
        sizes = (SLOTS * 2 + last - first + 1, len(_KNOWN), 10 * _STEPS + 1)
        codes, counts = np.unique(
            np.ravel_multi_index((slots - first + SLOTS, outcomes[drawn], classes), sizes),
            return_counts=True,
        )
        cells = zip(
            *(part.tolist() for part in np.unravel_index(codes, sizes)),
            counts.tolist(),
            strict=True,
        )
        return Counter(
            {
                (slot + first - SLOTS, _KNOWN[outcome], step): count
                for slot, outcome, step, count in cells
            }
        )

    def drawn(self, parts: list[Part]) -> dict[str, Any]:
        cells: dict[str, Cells] = {}
        values: dict[str, Counter[str]] = {}
        for part, counted, _ in parts:
            for name, found in part.items():
                cells.setdefault(name, Counter()).update(found)
                values.setdefault(name, Counter()).update(counted[name])
        pictures = {
            name: _picture(found, self._width_s) | {"values": dict(values[name])}
            for name, found in cells.items()
        }
        for lookup in self._facts.declared.lookups:
            samples = [part[lookup.name] for _, _, part in parts if lookup.name in part]
            if sketches := sketch_answers(samples, lookup, self._facts.day):
                pictures[lookup.name]["answers"] = sketches
        return pictures


def _whole(values: Floats, lowest: int, highest: int) -> Places:
    return np.clip(np.floor(values), lowest, highest).astype(np.int64)


def _width_s(facts: DayFacts) -> int:
    began_s, ended_s = _span_s(facts)
    return next((width for width in _WIDTHS_S if ended_s - began_s <= width * SLOTS), _WIDTHS_S[-1])


def _span_s(facts: DayFacts) -> tuple[float, float]:
    began = dt.datetime.fromisoformat(facts.started_at)
    ended = dt.datetime.fromisoformat(facts.finished_at) if facts.finished_at else began
    return began.timestamp(), ended.timestamp()


def _picture(cells: Cells, width_s: int) -> dict[str, Any]:
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
            {
                "from_ms": _edge_ms(step),
                "to_ms": _edge_ms(step + 1),
                "outcome": outcome,
                "rows": count,
            }
            for (step, outcome), count in sorted(histogram.items())
        ],
    }


def _edge_ms(step: int) -> float:
    return float(f"{_NARROWEST_MS * 10 ** (step / _STEPS):.4g}")


def _percentile(classes: Counter[int], part: float) -> float | None:
    wanted, seen = math.ceil(part * classes.total()), 0
    for step in sorted(classes):
        seen += classes[step]
        if seen >= wanted:
            return _edge_ms(step + 1)
    return None
