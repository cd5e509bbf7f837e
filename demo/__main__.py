"""The demo: three real days of New York flights, through Dagster and Spark to a published table.

    python -m demo                           make demo
    python -m demo --stop-service-at 0.5     kills the weather service at half of the last day
    TIDEGATE_DEMO_STORE=s3 python -m demo    the tables are on an S3 server on loopback

The second day is killed with -9 at half of its rows and started again, and a finished day is run
again with the ledger's answers. The demo can be repeated: after a successful demo, the next begins
with an empty ledger.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

from demo import object_store
from demo.story import Story, heading
from demo.surroundings import CALLS, DATA, FAULT_SHARES, describe, forget_answers, prepare
from demo.weather_service import running
from jobs.process.spark_needs import java_missing

DAYS = ("2013-01-10", "2013-01-11", "2013-01-12")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Exit status: 0 if all days are published, 1 otherwise, 130 after Ctrl-C."""
    options = _options(arguments)
    days = [day.isoformat() for day in options.days]
    try:
        if os.environ.get(object_store.VARIABLE):
            return object_store.run_on_store(sys.argv[1:] if arguments is None else arguments)
        print(
            (
                "Tidegate demo: real days of New York flights, weather over HTTP, planes from a "
                "database\n"
            ),
            flush=True,
        )
        _step(1, "environment", check_environment)
        _step(2, "data", lambda: f"{prepare(options.days)}{forget_answers()}")
        with running(DATA / "demo", CALLS, faults=FAULT_SHARES) as service:
            print(f"{heading(2, '')}{describe(service.url)}", flush=True)
            return Story(days, service, options.stop_service_at).reported()
    except (ValueError, RuntimeError) as missing:
        print(f"\nNOT STARTED: {missing}")
        return 1
    except KeyboardInterrupt:
        print("\n\nStopped by you. Safe: no partial day is published.   Next: `make demo` again.")
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
        "--stop-service-at",
        type=float,
        metavar="SHARE",
        help="kill the weather service at this share of the last day",
    )
    return parser.parse_args(arguments)


def _step(number: int, title: str, work: Callable[[], str]) -> None:
    started = time.monotonic()
    text = work()
    print(f"{heading(number, title)}{text}   {time.monotonic() - started:.1f} s", flush=True)


def check_environment() -> str:
    """Raise RuntimeError if Java is missing or too old."""
    if missing := java_missing():
        raise RuntimeError(missing)
    return (
        f"Python {sys.version_info.major}.{sys.version_info.minor}, Java and "
        f"{Path(sys.prefix).name} ready"
    )


if __name__ == "__main__":
    sys.exit(main())
