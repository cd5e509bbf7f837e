"""A day with every outcome from every source, which keeps every promise.

The lookup's keys are plain columns, so that no Spark is needed. Nothing here shares code with the
checks.
"""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from honest_day import (
    DAY,
    INPUT_FIELDS,
    ROW_FIELDS,
    RUN_START_US,
    START_MS,
    WEATHER,
    Day,
    _marks,
    declare,
    fields_of,
)

SECOND = 1_000_000
LIMIT_US = 2 * SECOND

# every way in which a row can end: status, source, own attempts (throttled or not), and how its
# answer came
KINDS: tuple[tuple[str, str, str | None, str], ...] = (
    ("ok by call", "ok", "call", "f"),
    ("ok after a retry", "ok", "call", "ff"),
    ("ok after throttling", "ok", "call", "tf"),
    ("ok from the ledger", "ok", "ledger", ""),
    ("ok of another run meanwhile", "ok", "ledger", ""),
    ("ok shared", "ok", "shared", ""),
    ("ok shared after throttling", "ok", "shared", "t"),
    ("miss by call", "miss", "call", "f"),
    ("miss from the ledger", "miss", "ledger", ""),
    ("miss shared", "miss", "shared", ""),
    ("skipped", "skipped", None, ""),
    ("fallback", "fallback", "call", "f"),
    ("fallback shared", "fallback", "shared", ""),
    ("timeout", "timeout", None, "f"),
    ("timeout after a retry", "timeout", None, "ff"),
    ("timeout while waiting", "timeout", "shared", ""),
    ("error", "error", None, "f"),
    ("error after retries", "error", None, "fff"),
    ("error shared", "error", "shared", ""),
    ("error from the ledger", "error", "ledger", ""),
    ("unknown", "unknown", None, ""),
    ("not asked", "not_asked", None, ""),
)


class _Writer:
    """Writes one row after another; each takes three seconds, so that no two calls are in flight at
    once.
    """

    def __init__(self) -> None:
        self.clock = RUN_START_US
        self.rows: list[dict[str, Any]] = []

    def row(
        self, name: str, status: str, source: str | None, attempts: str, *, wait: float = 3.0
    ) -> None:
        number = len(self.rows)
        key: dict[str, Any] = {"flight": number, "airline": f"k{number}"}
        early = self._attempts(attempts, status, wait) if source == "shared" else []
        owner = None
        if source == "shared":
            _, *of_owner = next(kind for kind in KINDS if kind[1] == status and kind[2] != "shared")
            self.row(kind_of(status), *of_owner, wait=0.1 if early else 3.0)
            owner = self.rows[-1]
            number, key = len(self.rows), owner["_weather_key"]
        calls = early or self._attempts(attempts, status, wait)
        ended = calls[-1]["end"] if calls else self.clock
        if name == "timeout after a retry":
            ended = calls[0]["start"] + LIMIT_US
        at, answer = None, {"temp_c": None, "visibility_m": None}
        if owner is not None:
            at, answer = owner["weather_answered_at"], {name: owner[name] for name in answer}
            ended = self.clock
        elif status in ("ok", "miss", "fallback"):
            at = {"ok of another run meanwhile": self.clock - 7}.get(name, ended)
            at = moment(
                RUN_START_US - 3600 * SECOND - number if name.endswith("from the ledger") else at
            )
        if status in ("ok", "fallback") and owner is None:
            answer = {"temp_c": number / 7, "visibility_m": number}
        error = owner["_weather_error"] if owner else error_of(name, number, len(calls))
        if name == "timeout while waiting":
            error = "no answer within 2.0 s, waiting for an equal request"
        if status == "skipped":
            key = {**key, "airline": None}
        self.rows.append({
            "kind": name, "_weather_key": key, "_weather_status": status, "_weather_source": source,
            "_weather_attempts": calls,
            "_weather_latency_ms": (ended - calls[0]["start"]) / 1000 if calls else None,
            "_weather_paused_ms": (1.0 + number if "t" in attempts else 0.0) if calls else None,
            "_weather_error": error, "weather_status": status, "weather_answered_at": at, **answer,
            "flight": key["flight"], "carrier": key["airline"], "distance": 100 + number,
            "departure": moment((START_MS + number // 3 * 1000) * 1000),
        })  # fmt: skip

    def _attempts(self, attempts: str, status: str, wait: float) -> list[dict[str, Any]]:
        self.clock += round(wait * SECOND)
        calls = []
        for place, kind in enumerate(attempts):
            length = 10_000 + 1_000 * len(self.rows) + place  # of no other row
            if status in ("timeout", "fallback") and len(attempts) == 1:
                length = LIMIT_US
            self.clock += 40_000 if place else 0
            calls.append(
                {"start": self.clock, "end": self.clock + length, "throttled": kind == "t"}
            )
            self.clock += length
        return calls


def kind_of(status: str) -> str:
    return next(name for name, of, source, _ in KINDS if of == status and source != "shared")


def moment(us: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=us)


def error_of(name: str, number: int, calls: int) -> str | None:
    if name.startswith("timeout"):
        before = f"; before that: 500 for {number}" if calls > 1 else ""
        return f"no answer within 2.0 s, {calls} attempts{before}"
    if name.startswith("error"):
        return f"500 Internal Server Error: of {number}"
    return (
        f"run r{number} asked, and its answer is lost; the call must not be made twice"
        if name == "unknown"
        else None
    )


def every_outcome_day(
    root: Path, *, copies: int = 2, seed: int | None = None
) -> tuple[Day, list[str]]:
    """A day of one task and two files in which every kind of row stands `copies` times; and the
    kind of each row.

    seed: of another order of the kinds. The rows are in the order of writing.
    """
    writer, kinds = _Writer(), [*KINDS] * copies
    if seed is not None:
        random.Random(seed).shuffle(kinds)
    for kind in kinds:
        writer.row(*kind)
    rows, size = writer.rows, len(writer.rows)
    segments, late = _marks([_us(row["departure"]) for row in rows])
    source = "file:" + quote(str(root / "raw" / f"date={DAY}" / "part-00000.parquet"), safe="/=")
    claims: dict[str, Any] = {
        "_partition": [0] * size, "_input_seq": range(size), "_output_seq": range(size),
        "_segment": segments, "_late": late, "_source_file": [source] * size,
        "_source_row": range(size),
    }  # fmt: skip
    types = dict([*INPUT_FIELDS, *ROW_FIELDS, *fields_of(WEATHER)])
    columns = {
        name: claims[name] if name in claims else [row[name] for row in rows] for name in types
    }
    table = pa.table({name: pa.array(columns[name], kind) for name, kind in types.items()})
    lookup = replace(WEATHER, keys=(("flight", "flight"), ("airline", "carrier")))
    declared = declare(
        lookups=(lookup,), timeout_tolerance=1.0, error_tolerance=1.0, ledger="ledger"
    )
    inputs = {"part-00000.parquet": table.select([name for name, _ in INPUT_FIELDS])}
    outputs = {
        "part-00000-c000.parquet": table.slice(0, size // 2),
        "part-00000-c001.parquet": table.slice(size // 2),
    }
    day = Day(root, declared, inputs, outputs, ((WEATHER.max_concurrency,),))
    day.keep_answers()
    return day, [row["kind"] for row in rows]


def _us(value: dt.datetime) -> int:
    return round(value.timestamp() * 1e6)
