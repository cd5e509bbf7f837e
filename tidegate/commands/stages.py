"""Prints the progress of a running day: an updated line in a terminal, else a line per stage."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

from jobs.process.day_events import DayStage
from jobs.run.engines.engine import LOCAL
from jobs.wording import counted
from tidegate.terminal import clear_line

EVERY = 30.0  # s between two lines about the same stage, if the output is not a terminal
BAR = 20  # characters
COST_EVERY = 2.0  # s between two looks at a run's bill


class Stages:
    """Prints to stderr, as stdout has the finished days; if `in_place`, it updates a line."""

    def __init__(
        self, *, in_place: bool, cost_so_far: Callable[[DayStage], str] | None = None
    ) -> None:
        """Show progress.

        Args:
            in_place: Whether stderr is a terminal.
            cost_so_far: Returns what the run was billed by now; read in a terminal only.
        """
        self._in_place, self._cost_so_far = in_place, cost_so_far
        self._cost, self._priced = "", 0.0  # s, monotonic
        self._stage: tuple[Any, ...] = ()
        self._printed = 0.0  # s, monotonic

    def show(self, event: DayStage) -> None:
        message = stage_line(event)
        if not message:
            return
        if self._in_place:
            if event.kind == "progress":
                message = self._with_bar(event, message)
            clear_line(sys.stderr)
            width = shutil.get_terminal_size().columns - 1  # only one line can be cleared
            print(message[:width], end="", file=sys.stderr, flush=True)
            return
        stage = (event.day, event.kind, event.facts.get("unit"), event.facts.get("engine"))
        moves = event.kind == "progress" and time.monotonic() - self._printed >= EVERY
        if stage != self._stage or moves:
            print(f"{event.day}  {message}", file=sys.stderr, flush=True)
            self._stage, self._printed = stage, time.monotonic()

    def _with_bar(self, event: DayStage, message: str) -> str:
        if self._cost_so_far and time.monotonic() - self._priced >= COST_EVERY:
            self._cost, self._priced = self._cost_so_far(event), time.monotonic()
        done, total = event.facts["rows"], event.facts.get("rows_total")
        full = min(BAR, BAR * done // total) if total else 0
        parts = [f"[{'#' * full:<{BAR}}] {message}" if total else message, self._cost]
        return ", ".join(filter(None, parts))

    def clear(self) -> None:
        if self._in_place:
            clear_line(sys.stderr)
            sys.stderr.flush()


def stage_line(event: DayStage) -> str:
    """Return the text of a stage; empty for the last stage, as the finished day has a line."""
    from jobs.run.terminal import progress_line

    message, facts = "", event.facts
    match event.kind:
        case "starting":
            started = "starting the run" if facts["engine"] == LOCAL else "starting Spark"
            started = "looking at jobs of vendors" if facts.get("jobs_only") else started
            message = f"{started}, which logs to {facts['log']}"
        case "started":
            message = f"reading {counted(facts['rows_total'], 'row')}"
        case "progress":
            message = progress_line(facts)
        case "written":
            message = "written; checking the files"
        case "checked":
            message = "checked"
        case "deciding":
            message = "holding the day back" if facts["held_back"] else "publishing"
    return message
