"""Shows the progress line of a running day, and kills the service or the run in the middle."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from demo.weather_service import WeatherService
from jobs.run import terminal

AFTER_THE_ROWS = {"written": "checks", "checked": "publishing"}


@dataclass
class Watch:
    """Receives the progress of the current day a few times a second.

    In a terminal it updates a line per day; elsewhere it prints a line at the end of each day.
    """

    heading: str  # printed before the first day
    service: WeatherService
    stop_on: str | None = None  # the day during which the service is killed
    stop_at: float = 0.5  # share of its rows
    crash_on: str | None = None  # the day during which the run is killed
    note: str = ""  # the end of each day's line
    _day: str = ""
    _progress: Mapping[str, Any] = field(default_factory=dict)  # the last progress with rows
    _shown: str = ""
    _moves: bool = False  # whether the line is updated in place, in a terminal

    def __post_init__(self) -> None:
        self._moves = sys.stdout.isatty()

    def __call__(self, day: str, event: Mapping[str, Any]) -> bool:
        """Update the line; return True if the run should be killed now."""
        if day != self._day:
            self.end()
            self._day, self._progress = day, {}
        kind = event.get("kind", "")
        if kind == "progress":
            self._progress = event
            self._stop_service()
        if self._moves:
            stage = AFTER_THE_ROWS.get(kind, "" if self._progress else "Dagster and Spark start")
            self._show(f"{self._line()}   {stage}".rstrip())
        return self._crashes()

    def _crashes(self) -> bool:
        if self.crash_on != self._day or not self._progress or self._share() < self.stop_at:
            return False
        self.crash_on = None
        return True

    def _share(self) -> float:
        return float(self._progress["rows"] / max(self._progress["rows_total"], 1))

    def end(self) -> None:
        if self._day:
            line = f"{self._line()}   {self.note}".rstrip()
            print(f"\r\x1b[K{line}" if self._moves else line, flush=True)
            self.heading, self._day = " " * len(self.heading), ""

    def _show(self, text: str) -> None:
        if text != self._shown:
            self._shown = text
            print(f"\r\x1b[K{text}", end="", flush=True)

    def _line(self) -> str:
        rows = terminal.progress_line(self._progress) if self._progress else ""
        return f"{self.heading}{self._day}  {rows}"

    def _stop_service(self) -> None:
        share = self._share()
        if self.stop_on == self._day and share >= self.stop_at:
            self.stop_on = None
            self.service.kill()
            if self._moves:
                print("\r\x1b[K", end="")
            print(
                f"{self.heading}{self._day}  the weather service is killed with -9 at {share:.0%} "
                "of the rows",
                flush=True,
            )
