"""Days that keep every promise, written as a run writes them, in any size: the ground on which
faults are planted.

Nothing here shares code with the checks: calls are simulated slot by slot, watermarks counted row
by row.
"""

from __future__ import annotations

import datetime as dt
import heapq
import json
import math
import random
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.schema.columns import OUTCOMES
from jobs.schema.records import (
    DayFacts,
    DayMetrics,
    DeclaredFacts,
    EventTimeFacts,
    LookupFacts,
    LookupMetrics,
)

DAY = "2013-01-10"
START_MS = 1_357_776_000_000  # 2013-01-10T00:00:00Z
RUN_START_US = 1_357_863_300_000_000  # the night after
BOUND_S = 60.0
ATTEMPT = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("throttled", pa.bool_())])

WEATHER = LookupFacts(
    name="weather",
    kind="http",
    service="weather_api",
    returns=(("temp_c", "DOUBLE"), ("visibility_m", "INT")),
    timeout=2.0,
    max_concurrency=8,
    retries=2,
    initial_delay=0.02,
    max_delay=0.03,
    multiplier=2.0,
    ranges=(("temp_c", -60.0, 60.0), ("visibility_m", 0, None)),
    null_share=(("temp_c", 0.0),),
    keys=(("flight", "if(distance % 31 = 0, null, flight)"), ("airline", "lower(carrier)")),
)
PLANE = LookupFacts(
    name="plane",
    kind="sql",
    service="planes",
    returns=(("seats", "INT"),),
    timeout=5.0,
    max_concurrency=4,
    keys=(("carrier", "if(distance % 37 = 0, null, carrier)"),),
)
KEYS = {  # the same in Python, for a row of the input
    "weather": lambda row: {
        "flight": row["flight"] if row["distance"] % 31 else None,
        "airline": row["carrier"].lower(),
    },
    "plane": lambda row: {"carrier": row["carrier"] if row["distance"] % 37 else None},
}
KEY_TYPES = {
    "weather": pa.struct([("flight", pa.int64()), ("airline", pa.string())]),
    "plane": pa.struct([("carrier", pa.string())]),
}

INPUT_FIELDS = [
    ("flight", pa.int64()),
    ("carrier", pa.string()),
    ("departure", pa.timestamp("us", tz="UTC")),
    ("distance", pa.int32()),
]

INPUT_TYPES = json.dumps(  # as Spark writes them
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for (name, _), kind in zip(
                INPUT_FIELDS, ("long", "string", "timestamp", "integer"), strict=True
            )
        ],
    }
)


def fields_of(lookup: LookupFacts) -> list[tuple[str, pa.DataType]]:
    types = {"DOUBLE": pa.float64(), "INT": pa.int32()}
    name = lookup.name
    return [
        *((column, types[kind]) for column, kind in lookup.returns),
        (f"_{name}_status", pa.string()),
        (f"_{name}_source", pa.string()),
        (f"_{name}_attempts", pa.list_(ATTEMPT)),
        (f"_{name}_latency_ms", pa.float64()),
        (f"_{name}_paused_ms", pa.float64()),
        (f"_{name}_error", pa.string()),
        (f"_{name}_key", KEY_TYPES[name]),
        (f"{name}_status", pa.string()),
        (f"{name}_answered_at", pa.timestamp("us", tz="UTC")),
    ]


ROW_FIELDS = [
    ("_partition", pa.int32()),
    ("_input_seq", pa.int64()),
    ("_output_seq", pa.int64()),
    ("_segment", pa.int64()),
    ("_late", pa.bool_()),
    ("_source_file", pa.string()),
    ("_source_row", pa.int64()),
]


def stored_in(stored, name, pairs):
    """A ledger that holds more than it is asked for."""
    return stored[name] if pairs.num_rows else None


@dataclass
class Day:
    """Input tables by file name; output tables by file name; what the run knows of itself."""

    root: Path
    declared: DeclaredFacts
    inputs: dict[str, pa.Table]
    outputs: dict[str, pa.Table]
    shares: tuple[tuple[int, ...], ...]
    history: dict[str, DayMetrics] = field(default_factory=dict)
    # by lookup: what a ledger holds of its answers
    stored: dict[str, pa.Table] = field(default_factory=dict)

    def keep_answers(self) -> None:
        """Take the answers as they are now for those of the ledger."""
        for lookup in self.declared.lookups:
            columns = [column for column, _ in lookup.returns]
            status, source = f"{lookup.name}_status", f"_{lookup.name}_source"
            names = [f"_{lookup.name}_key", f"{lookup.name}_answered_at", status, *columns]
            for table in self.outputs.values():
                known = pc.is_in(table[status], value_set=pa.array(["ok", "miss"]))
                first = pc.and_(known, pc.not_equal(table[source], "shared"))
                kept = [self.stored[lookup.name]] if lookup.name in self.stored else []
                answers = table.filter(first)
                by_run = pc.equal(answers[source], "call")
                answers = answers.select(names).append_column("by_run", by_run)
                self.stored[lookup.name] = pa.concat_tables([*kept, answers])

    def ledger(self):
        """What the checks ask for stored answers."""
        return partial(stored_in, self.stored)

    def write(self) -> tuple[DayFacts, DayMetrics]:
        raw, run = self._folders()
        for folder, tables in ((raw, self.inputs), (run, self.outputs)):
            folder.mkdir(parents=True, exist_ok=True)
            for name, table in tables.items():
                pq.write_table(
                    table, folder / name, row_group_size=max(10, min(100_000, len(table) // 3))
                )
        return self.facts(), self.figures()

    def _folders(self) -> tuple[Path, Path]:
        return self.root / "raw" / f"date={DAY}", self.root / "published" / "runs" / "r1"

    def facts(self) -> DayFacts:
        raw, run = self._folders()
        return DayFacts(
            declared=self.declared,
            day=DAY,
            run_id="r1",
            input_files=tuple("file:" + quote(str(raw / name), safe="/=") for name in self.inputs),
            input_columns=tuple(name for name, _ in INPUT_FIELDS),
            input_types=INPUT_TYPES,
            folder=str(run),
            files=tuple(str(run / name) for name in self.outputs),
            shares=self.shares,
            started_at="2013-01-11T00:15:00Z",
            finished_at=self._finished_at(),
            versions={"tidegate": "0"},
        )

    def _finished_at(self) -> str:
        """A minute after the last answer that is not of a fault."""
        last = dt.datetime(2013, 1, 11, 0, 20, tzinfo=dt.UTC)
        for lookup, stored in self.stored.items():
            last = max(last, pc.max(stored[f"{lookup}_answered_at"]).as_py() or last)
        return (last + dt.timedelta(minutes=1)).isoformat()

    def figures(self) -> DayMetrics:
        """As the run counts them: on the files it wrote."""
        lookups = []
        for lookup in self.declared.lookups:
            outcomes = dict.fromkeys(OUTCOMES, 0)
            for table in self.outputs.values():
                for entry in table[f"_{lookup.name}_status"].value_counts().to_pylist():
                    if entry["values"] in outcomes:
                        outcomes[entry["values"]] += entry["counts"]
            lookups.append(LookupMetrics(lookup.name, outcomes, 0, 0, 0.0, 0.0, None, None))
        rows_in = sum(table.num_rows for table in self.inputs.values())
        rows_out = sum(table.num_rows for table in self.outputs.values())
        return DayMetrics(rows_in, rows_out, 0, tuple(lookups))


def declare(
    mode: str = "unordered", *, event_time: bool = True, lookups=(WEATHER, PLANE), **changes
) -> DeclaredFacts:
    declared = DeclaredFacts(
        enrichment="flights_enriched",
        table="published/flights_enriched",
        input_path="raw",
        partition="date",
        mode=mode,
        lookups=tuple(lookups),
        row_id=("carrier", "flight"),
        order_key=("carrier",) if mode == "key_ordered" else (),
        event_time=EventTimeFacts("departure", BOUND_S) if event_time else None,
        timeout_tolerance=0.2,
        error_tolerance=0.2,
        fingerprint="f1",
    )
    return replace(declared, **changes)


def honest_day(root: Path, mode: str = "unordered", *, sizes=(120, 0, 80), seed: int = 0, files_of_a_task: int = 1,
               **changes) -> Day:  # fmt: skip
    """A day whose tasks have these numbers of rows. Each task reads one input file and writes one
    or several.
    """
    declared = declare(mode, **changes)
    dice = random.Random(f"{seed} {mode}")
    inputs, outputs = {}, {}
    ends: set[int] = set()
    shares = tuple(
        tuple(max(1, lookup.max_concurrency // max(1, len(sizes))) for _ in sizes)
        for lookup in declared.lookups
    )
    for partition, size in enumerate(sizes):
        name = f"part-{partition:05d}.parquet"
        # as Spark spells it
        source = "file:" + quote(str(root / "raw" / f"date={DAY}" / name), safe="/=")
        table, columns = input_table(dice, partition, size)
        inputs[name] = table
        written = _task(
            dice,
            declared,
            partition,
            source,
            ends,
            columns=columns,
            shares=[of[partition] for of in shares],
        )
        step = max(1, math.ceil(size / files_of_a_task))
        for number, first in enumerate(range(0, size, step)):
            outputs[f"part-{partition:05d}-6f1d-c{number:03d}.snappy.parquet"] = written.slice(
                first, step
            )
    day = Day(root, declared, inputs, outputs, shares)
    day.keep_answers()
    return day


def input_table(dice: random.Random, partition: int, size: int) -> tuple[pa.Table, dict[str, list]]:
    """A feed out of order: most rows a little, some far beyond the bound; a few without a time."""
    times, clock = [], START_MS
    for _ in range(size):
        clock += dice.choice((0, 1000, 20_000))
        lag = (
            dice.choice((0, 0, 1000, 30_000))
            if dice.random() < 0.95
            else dice.choice((61_000, 600_000))
        )
        times.append(None if dice.random() < 0.01 else (clock - lag))
    columns = {
        "flight": [partition * 10_000_000 + number for number in range(size)],
        "carrier": [dice.choice(("AA", "B6", "DL", "UA")) for _ in range(size)],
        "departure": [None if moment is None else moment * 1000 for moment in times],
        "distance": [dice.randrange(100, 5000) for _ in range(size)],
    }
    return pa.table({name: pa.array(columns[name], kind) for name, kind in INPUT_FIELDS}), columns


def _task(
    dice,
    declared: DeclaredFacts,
    partition: int,
    source: str,
    ends: set[int],
    *,
    columns: dict[str, list],
    shares,
) -> pa.Table:
    size = len(columns["flight"])
    segments, late = _marks(columns["departure"])
    if declared.event_time is None:
        segments, late = [0] * size, [False] * size
    done = [RUN_START_US] * size
    answers: dict[str, list] = {}
    for lookup, share in zip(declared.lookups, shares, strict=True):
        answers |= _calls(dice, lookup, share, done, keys_of_rows(lookup.name, columns), ends=ends)
    emitted = _order(declared.mode, columns["carrier"], segments, done)
    row = {
        "_partition": [partition] * size,
        "_input_seq": list(range(size)),
        "_segment": segments,
        "_late": late,
        "_source_file": [source] * size,
        "_source_row": list(range(size)),
    }
    kinds = dict(
        [*INPUT_FIELDS, *ROW_FIELDS, *(f for lookup in declared.lookups for f in fields_of(lookup))]
    )
    everything = {**columns, **row, **answers}
    arrays = {name: pa.array(values, kinds[name]) for name, values in everything.items()}
    table = pa.table(arrays).take(pa.array(emitted, pa.int64()))
    table = table.append_column("_output_seq", pa.array(range(size), pa.int64()))
    return table.select(list(kinds)).combine_chunks()


def keys_of_rows(lookup: str, columns: dict[str, list]) -> list[dict]:
    return [
        KEYS[lookup](dict(zip(columns, values, strict=True)))
        for values in zip(*columns.values(), strict=True)
    ]


def _marks(departures: list[int | None]) -> tuple[list[int], list[bool]]:
    segments, late, seen, largest = [], [], 0, None
    for moment_us in departures:
        moment = None if moment_us is None else moment_us // 1000
        segments.append(seen)
        late.append(
            moment is not None and largest is not None and moment <= largest - BOUND_S * 1000 - 1
        )
        if moment is not None and (largest is None or moment > largest):
            largest, seen = moment, seen + 1
    return segments, late


def _calls(
    dice: random.Random,
    lookup: LookupFacts,
    share: int,
    done: list[int],
    keys: list[dict],
    *,
    ends: set[int],
) -> dict[str, list]:
    """Every row through one of `share` slots; `done` becomes the time at which each row has its
    outcome.

    No two calls for one key of a day end in one microsecond: a run could not tell which answer is
    the last (`ends`).

    In the middle all slots stand still for ten seconds, as when the source has nothing to give.
    """
    name, size = lookup.name, len(done)
    columns: dict[str, list] = {column: [] for column, _ in fields_of(lookup)}
    slots = [max(done, default=0) if lookup.name == "plane" else RUN_START_US] * share
    pauses = [
        min(lookup.max_delay, lookup.initial_delay * lookup.multiplier**n)
        for n in range(lookup.retries)
    ]
    came: dict[tuple, tuple[dict, int]] = {}  # by key: the last answer of a call
    for number in range(size):
        if number == size // 2:
            slots = [max(slots) + 10_000_000] * share
        columns[f"_{name}_key"].append(keys[number])
        key = tuple(keys[number].values())
        if None in key:
            _put(dice, columns, lookup, "skipped", None)
            continue
        if dice.random() < 0.05:
            if key in came:
                _put(dice, columns, lookup, "ok", "shared", answer=came[key])
            else:
                stored = RUN_START_US - dice.randrange(86_400_000_000)
                _put(
                    dice,
                    columns,
                    lookup,
                    dice.choice(("ok", "miss")),
                    "ledger",
                    answer=(_answers(dice), stored),
                )
            continue
        start = heapq.heappop(slots)
        outcome, attempts = _attempts(dice, lookup, start, pauses)
        while (ended := hash((name, key, attempts[-1][1]))) in ends:
            outcome, attempts = _attempts(dice, lookup, start, pauses)
        ends.add(ended)
        first, end = attempts[0][0], attempts[-1][1]
        heapq.heappush(slots, end + 1)
        done[number] = max(done[number], end)
        answered = outcome in ("ok", "miss")
        problem = None if answered else f"{lookup.service}: {outcome}"
        if outcome == "timeout":
            problem = f"no answer within {lookup.timeout} s, {len(attempts)} attempts"
        source, latency = ("call" if answered else None), (end - first) / 1000
        answer = _answers(dice), end
        if outcome == "ok":
            came[key] = answer
        _put(
            dice,
            columns,
            lookup,
            outcome,
            source,
            attempts=attempts,
            latency=latency,
            problem=problem,
            answer=answer,
        )
    assert set(columns) == {column for column, _ in fields_of(lookup)}, name
    return columns


def _answers(dice: random.Random) -> dict:
    return {
        "temp_c": dice.uniform(-20, 35),
        "visibility_m": dice.randrange(0, 16_000),
        "seats": dice.randrange(2, 400),
    }


def _attempts(dice: random.Random, lookup: LookupFacts, start: int, pauses: list[float]):
    """Attempts as (start, end, throttled) in µs, and the outcome; within the time limit."""
    limit = int((lookup.timeout or 60.0) * 1e6)
    if dice.random() < 0.02:
        return "timeout", [(start, start + limit, False)]
    attempts, moment = [], start
    for number in range(lookup.retries + 1):
        length = int(min(0.4, dice.lognormvariate(-3.0, 0.7)) * 1e6) + 1
        attempts.append((moment, moment + length, False))
        if dice.random() < 0.05:
            attempts[-1] = (moment, moment + length, True)
            moment += length + 500
            attempts.append((moment, moment + length, False))
        end = attempts[-1][1]
        if dice.random() > 0.06:
            return ("miss" if dice.random() < 0.1 else "ok"), attempts
        if number < lookup.retries:
            moment = end + int(pauses[number] * 1e6) + dice.randrange(1, 500)
    return "error", attempts


def _put(
    dice,
    columns,
    lookup: LookupFacts,
    outcome,
    source,
    *,
    attempts=(),
    latency=None,
    problem=None,
    answer=(None, None),
) -> None:
    """answer: the columns, and when it came."""
    name, (values, answered_at) = lookup.name, answer
    for column, _ in lookup.returns:
        columns[column].append(values[column] if outcome == "ok" else None)
    columns[f"_{name}_status"].append(outcome)
    columns[f"{name}_status"].append(outcome)
    columns[f"{name}_answered_at"].append(answered_at if outcome in ("ok", "miss") else None)
    columns[f"_{name}_source"].append(source)
    columns[f"_{name}_attempts"].append(
        [{"start": s, "end": e, "throttled": t} for s, e, t in attempts]
    )
    columns[f"_{name}_latency_ms"].append(latency)
    columns[f"_{name}_paused_ms"].append(None if latency is None else 0.0)
    columns[f"_{name}_error"].append(problem)


def _order(mode: str, keys: list[str], segments: list[int], done: list[int]) -> list[int]:
    """Numbers of the rows in the order in which they leave."""
    size = len(done)
    if mode == "ordered":
        return list(range(size))
    leaves, of_key = list(done), {}
    if mode == "key_ordered":
        for number in range(size):
            place = (segments[number], keys[number])
            leaves[number] = of_key[place] = max(done[number], of_key.get(place, 0))
    return sorted(range(size), key=lambda number: (segments[number], leaves[number], number))
