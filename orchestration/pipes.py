"""What the Spark program says to Dagster while it runs. Loaded by the Spark driver; needs dagster_pipes only."""

import atexit
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from dagster_pipes import DAGSTER_PIPES_CONTEXT_ENV_VAR, PipesContext, open_dagster_pipes

PROGRESS_EVERY = 3.0  # s between two lines in the run log
Event = Mapping[str, Any]


def reporter() -> Callable[[Event], None]:
    """The `--reporter` of the Spark program: progress to Dagster's run log, all else to the step that started it.

    Outside Dagster it says nothing.
    """
    if DAGSTER_PIPES_CONTEXT_ENV_VAR not in os.environ:
        return lambda event: None  # noqa: ARG005
    context = open_dagster_pipes()
    atexit.register(_close, context)
    return Reporter(context.log.info, context.report_custom_message)


def _close(context: PipesContext) -> None:
    if not context.is_closed:
        context.close()


class Reporter:
    """Progress goes to `log`: a line for each phase, and at most one every PROGRESS_EVERY seconds; all else to `send`.

    The event of a run that ends without files says how far it came: `progress`.
    """

    def __init__(
        self,
        log: Callable[[str], None],
        send: Callable[[Any], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._send = send
        self._clock = clock
        self._next_line = clock()
        self._last: Event | None = None

    def __call__(self, event: Event) -> None:
        if event["kind"] != "progress":
            far = self._last if event["kind"] in ("stopped", "failed") else None
            self._send({**event, "progress": progress_line(far)} if far else dict(event))
            if event["kind"] in ("checked", "stopped", "failed"):  # the next day's begins anew
                self._last = None
            return
        is_new_phase = self._last is not None and self._last.get("unit") != event.get("unit")  # keys, then rows
        self._last = event
        if is_new_phase or self._clock() >= self._next_line:
            self._next_line = self._clock() + PROGRESS_EVERY
            self._log(progress_line(event))


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
