"""How far a day is, as a line in the log of its run."""

import time
from collections.abc import Callable, Mapping
from typing import Any

EVERY = 3.0  # s between two lines

Event = Mapping[str, Any]


class ProgressLog:
    """Writes a line for each phase of a day, and at most one every EVERY seconds."""

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._next_line = clock()
        self._phase: tuple[str, str] | None = None

    def __call__(self, day: str, event: Event) -> None:
        phase = day, event.get("unit", "rows")  # keys, then rows
        is_new = self._phase is not None and phase != self._phase
        self._phase = phase
        if is_new or self._clock() >= self._next_line:
            self._next_line = self._clock() + EVERY
            self._write(progress_line(event))


def progress_line(event: Event) -> str:
    """One progress event for people: rows or keys, rate, in flight, latency, what went wrong so far, time left."""
    done, total, unit = event["rows"], event.get("rows_total"), event.get("unit", "rows")
    parts = [f"{done:,} of {total:,} {unit} ({done / total:.0%})" if total else f"{done:,} {unit}"]
    for key, text in (
        ("rows_per_s", f"{{:,.0f}} {unit}/s"),
        ("in_flight", "{:,} in flight"),
        ("p50_ms", "p50 {:,.0f} ms"),
        ("p99_ms", "p99 {:,.0f} ms"),
        ("retries", "{:,} retries"),
        ("timeouts", "{:,} timeouts"),
        ("left_s", "{:,.0f} s left"),
    ):
        if event.get(key) is not None:
            parts.append(text.format(event[key]))
    return ", ".join(parts)
