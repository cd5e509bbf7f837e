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

from demo.nights import Nights, record_of
from demo.surroundings import CALLS, DATA, FAULT_SHARES, describe, environment, prepare
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
        _step(2, "data", lambda: prepare(options.days))
        with running(DATA / "demo", CALLS, faults=FAULT_SHARES) as service:
            print(f"{_heading(3, 'services')}{describe(service.url)}", flush=True)
            stop_on = days[-1] if options.stop_service_at is not None else None
            watch = Watch(_heading(4, "nightly runs"), service, stop_on, options.stop_service_at or 0.0)
            return run_nights(days, service, watch)
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
    return f"[{number}/4] {title:<14}"


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


def run_nights(days: Sequence[str], service: WeatherService, watch: Watch) -> int:
    started = time.time()
    nights = Nights(flights.name, days, environment(service.url))
    outcomes = nights.run(watch)
    watch.end()
    done = [record for outcome in outcomes if (record := record_of(outcome, flights.name)) is not None]
    if done:
        print(f"\n{day_table(done)}\n{LEGEND}")
    if len(outcomes) < len(days) or not outcomes[-1].success:
        print(f"\n{not_published(outcomes, days, nights.log)}")
        return 1
    calls = [call for call in service.calls() if call.t_start >= started]
    print(f"\nCounted at the weather service, not by us: {counted_by_the_service(calls)}")
    print(f"                       {agreement(calls, counted_by_us(done))}")
    print(f"\n{where(done[-1])}")
    return 0


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
