"""One fault at a time, planted in the written files of an honest day, with the checks that it must
turn red.

Each fault changes as little as the world would: a row moved takes its columns along, a call that
lasts longer has a later end. A place (`first`, `middle`, `last`) says where among the rows that can
carry the fault.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from honest_day import Day

ALL_MODES = ("ordered", "unordered", "key_ordered")
PLACES = ("first", "middle", "last")


@dataclass(frozen=True)
class Planted:
    """What has to be seen: the checks that fail, the rows that evidence has to name (source
    file's name, row), and the checks that may not be run.
    """

    red: frozenset[str]
    rows: frozenset[tuple[str, int]]
    unjudged: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Fault:
    name: str
    plant: Callable[[Day, str], Planted]
    modes: tuple[str, ...] = ALL_MODES
    quick: bool = True  # judged on a small day in `make test` too
    ledger: bool = False  # it is found by what is stored of the answers


# -- tools
# --------------------------------------------------------------------------------------------------
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


# -- rows
# --------------------------------------------------------------------------------------------------
def row_lost(day: Day, place: str) -> Planted:
    at = _choose(_places(day, lambda table: [True] * table.num_rows), place)
    row, name = _row(day, at), at[0]
    table = day.outputs[name]
    day.outputs[name] = pa.concat_tables([table.slice(0, at[1]), table.slice(at[1] + 1)])
    unjudged = frozenset({"watermarks_not_crossed", "late_rows_marked"})
    return replace(_planted("every_row_once", rows=[row]), unjudged=unjudged)


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


# -- order
# --------------------------------------------------------------------------------------------------
def _neighbours(day: Day, place: str, same: tuple[str, ...]) -> tuple[str, int, int]:
    """Two rows of one file, the second the next one after the first that agrees in these
    columns.
    """
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
    day.outputs[name] = table.set_column(
        table.schema.get_field_index("_output_seq"), "_output_seq", claims
    )
    return _planted("order_held", rows=[first] if other == one + 1 or not rest else [first, second])


def claim_contradicts_files(day: Day, place: str) -> Planted:
    at = _choose(_places(day, lambda table: [False] + [True] * (table.num_rows - 1)), place)
    row = {**_row(day, at), "_output_seq": -1}
    _put(day, at, row)
    return _planted(
        "watermarks_not_crossed" if day.declared.mode == "unordered" else "order_held", rows=[row]
    )


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
    day.outputs[name] = table.set_column(
        table.schema.get_field_index("_output_seq"), "_output_seq", claims
    )
    red = (
        ["watermarks_not_crossed", "order_held"]
        if day.declared.mode == "ordered"
        else ["watermarks_not_crossed"]
    )
    return _planted(*red, rows=[row])


def segment_miscounted(day: Day, place: str) -> Planted:
    """The last row that left in its segment claims the next one."""
    ends = []
    for names in _tasks(day).values():
        for name in names:
            segments = _column(day.outputs[name], "_segment")
            ends += [
                (name, n) for n in range(len(segments) - 1) if segments[n] + 1 == segments[n + 1]
            ]
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


# -- calls
# --------------------------------------------------------------------------------------------------
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
    """first: a task's first call began three seconds earlier; else: the last one before a
    standstill ended later.

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
    candidates = [
        at
        for at in candidates
        if _row(day, at)["_weather_status"] in ("ok", "miss", "timeout", "error")
    ]
    at = _choose(candidates, place)
    row = _row(day, at)
    if row["_weather_status"] not in ("ok", "miss"):
        row |= {
            "_weather_status": "miss",
            "_weather_source": "call",
            "_weather_error": None,
            "weather_status": "miss",
        }
    if place == "first":
        row["_weather_attempts"][0]["start"] -= 3_000_000
    else:
        row["_weather_attempts"][-1]["end"] += 3_000_000
    row["_weather_latency_ms"] += 3_000.0
    row["weather_answered_at"] = pa.scalar(
        row["_weather_attempts"][-1]["end"], pa.timestamp("us", "UTC")
    ).as_py()
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
        attempts = [
            attempt
            for name in names
            for of in _column(day.outputs[name], "_weather_attempts")
            for attempt in of
        ]
        begun, ended = (
            sorted(attempt["start"] for attempt in attempts),
            sorted(attempt["end"] for attempt in attempts),
        )
        for number in range(share, len(calls)):
            start, _, at = calls[number]
            others = (
                starts[number - 1],
                starts[number + 1] if number + 1 < len(starts) else start + 10**9,
            )
            in_flight = bisect_right(begun, start - 100) - bisect_right(ended, start - 100)
            if (
                start in ends
                and start - others[0] > 1_000
                and others[1] - start > 1_000
                and in_flight == share
            ):
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
        attempts = zip(
            _column(table, "_weather_attempts"), _column(table, "_weather_status"), strict=True
        )
        return [
            # its error counts them
            len(of) == 1 and of[0]["end"] - of[0]["start"] > 120_000 and status != "timeout"
            for of, status in attempts
        ]

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
        return [
            len(of) == 2 and not of[0]["throttled"] for of in _column(table, "_weather_attempts")
        ]

    at = _choose(_places(day, retried), place)
    row = _row(day, at)
    first, second = row["_weather_attempts"]
    first["end"] = second["start"] - 10_000
    _put(day, at, row)
    return _planted("weather__retries_held", rows=[row])


# -- answers and outcomes
# ----------------------------------------------------------------------------------------------
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
    row = {**_row(day, at), "_weather_status": None, "weather_status": None}
    _put(day, at, row)
    return _planted("outcomes_add_up", rows=[row])


def answer_from_nowhere(day: Day, place: str) -> Planted:
    """The row says that a call answered, but no call was made."""
    at = _choose(_places(day, _called("ok")), place)
    row = {
        **_row(day, at),
        "_weather_attempts": [],
        "_weather_latency_ms": None,
        "_weather_paused_ms": None,
    }
    _put(day, at, row)
    return _planted("outcomes_add_up", rows=[row])


def ledger_answer_with_calls(day: Day, place: str) -> Planted:
    """The row says that its answer was in the ledger, and that a call was made."""
    at = _choose(_places(day, _called("ok")), place)
    row = {**_row(day, at), "_weather_source": "ledger"}
    _put(day, at, row)
    return _planted("outcomes_add_up", rows=[row])


# -- values
# --------------------------------------------------------------------------------------------------
def _two(
    day: Day, place: str, condition: Callable[[pa.Table], Any]
) -> tuple[tuple[str, int], tuple[str, int]]:
    """Two rows of one file."""
    found = _places(day, condition)
    pairs = [(one, other) for one, other in itertools.pairwise(found) if one[0] == other[0]]
    return _choose(pairs, place)


def _exchange(
    day: Day, one: tuple[str, int], other: tuple[str, int], columns: list[str]
) -> list[dict[str, Any]]:
    """Both rows, with each other's values of these columns."""
    first, second = _row(day, one), _row(day, other)
    for at, row, giver in ((one, first, second), (other, second, first)):
        _put(day, at, {**row, **{column: giver[column] for column in columns}})
    return [first, second]


def _edit(
    day: Day,
    place: str,
    check: str,
    condition: Callable[[pa.Table], Any],
    change: Callable[[dict[str, Any]], Any],
) -> Planted:
    """Values of one row changed; `change` gives the new ones."""
    at = _choose(_places(day, condition), place)
    row = _row(day, at)
    _put(day, at, {**row, **change(row)})
    return _planted(check, rows=[row])


def _any_row(table: pa.Table) -> Any:
    return [True] * table.num_rows


def carried_value_changed(day: Day, place: str) -> Planted:
    return _edit(day, place, UNCHANGED, _any_row, lambda row: {"distance": row["distance"] + 1})


def carried_value_with_a_digit_dropped(day: Day, place: str) -> Planted:
    return _edit(day, place, UNCHANGED, _any_row, lambda row: {"distance": row["distance"] // 10})


def carried_values_swapped(day: Day, place: str) -> Planted:
    one, other = _two(day, place, _any_row)
    return _planted(UNCHANGED, rows=_exchange(day, one, other, ["flight", "distance"]))


def carried_values_of_another_file(day: Day, place: str) -> Planted:
    at = _choose(_places(day, _any_row), place)
    row = _row(day, at)
    others = [
        name for names in _tasks(day).values() for name in names if names[0][:10] != at[0][:10]
    ]
    giver = _row(day, (others[0], 0))
    _put(day, at, {**row, "flight": giver["flight"], "distance": giver["distance"]})
    return _planted(UNCHANGED, rows=[row])


def key_swapped(day: Day, place: str) -> Planted:
    one, other = _two(day, place, _called("ok"))
    return _planted(MATCH, rows=_exchange(day, one, other, ["_weather_key"]))


def key_of_another_lookup(day: Day, place: str) -> Planted:
    def change(row: dict[str, Any]) -> dict[str, Any]:
        return {"_weather_key": row["_weather_key"] | {"airline": row["carrier"]}}

    return _edit(day, place, MATCH, _called("ok"), change)


def key_of_a_row_that_was_asked_lost(day: Day, place: str) -> Planted:
    def change(row: dict[str, Any]) -> dict[str, Any]:
        return {"_weather_key": row["_weather_key"] | {"flight": None}}

    return _edit(day, place, MATCH, _called("ok"), change)


def answers_swapped(day: Day, place: str) -> Planted:
    one, other = _two(day, place, _called("ok"))
    return _planted(MATCH, rows=_exchange(day, one, other, ["temp_c", "visibility_m"]))


def answers_swapped_with_all_that_is_said_of_them(day: Day, place: str) -> Planted:
    one, other = _two(day, place, _called("ok"))
    audit = [f"_weather_{name}" for name in ("source", "attempts", "latency_ms", "paused_ms")]
    return _planted(
        MATCH,
        rows=_exchange(day, one, other, ["temp_c", "visibility_m", "weather_answered_at", *audit]),
    )


def answer_doubled(day: Day, place: str) -> Planted:
    """The answer of the row before, and its time."""
    one, other = _two(day, place, _from_the_ledger)
    giver, row = _row(day, one), _row(day, other)
    columns = ("temp_c", "visibility_m", "weather_answered_at", "_weather_status", "weather_status")
    _put(day, other, {**row, **{column: giver[column] for column in columns}})
    return _planted(MATCH, rows=[row])


def answer_of_a_shared_call_changed(day: Day, place: str) -> Planted:
    """Rows that had their answer of one call differ: where two do, neither is believed."""
    at = _choose(_places(day, lambda table: pc.equal(table["_plane_source"], "shared")), place)
    row = _row(day, at)
    _put(day, at, {**row, "seats": row["seats"] + 1})
    alike = [
        other
        for other in (_row(day, place) for place in _places(day, _any_row))
        if other["plane_answered_at"] == row["plane_answered_at"]
        and other["_plane_key"] == row["_plane_key"]
    ]
    return _planted("plane__answers_match", rows=[row] if len(alike) > 2 else alike)


def _from_the_ledger(table: pa.Table) -> Any:
    return pc.equal(table["_weather_source"], "ledger")


def answered_a_year_too_early(day: Day, place: str) -> Planted:
    return _edit(day, place, MATCH, _called("ok"), _earlier(dt.timedelta(days=365)))


def stored_answer_a_year_too_old(day: Day, place: str) -> Planted:
    return _edit(day, place, MATCH, _from_the_ledger, _earlier(dt.timedelta(days=365)))


def answered_in_another_time_zone(day: Day, place: str) -> Planted:
    return _edit(day, place, MATCH, _called("miss"), _earlier(dt.timedelta(hours=1)))


def _earlier(by: dt.timedelta) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda row: {"weather_answered_at": row["weather_answered_at"] - by}


def time_of_an_answer_lost(day: Day, place: str) -> Planted:
    return _edit(day, place, MATCH, _called("ok"), lambda row: {"weather_answered_at": None})


def published_status_flipped(day: Day, place: str) -> Planted:
    return _edit(day, place, MATCH, _called("miss"), lambda row: {"weather_status": "ok"})


def hit_made_a_miss(day: Day, place: str) -> Planted:
    miss = {
        "temp_c": None,
        "visibility_m": None,
        "_weather_status": "miss",
        "weather_status": "miss",
    }
    return _edit(day, place, MATCH, _called("ok"), lambda row: miss)


def miss_made_a_hit(day: Day, place: str) -> Planted:
    hit = {"temp_c": 1.5, "visibility_m": 7, "_weather_status": "ok", "weather_status": "ok"}
    return _edit(day, place, MATCH, _called("miss"), lambda row: hit)


def answer_column_nulled(day: Day, place: str) -> Planted:
    return _edit(day, place, MATCH, _called("ok"), lambda row: {"visibility_m": None})


def answer_changed_a_little(day: Day, place: str) -> Planted:
    return _edit(
        day, place, MATCH, _called("ok"), lambda row: {"temp_c": math.nextafter(row["temp_c"], 0.0)}
    )


UNCHANGED, MATCH = "input_unchanged", "weather__answers_match"
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
    Fault("a carried value changed", carried_value_changed),
    Fault("a carried value with a digit dropped", carried_value_with_a_digit_dropped, quick=False),
    Fault("carried values of two rows swapped", carried_values_swapped),
    Fault("carried values of another file", carried_values_of_another_file, quick=False),
    Fault("the keys of two rows swapped", key_swapped),
    Fault("a key of another lookup", key_of_another_lookup, quick=False),
    Fault("a key lost", key_of_a_row_that_was_asked_lost, quick=False),
    Fault("the answers of two rows swapped", answers_swapped, ledger=True),
    Fault(
        "answers swapped with their audit",
        answers_swapped_with_all_that_is_said_of_them,
        quick=False,
        ledger=True,
    ),
    Fault("an answer doubled", answer_doubled, quick=False, ledger=True),
    Fault("an answer of a shared call changed", answer_of_a_shared_call_changed, quick=False),
    Fault("answered a year too early", answered_a_year_too_early),
    Fault("a stored answer a year too old", stored_answer_a_year_too_old, quick=False, ledger=True),
    Fault("answered in another time zone", answered_in_another_time_zone, quick=False),
    Fault("the time of an answer lost", time_of_an_answer_lost, quick=False),
    Fault("a published status flipped", published_status_flipped, quick=False),
    Fault("a hit made a miss", hit_made_a_miss, quick=False, ledger=True),
    Fault("a miss made a hit", miss_made_a_hit, quick=False, ledger=True),
    Fault("a column of an answer nulled", answer_column_nulled, quick=False, ledger=True),
    Fault("an answer changed in its last bit", answer_changed_a_little, quick=False, ledger=True),
)
