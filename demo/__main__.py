"""The demo: three real days of New York flights, from raw files to a published table, through Dagster and Spark.

    python -m demo                           make demo
    python -m demo --stop-service-at 0.5     the weather service is killed at half of the last day

It can be run again and again: a day that was published before is enriched and published anew.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

from deltalake import DeltaTable

from demo import crash
from demo.nights import Nights, record_of
from demo.surroundings import (
    CALLS,
    DATA,
    FAULT_SHARES,
    answers_kept,
    describe,
    environment,
    forget_answers,
    prepare,
)
from demo.table import agreement, counted_by_the_service, counted_by_us, day_table
from demo.watching import Watch
from demo.weather_service import WeatherService, running
from enrichments.flights import flights
from jobs.schema import DayRecord
from orchestration.outcome import Outcome

REPORTS = DATA / "reports" / flights.name
DAYS = ("2013-01-10", "2013-01-11", "2013-01-12")
LEGEND = """\
  rows = the sum of the outcomes, for each lookup; late rows are among them and are asked like all others
  wall = first call to last; limit = sum of the calls' times / calls allowed in flight: no program can be faster
  lookups run side by side, row by row: a fast one takes as long as the slowest beside it"""


class NotReady(Exception):  # noqa: N818  # a state of this machine
    """Something that the demo needs is not there; the message says what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Exit status: 0 all days are published, 1 one is not, 130 somebody pressed Ctrl-C."""
    options = _options(arguments)
    days = [day.isoformat() for day in options.days]
    print("Tidegate demo: real days of New York flights, weather over HTTP, planes from a database\n", flush=True)
    try:
        _step(1, "environment", check_environment)
        _step(2, "data", lambda: f"{prepare(options.days)}{forget_answers()}")
        with running(DATA / "demo", CALLS, faults=FAULT_SHARES) as service:
            print(f"{'':<{len(_heading(2, ''))}}{describe(service.url)}", flush=True)
            story = Story(days, service, options.stop_service_at)
            return story.told()
    except (NotReady, ValueError, RuntimeError) as missing:
        print(f"\nNOT STARTED: {missing}")
        return 1
    except KeyboardInterrupt:
        print("\n\nStopped by you. Safe: nothing half is published.   Next: `make demo` again.")
        return 130


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo", description="Real days, from raw files to a published table."
    )
    parser.add_argument(
        "--days",
        type=lambda text: [date.fromisoformat(day) for day in text.split(",")],
        default=[date.fromisoformat(day) for day in DAYS],
        help=f"separated by commas (default: {','.join(DAYS)})",
    )
    parser.add_argument(
        "--stop-service-at", type=float, metavar="SHARE", help="kill the weather service at this share of the last day"
    )
    return parser.parse_args(arguments)


def _heading(number: int, title: str) -> str:
    return f"[{number}/5] {title:<14}"


def _step(number: int, title: str, work: Callable[[], str]) -> None:
    started = time.monotonic()
    text = work()
    print(f"{_heading(number, title)}{text}   {time.monotonic() - started:.1f} s", flush=True)


def check_environment() -> str:
    """Raises NotReady when Java is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if java is None:
        raise NotReady("Spark needs Java 17 or newer and there is none: install it, or set JAVA_HOME.")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < 17:
        raise NotReady(
            f"Spark needs Java 17 or newer; {java} says: {said.strip().splitlines()[0] if said else 'nothing'}."
        )
    return f"Python {sys.version_info.major}.{sys.version_info.minor}, Java {version[1]}, {Path(sys.prefix).name} ready"


class Story:
    """Nightly runs, one of them killed in the middle and started again, and a finished day run once more."""

    def __init__(self, days: Sequence[str], service: WeatherService, stop_service_at: float | None) -> None:
        self._days = days
        self._service = service
        self._crash = days[1] if len(days) > 1 and stop_service_at is None else None
        stop_on = days[-1] if stop_service_at is not None else None
        self._watch = Watch("", service, stop_on, stop_service_at if stop_service_at is not None else crash.AT)
        self._nights = Nights(flights.name, environment(service.url))
        self._records: dict[str, DayRecord] = {}

    def told(self) -> int:
        started = time.time()
        nightly = [day for day in self._days if day != self._crash]
        if not self._run(3, "nightly runs", nightly):
            return 1
        if self._crash is None:
            return self._end(started, None)
        bill, by_hand = self._killed_and_again(self._crash)
        if self._crash not in self._records:
            return 1
        first = self._records[self._days[0]]
        again = crash.calls_during(self._service, lambda: self._run(5, "the rerun", self._days[:1]))
        self._records[self._days[0]] = first  # the table shows the run that called
        print(f"{_heading(5, '')}{self._days[0]}  run again: {len(again):,} calls", flush=True)
        return self._end(started, (bill, by_hand))

    def _run(self, number: int, title: str, days: Sequence[str]) -> bool:
        """Run these days; False when one is not published, which is said."""
        self._watch.heading = _heading(number, title)
        outcomes = self._nights.run(days, self._watch)
        self._watch.end()
        for outcome in outcomes:
            if (record := record_of(outcome, flights.name)) is not None:
                self._records[outcome.day] = record
        if len(outcomes) == len(days) and outcomes[-1].success:
            return True
        if self._records:
            print(f"\n{day_table(self._in_order())}\n{LEGEND}")
        print(f"\n{not_published(outcomes, days, self._nights.log)}")
        return False

    def _killed_and_again(self, day: str) -> tuple[crash.Bill, crash.Bill]:
        """The day killed in the middle and started again, and the same by hand: what the service's log says of both."""

        def twice() -> None:
            self._watch.heading, self._watch.crash_on = _heading(4, "the crash"), day
            self._nights.run([day], self._watch)
            self._watch.note = f"killed with -9: {answers_kept():,} answers had come back and are kept"
            self._watch.end()
            self._watch.note = "same command again"
            self._run(4, "", [day])
            self._watch.note = ""

        bill = crash.Bill.of(crash.calls_during(self._service, twice))
        return bill, crash.gather_killed_and_again(day, self._service, DATA / "demo" / "by_hand.parquet")

    def _end(self, started: float, bills: tuple[crash.Bill, crash.Bill] | None) -> int:
        done = self._in_order()
        print(f"\n{day_table(done)}\n{LEGEND}")
        print("\nCounted at the weather service, not by us")
        if bills is None:
            calls = [call for call in self._service.calls() if call.t_start >= started]
            print(f"  {counted_by_the_service(calls)}\n  {agreement(calls, counted_by_us(done))}")
        else:
            print(f"  {self._crash}, killed at half and run again:          {bills[0]}")
            print(f"  the same crash, hand-written asyncio.gather:    {bills[1]}")
        print(f"\n{where(done[-1])}")
        return 0

    def _in_order(self) -> list[DayRecord]:
        return [self._records[day] for day in sorted(self._records)]


def not_published(outcomes: Sequence[Outcome], days: Sequence[str], log: Path) -> str:
    """What happened, what is safe and what to do, in place of a traceback."""
    if outcomes and not outcomes[-1].success:
        failed = outcomes[-1]
        day, reason = failed.day, failed.reason.removeprefix("Not published: ")
        record = record_of(failed, flights.name)
    else:
        day, reason, record = days[len(outcomes)], f"Dagster ended before the day was done; {log} says why.", None
    cure = f"open {REPORTS / day / 'index.html'}, mend the cause, " if record else ""
    return f"NOT PUBLISHED {day}: {reason}\nSafe: {_safe(day, days)}   Next: {cure}`make demo` again."


def _safe(day: str, days: Sequence[str]) -> str:
    table = flights.output.path
    partitions = DeltaTable(table).partitions() if DeltaTable.is_deltatable(table) else []
    published = sorted({partition[flights.input.partition] for partition in partitions} & set(days))
    others = [other for other in published if other != day]
    said = (
        f"{' and '.join(others)} {'is' if len(others) == 1 else 'are'} published"
        if others
        else "nothing half is published"
    )
    return f"{said}; readers still see {day} as it was before." if day in published else f"{said}."


def where(record: DayRecord) -> str:
    table = flights.output.path
    look = f"from deltalake import DeltaTable; print(DeltaTable('{table}').to_pandas())"
    return "\n".join(
        [
            f'  table     {table}   .venv/bin/python -c "{look}"',
            f"  report    {REPORTS}/index.html, of a day: {REPORTS / record.facts.day}/index.html (no network needed)",
            "  see it    make ui",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
