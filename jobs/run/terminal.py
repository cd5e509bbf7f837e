"""Writes events of a run as lines for a person who reads its log."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TextIO

from jobs.wording import counted, percent, printable

EVERY = 5.0  # s between progress lines


def progress_line(event: Mapping[str, Any]) -> str:
    """Return `460 of 920 rows (50%), 88 rows/s, 10 in flight`: what is known of the progress."""
    done, total, unit = event["rows"], event.get("rows_total"), event.get("unit", "rows")
    parts = [f"{done:,} {unit}"]
    if total:
        parts = [f"{done:,} of {total:,} {unit} ({percent(done / total, 0)})"]
    if rate := event.get("rows_per_s"):  # 0 in the first half second
        parts.append(f"{rate:,.0f} {unit}/s")
    for key, text in (
        ("in_flight", "{:,} in flight"),
        ("p50_ms", "p50 {:,.0f} ms"),
        ("p99_ms", "p99 {:,.0f} ms"),
        ("retries", "{:,} retries"),
        ("timeouts", "{:,} timeouts"),
        ("left_s", "{:,.0f} s left"),
    ):
        if event.get(key) is not None:
            parts.append(text.format(event[key]))
    return ", ".join([*parts, event["waits"]] if event.get("waits") else parts)


def limit_line(lookup: dict[str, Any]) -> str:
    in_use = lookup["limit_s"] / lookup["wall_s"]
    closed = lookup["throttled_s"] + lookup["down_s"] + lookup["shared_s"]
    gate = f", gate closed {closed:.1f} s" if closed else ""
    return f"{lookup['name']}: limited by {lookup['limited_by']} (slots in use {in_use:.0%}{gate})"


class Terminal:
    def __init__(self, output: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._output, self._clock = output, clock
        self._last = 0.0
        # the last progress, if it came too soon after another
        self._unprinted: dict[str, Any] | None = None

    def __call__(self, event: dict[str, Any]) -> None:
        match event["kind"]:
            case "progress":
                self._progress(event)
            case "started":
                self._line(
                    f"{event['day']}   run {event['run_id']}   "
                    f"{counted(event['rows_total'], 'row')}"
                )
            case "written":
                self._line(f"written to {event['record']['facts']['folder']}")
                for lookup in event["record"]["figures"]["lookups"]:
                    if lookup["limited_by"]:
                        self._line(limit_line(lookup))
            case "checked":
                for verdict in event["record"]["verdicts"]:
                    self._line(f"{verdict['status']:>8}  {verdict['check']}: {verdict['sentence']}")
            case "stopped" | "failed":
                self._line(event["reason"])

    def _progress(self, event: dict[str, Any]) -> None:
        if self._clock() - self._last >= EVERY:
            self._last, self._unprinted = self._clock(), None
            self._print(progress_line(event))
        else:
            self._unprinted = event

    def _line(self, text: str) -> None:
        if self._unprinted is not None:  # so that a log ends with the last progress
            text, self._unprinted = f"{progress_line(self._unprinted)}\n{text}", None
        self._print(printable(text))

    def _print(self, text: str) -> None:
        with suppress(OSError):  # a log that a full disk does not take stops no day
            print(text, file=self._output, flush=True)
