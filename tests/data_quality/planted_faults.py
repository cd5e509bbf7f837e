"""One fault at a time, planted in the written files of an honest day, with the checks that it must turn red.

Each fault changes as little as the world would: a row moved takes its columns along, a call that lasts longer has a
later end. A place (`first`, `middle`, `last`) says where among the rows that can carry the fault.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from honest_day import Day

ALL_MODES = ("ordered", "unordered", "key_ordered")
PLACES = ("first", "middle", "last")


@dataclass(frozen=True)
class Planted:
    """What has to be seen: the checks that fail, and the rows that evidence has to name (source file's name, row)."""

    red: frozenset[str]
    rows: frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Fault:
    name: str
    plant: Callable[[Day, str], Planted]
    modes: tuple[str, ...] = ALL_MODES
    quick: bool = True  # judged on a small day in `make test` too


# -- tools -------------------------------------------------------------------------------------------------------------
def _identity(row: dict[str, Any]) -> tuple[str, int]:
    return row["_source_file"].rsplit("/", 1)[-1], row["_source_row"]


def _planted(*red: str, rows: list[dict[str, Any]]) -> Planted:
    return Planted(frozenset(red), frozenset(_identity(row) for row in rows))


def _tasks(day: Day) -> dict[int, list[str]]:
    """Files of each task that wrote rows, in the order of writing."""
    tasks: dict[int, list[str]] = {}
    for name in sorted(day.outputs):
        if day.outputs[name].num_rows:
            tasks.setdefault(day.outputs[name]["_partition"][0].as_py(), []).append(name)
    return tasks


def _choose(candidates: list[Any], place: str) -> Any:
    assert candidates, "no row can carry this fault"
    return candidates[{"first": 0, "middle": len(candidates) // 2, "last": -1}[place]]


def _column(table: pa.Table, name: str) -> list[Any]:
    return table[name].to_pylist()


def _places(day: Day, condition: Callable[[pa.Table], Any]) -> list[tuple[str, int]]:
    """(file, place in it) of the rows for which the condition holds, in the order of writing."""
    found = []
    for names in _tasks(day).values():
        for name in names:
            mask = condition(day.outputs[name])
            mask = mask if isinstance(mask, list) else pc.fill_null(mask, False).to_pylist()
            found += [(name, place) for place, holds in enumerate(mask) if holds]
    return found


def _row(day: Day, at: tuple[str, int]) -> dict[str, Any]:
    name, place = at
    return day.outputs[name].slice(place, 1).to_pylist()[0]


def _put(day: Day, at: tuple[str, int], row: dict[str, Any]) -> None:
    name, place = at
    table = day.outputs[name]
    changed = pa.Table.from_pylist([row], table.schema)
    day.outputs[name] = pa.concat_tables([table.slice(0, place), changed, table.slice(place + 1)])


def _reorder(day: Day, name: str, order: list[int]) -> None:
    day.outputs[name] = day.outputs[name].take(pa.array(order, pa.int64()))


def _called(outcome: str, lookup: str = "weather") -> Callable[[pa.Table], Any]:
    def condition(table: pa.Table) -> Any:
        calls = pc.greater(pc.list_value_length(table[f"_{lookup}_attempts"]), 0)
        return pc.and_(pc.equal(table[f"_{lookup}_status"], outcome), calls)

    return condition


# -- rows --------------------------------------------------------------------------------------------------------------
def row_lost(day: Day, place: str) -> Planted:
    at = _choose(_places(day, lambda table: [True] * table.num_rows), place)
    row, name = _row(day, at), at[0]
    table = day.outputs[name]
    day.outputs[name] = pa.concat_tables([table.slice(0, at[1]), table.slice(at[1] + 1)])
    return _planted("every_row_once", rows=[row])


def row_doubled(day: Day, place: str) -> Planted:
    at = _choose(_places(day, lambda table: [True] * table.num_rows), place)
    table = day.outputs[at[0]]
    day.outputs[at[0]] = pa.concat_tables([table.slice(0, at[1] + 1), table.slice(at[1])])
    return _planted("every_row_once", rows=[_row(day, at)])


def row_of_another_input(day: Day, place: str) -> Planted:
    """One row lost, and one that the input never had in its place."""
    at = _choose(_places(day, lambda table: [True] * table.num_rows), place)
    row = _row(day, at)
    foreign = {**row, "_source_row": 5_000_000}
    _put(day, at, foreign)
    return _planted("every_row_once", rows=[row, foreign])


# -- order -------------------------------------------------------------------------------------------------------------
def _neighbours(day: Day, place: str, same: tuple[str, ...]) -> tuple[str, int, int]:
    """Two rows of one file, the second the next one after the first that agrees in these columns."""
    pairs = []
    for names in _tasks(day).values():
        for name in names:
            columns = [_column(day.outputs[name], column) for column in same]
            seen: dict[tuple[Any, ...], int] = {}
            for number, values in enumerate(zip(*columns, strict=True)):
                if values in seen:
                    pairs.append((name, seen[values], number))
                seen[values] = number
    return _choose(pairs, place)


def rows_swapped(day: Day, place: str) -> Planted:
    name, one, other = _neighbours(day, place, ("_segment",))
    return _swap(day, name, one, other)


def rows_of_a_key_swapped(day: Day, place: str) -> Planted:
    name, one, other = _neighbours(day, place, ("_segment", "carrier"))
    return _swap(day, name, one, other, rest=False)


def _swap(day: Day, name: str, one: int, other: int, *, rest: bool = True) -> Planted:
    """The writer's claim follows the files, as it would: only the input_seq gives the swap away."""
    order = list(range(day.outputs[name].num_rows))
    order[one], order[other] = other, one
    first, second = _row(day, (name, one)), _row(day, (name, other))
    claims = day.outputs[name]["_output_seq"]
    _reorder(day, name, order)
    table = day.outputs[name]
    day.outputs[name] = table.set_column(table.schema.get_field_index("_output_seq"), "_output_seq", claims)
    return _planted("order_held", rows=[first] if other == one + 1 or not rest else [first, second])


def claim_contradicts_files(day: Day, place: str) -> Planted:
    at = _choose(_places(day, lambda table: [False] + [True] * (table.num_rows - 1)), place)
    row = {**_row(day, at), "_output_seq": -1}
    _put(day, at, row)
    return _planted("watermarks_not_crossed" if day.declared.mode == "unordered" else "order_held", rows=[row])


def row_over_a_watermark(day: Day, place: str) -> Planted:
    """The last row of a segment comes after the first of the next: the marks stay as they were."""
    borders = []
    for names in _tasks(day).values():
        for name in names:
            segments = _column(day.outputs[name], "_segment")
            borders += [
                (name, number)
                for number in range(len(segments) - 2)
                if segments[number] < segments[number + 1] == segments[number + 2]
            ]
    name, number = _choose(borders, place)
    row = _row(day, (name, number))
    order = list(range(day.outputs[name].num_rows))
    order[number], order[number + 1] = number + 1, number
    claims = day.outputs[name]["_output_seq"]
    _reorder(day, name, order)
    table = day.outputs[name]
    day.outputs[name] = table.set_column(table.schema.get_field_index("_output_seq"), "_output_seq", claims)
    red = ["watermarks_not_crossed", "order_held"] if day.declared.mode == "ordered" else ["watermarks_not_crossed"]
    return _planted(*red, rows=[row])


def segment_miscounted(day: Day, place: str) -> Planted:
    """The last row that left in its segment claims the next one."""
    ends = []
    for names in _tasks(day).values():
        for name in names:
            segments = _column(day.outputs[name], "_segment")
            ends += [(name, n) for n in range(len(segments) - 1) if segments[n] + 1 == segments[n + 1]]
    at = _choose(ends, place)
    row = _row(day, at)
    row["_segment"] += 1
    _put(day, at, row)
    return _planted("watermarks_not_crossed", rows=[row])


def late_row_not_marked(day: Day, place: str) -> Planted:
    at = _choose(_places(day, lambda table: table["_late"]), place)
    row = {**_row(day, at), "_late": False}
    _put(day, at, row)
    return _planted("late_rows_marked", rows=[row])


def row_marked_late_wrongly(day: Day, place: str) -> Planted:
    at = _choose(_places(day, lambda table: pc.invert(table["_late"])), place)
    row = {**_row(day, at), "_late": True}
    _put(day, at, row)
    return _planted("late_rows_marked", rows=[row])


# -- calls -------------------------------------------------------------------------------------------------------------
def _calls_in_time(
    day: Day, lookup: str = "weather"
) -> Iterator[tuple[list[str], list[tuple[int, int, tuple[str, int]]]]]:
    """Per task: its calls as (first start, last end, place), by start."""
    for names in _tasks(day).values():
        calls = []
        for name in names:
            for place, attempts in enumerate(_column(day.outputs[name], f"_{lookup}_attempts")):
                if attempts:
                    calls.append((attempts[0]["start"], attempts[-1]["end"], (name, place)))
        yield names, sorted(calls)


def call_over_the_limit(day: Day, place: str) -> Planted:
    """first: a task's first call began three seconds earlier; else: the last one before a standstill ended later.

    Only there does a longer call leave the number in flight as it was.
    """
    candidates = []
    for _, calls in _calls_in_time(day):
        if place == "first":
            candidates.append(calls[0][2])
            continue
        latest, last = 0, None
        for number, (start, end, at) in enumerate(calls):
            if latest and start - latest > 5_000_000:
                candidates.append(last)
            if end > latest:
                latest, last = end, at
            if number == len(calls) - 1:
                candidates.append(last)
    candidates = [at for at in candidates if _row(day, at)["_weather_status"] in ("ok", "miss", "timeout", "error")]
    at = _choose(candidates, place)
    row = _row(day, at)
    if row["_weather_status"] not in ("ok", "miss"):
        row |= {"_weather_status": "miss", "_weather_source": "call", "_weather_error": None}
    if place == "first":
        row["_weather_attempts"][0]["start"] -= 3_000_000
    else:
        row["_weather_attempts"][-1]["end"] += 3_000_000
    row["_weather_latency_ms"] += 3_000.0
    _put(day, at, row)
    return _planted("weather__time_limit_held", rows=[row])


def latency_understated(day: Day, place: str) -> Planted:
    """The row says it was quick; its attempts say otherwise."""
    at = _choose(_places(day, _called("ok")), place)
    row = _row(day, at)
    row["_weather_latency_ms"] /= 2
    _put(day, at, row)
    return _planted("weather__time_limit_held", rows=[row])


def timeout_too_early(day: Day, place: str) -> Planted:
    at = _choose(_places(day, _called("timeout")), place)
    row = _row(day, at)
    row["_weather_attempts"][-1]["end"] -= 500_000
    row["_weather_latency_ms"] -= 500.0
    _put(day, at, row)
    return _planted("weather__time_limit_held", rows=[row])


def one_call_too_many_in_flight(day: Day, place: str) -> Planted:
    """A call began 100 µs before the slot that it took was free."""
    share = day.shares[0][0]
    candidates = []
    for names, calls in _calls_in_time(day):
        ends = {end + 1 for _, end, _ in calls}
        starts = [start for start, _, _ in calls]
        attempts = [one for name in names for of in _column(day.outputs[name], "_weather_attempts") for one in of]
        begun, ended = sorted(one["start"] for one in attempts), sorted(one["end"] for one in attempts)
        for number in range(share, len(calls)):
            start, _, at = calls[number]
            others = starts[number - 1], starts[number + 1] if number + 1 < len(starts) else start + 10**9
            in_flight = bisect_right(begun, start - 100) - bisect_right(ended, start - 100)
            if start in ends and start - others[0] > 1_000 and others[1] - start > 1_000 and in_flight == share:
                candidates.append(at)
    at = _choose(candidates, place)
    row = _row(day, at)
    if row["_weather_status"] == "timeout":
        row["_weather_attempts"][0]["end"] -= 100
    else:
        row["_weather_latency_ms"] += 0.1
    row["_weather_attempts"][0]["start"] -= 100
    _put(day, at, row)
    return _planted("weather__concurrency_held", rows=[row])


def one_attempt_too_many(day: Day, place: str) -> Planted:
    """One attempt becomes four, with the declared pauses, in the time of the one."""

    def long_enough(table: pa.Table) -> list[bool]:
        attempts = _column(table, "_weather_attempts")
        return [len(of) == 1 and of[0]["end"] - of[0]["start"] > 120_000 for of in attempts]

    at = _choose(_places(day, long_enough), place)
    row = _row(day, at)
    (only,) = row["_weather_attempts"]
    start, end = only["start"], only["end"]
    pieces = [
        (start, start + 1_000),
        (start + 31_000, start + 32_000),
        (start + 63_000, start + 64_000),
        (start + 95_000, end),
    ]
    row["_weather_attempts"] = [{"start": s, "end": e, "throttled": False} for s, e in pieces]
    _put(day, at, row)
    return _planted("weather__retries_held", rows=[row])


def retry_too_soon(day: Day, place: str) -> Planted:
    def retried(table: pa.Table) -> list[bool]:
        return [len(of) == 2 and not of[0]["throttled"] for of in _column(table, "_weather_attempts")]

    at = _choose(_places(day, retried), place)
    row = _row(day, at)
    first, second = row["_weather_attempts"]
    first["end"] = second["start"] - 10_000
    _put(day, at, row)
    return _planted("weather__retries_held", rows=[row])


# -- answers and outcomes ----------------------------------------------------------------------------------------------
def answer_out_of_range(day: Day, place: str) -> Planted:
    at = _choose(_places(day, lambda table: pc.equal(table["_weather_status"], "ok")), place)
    row = {**_row(day, at), "temp_c": 99.9}
    _put(day, at, row)
    return _planted("weather__answers_in_range", rows=[row])


def answer_without_a_hit(day: Day, place: str) -> Planted:
    at = _choose(_places(day, lambda table: pc.equal(table["_weather_status"], "miss")), place)
    row = {**_row(day, at), "temp_c": 1.0}
    _put(day, at, row)
    return _planted("weather__answers_in_range", rows=[row])


def null_in_an_answer(day: Day, place: str) -> Planted:
    at = _choose(_places(day, lambda table: pc.equal(table["_weather_status"], "ok")), place)
    row = {**_row(day, at), "temp_c": None}
    _put(day, at, row)
    return _planted("weather__answers_in_range", rows=[row])


def outcome_missing(day: Day, place: str) -> Planted:
    at = _choose(_places(day, lambda table: pc.equal(table["_weather_status"], "ok")), place)
    row = {**_row(day, at), "_weather_status": None}
    _put(day, at, row)
    return _planted("outcomes_add_up", rows=[row])


def answer_from_nowhere(day: Day, place: str) -> Planted:
    """The row says that a call answered, but no call was made."""
    at = _choose(_places(day, _called("ok")), place)
    row = {**_row(day, at), "_weather_attempts": [], "_weather_latency_ms": None, "_weather_paused_ms": None}
    _put(day, at, row)
    return _planted("outcomes_add_up", rows=[row])


def ledger_answer_with_calls(day: Day, place: str) -> Planted:
    """The row says that its answer was in the ledger, and that a call was made."""
    at = _choose(_places(day, _called("ok")), place)
    row = {**_row(day, at), "_weather_source": "ledger"}
    _put(day, at, row)
    return _planted("outcomes_add_up", rows=[row])


FAULTS = (
    Fault("a row lost", row_lost),
    Fault("a row doubled", row_doubled),
    Fault("a row of another input", row_of_another_input, quick=False),
    Fault("two rows swapped", rows_swapped, ("ordered",)),
    Fault("two rows of a key swapped", rows_of_a_key_swapped, ("key_ordered",)),
    Fault("an output_seq that the files contradict", claim_contradicts_files, quick=False),
    Fault("a row moved over a watermark", row_over_a_watermark),
    Fault("a segment miscounted", segment_miscounted, quick=False),
    Fault("a late row not marked", late_row_not_marked),
    Fault("a row marked late wrongly", row_marked_late_wrongly),
    Fault("a call over the limit", call_over_the_limit),
    Fault("a latency understated", latency_understated, quick=False),
    Fault("a timeout too early", timeout_too_early),
    Fault("one call too many in flight", one_call_too_many_in_flight),
    Fault("one attempt too many", one_attempt_too_many),
    Fault("a retry too soon", retry_too_soon),
    Fault("an answer out of range", answer_out_of_range),
    Fault("an answer without a hit", answer_without_a_hit, quick=False),
    Fault("a null in an answer", null_in_an_answer, quick=False),
    Fault("an outcome missing", outcome_missing),
    Fault("an answer from nowhere", answer_from_nowhere, quick=False),
    Fault("an answer of the ledger that was called for", ledger_answer_with_calls, quick=False),
)
