"""Days made by the real operator in virtual time: each task has a seed of its own, and a service
that misbehaves.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from honest_day import (
    DAY,
    INPUT_FIELDS,
    ROW_FIELDS,
    RUN_START_US,
    WEATHER,
    Day,
    declare,
    fields_of,
    input_table,
)

from asyncio_core import (
    AsyncFunction,
    AsyncWaitOperator,
    Gate,
    OutputMode,
    StreamRecord,
    Watermark,
    WatermarkStrategy,
    exponential_backoff,
)
from asyncio_core.testing import run_virtual

MODES = {
    "ordered": OutputMode.ORDERED,
    "unordered": OutputMode.UNORDERED,
    "key_ordered": OutputMode.KEY_ORDERED,
}


class Row:
    def __init__(self, number: int, key: str) -> None:
        self.number, self.key = number, key
        self.outcome: str | None = None
        self.attempts: list[tuple[int, int, bool]] = []
        self.running: int | None = None
        self.failures = 0
        self.again = False
        self.paused, self.latency = 0.0, None


class Weather(AsyncFunction):
    """Answers after a while; misses, throttles, fails and hangs as the dice say; keeps the audit of
    every attempt.
    """

    def __init__(self, dice: random.Random, gate: Gate) -> None:
        self._dice, self._gate = dice, gate
        self._loop = asyncio.get_running_loop()

    def _now(self) -> int:
        return RUN_START_US + int(self._loop.time() * 1e6)

    async def async_invoke(self, row: Row) -> list[Row]:
        row.running, row.again = self._now(), False
        if not row.attempts:
            row.paused = self._gate.closed_seconds
        happens = self._dice.random()
        await asyncio.sleep(60 if happens < 0.03 else self._dice.lognormvariate(-3, 0.8))
        throttled = 0.03 <= happens < 0.06
        if throttled:
            self._gate.close(0.3)
            row.again = True
        elif happens < 0.15:
            row.failures += 1
            row.again, row.outcome = row.failures <= WEATHER.retries, "error"
        else:
            row.outcome = "miss" if happens < 0.25 else "ok"
        self._end(row, throttled=throttled)
        return [row]

    def timeout(self, row: Row) -> list[Row]:
        row.outcome, row.again = "timeout", False
        self._end(row)
        return [row]

    def _end(self, row: Row, *, throttled: bool = False) -> None:
        now = self._now()
        if row.running is not None:
            row.attempts.append((row.running, now, throttled))
            row.running = None
        if not row.again:
            row.latency = (now - row.attempts[0][0]) / 1000
            row.paused = (self._gate.closed_seconds - row.paused) * 1000


async def _run(
    rows: list[Row], times: list[int | None], mode: str, share: int, dice: random.Random
) -> list:
    gate, left = Gate(), []
    function = Weather(dice, gate)
    operator = AsyncWaitOperator(
        function,
        left.append,
        mode=MODES[mode],
        timeout=WEATHER.timeout,
        capacity=16 * share,
        concurrency=share,
        retry_strategy=exponential_backoff(
            max_retries=1000,
            initial_delay=WEATHER.initial_delay,
            max_delay=WEATHER.max_delay,
            multiplier=WEATHER.multiplier,
            jitter=0.5,
            random=dice,
            on_result=lambda results: results[0].again,
        ),
        key=(lambda row: row.key) if mode == "key_ordered" else None,
        gate=gate,
    )
    await operator.open()
    try:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(60.0)
        for element in strategy.assign(
            StreamRecord(row, None if time is None else time // 1000)
            for row, time in zip(rows, times, strict=True)
        ):
            await operator.process_element(element)
        await operator.end_input()
    finally:
        await operator.close()
    return [element.value for element in left if not isinstance(element, Watermark)]


def operator_day(root: Path, mode: str, *, seeds: range, rows_of_a_task: int = 120) -> Day:
    """One task per seed, each with its share of the calls."""
    shares = tuple(1 + seed % 7 for seed in seeds)
    keys = (("flight", "flight"), ("airline", "lower(carrier)"))
    lookup = replace(WEATHER, max_concurrency=sum(shares), keys=keys)
    declared = declare(mode, lookups=(lookup,), timeout_tolerance=1.0, error_tolerance=1.0)
    inputs, outputs = {}, {}
    for partition, seed in enumerate(seeds):
        dice = random.Random(f"{seed} {mode}")
        name = f"part-{partition:05d}.parquet"
        table, columns = input_table(dice, partition, rows_of_a_task)
        inputs[name] = table
        rows = [Row(number, key) for number, key in enumerate(columns["carrier"])]
        work = _run(rows, columns["departure"], mode, shares[partition], dice)
        left = run_virtual(work, seed=seed)
        source = "file:" + quote(str(root / "raw" / f"date={DAY}" / name), safe="/=")
        outputs[f"part-{partition:05d}-c000.snappy.parquet"] = _written(
            left, partition, source, columns, dice
        )
    day = Day(root, declared, inputs, outputs, (shares,))
    day.keep_answers()
    return day


def _error(row: Row) -> str | None:
    if row.outcome == "timeout":
        return f"no answer within {WEATHER.timeout} s, {len(row.attempts)} attempts"
    return "weather_api: error" if row.outcome == "error" else None


def _written(
    left: list[Row], partition: int, source: str, columns: dict[str, list], dice: random.Random
) -> pa.Table:
    generator = WatermarkStrategy.for_bounded_out_of_orderness(60.0).create_watermark_generator()
    segments, late, seen = [], [], 0
    for time in columns["departure"]:
        moment = None if time is None else time // 1000
        segments.append(seen)
        late.append(generator.is_late(moment))
        seen += generator.on_record(moment) is not None
    records = []
    for place, row in enumerate(left):
        answered, number = row.outcome in ("ok", "miss"), row.number
        records.append(
            {name: columns[name][number] for name, _ in INPUT_FIELDS if name != "departure"}
            | {
                "_partition": partition,
                "_input_seq": number,
                "_output_seq": place,
                "_segment": segments[number],
                "_late": late[number],
                "_source_file": source,
                "_source_row": number,
                "temp_c": dice.uniform(-20, 35) if row.outcome == "ok" else None,
                "visibility_m": dice.randrange(16_000) if row.outcome == "ok" else None,
                "_weather_status": row.outcome,
                "_weather_source": "call" if answered else None,
                "_weather_attempts": [
                    {"start": s, "end": e, "throttled": t} for s, e, t in row.attempts
                ],
                "_weather_latency_ms": row.latency,
                "_weather_paused_ms": row.paused,
                "_weather_error": _error(row),
                "_weather_key": {"flight": columns["flight"][number], "airline": row.key.lower()},
                "weather_status": row.outcome,
                "weather_answered_at": row.attempts[-1][1] if answered else None,
            }
        )
    kinds = dict([*INPUT_FIELDS, *ROW_FIELDS, *fields_of(WEATHER)])
    departures = [columns["departure"][row.number] for row in left]
    arrays = {
        name: pa.array(
            departures if name == "departure" else [record[name] for record in records], kind
        )
        for name, kind in kinds.items()
    }
    return pa.table(arrays)
