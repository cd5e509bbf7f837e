"""What Dagster costs: a backfill of the demo's days, compared with days by the bare command.

    python benchmarks/backfill.py              30 days through Dagster, 6 bare: 20 to 40 minutes
    python benchmarks/backfill.py --days 3 --bare 3

The backfill goes through daemon and queue. The weather answers at once and each way has a separate
ledger, so that the days cost what the machinery costs. Both ways run the same Spark program,
checks, publishing and summaries, day after day.
"""

import contextlib
import datetime as dt
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dagster as dg
from command_line import option_parser
from dagster import DagsterRunStatus, RunsFilter
from usage import medians

from demo import data
from demo.surroundings import environment
from demo.weather_service import running
from jobs.process.process_guard import command_under_guard
from orchestration.dagster.home import dagster_home

ROOT = Path(__file__).resolve().parent.parent
WORKSPACE = str(ROOT / "workspace.yaml")
BIN = Path(sys.executable).parent
JOB = "flights_enriched_nightly"
ENDED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]


def main() -> int:
    options = option_parser(__doc__, days=30, bare=6).parse_args()
    days = [dt.date(2013, 1, 1) + dt.timedelta(days=number) for number in range(options.days)]
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-backfill-") as folder,
        contextlib.chdir(folder),
    ):
        data.prepare(Path("data"), days)
        with running(Path("data/demo"), Path("calls.jsonl"), scale=0.0) as service:
            os.environ.update(environment(service.url))
            names = [day.isoformat() for day in days]
            bare = by_command(names[:: max(1, options.days // options.bare)][: options.bare])
            forget_what_was_made()
            total, runs = through_dagster(names)
    tell(bare, total, runs)
    return 0


def by_command(days: list[str]) -> list[float]:
    """Seconds per day: `tidegate run`, a process per day."""
    times = []
    for day in days:
        started = time.monotonic()
        command = [sys.executable, "-m", "tidegate", "run", "flights_enriched", "--day", day]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.monotonic() - started)
    return times


def forget_what_was_made() -> None:
    for made in ("published", "ledger", "runs", "reports"):
        shutil.rmtree(Path("data", made), ignore_errors=True)


def through_dagster(days: list[str]) -> tuple[float, list[tuple[float, float, float]]]:
    """Return the seconds of the whole backfill, and of each run.

    A run has the seconds from launch to end, of the Spark step, and of the gap before it.
    """
    os.environ["DAGSTER_HOME"] = str(dagster_home())
    daemon = subprocess.Popen(
        command_under_guard([str(BIN / "dagster-daemon"), "run", "-w", WORKSPACE], grace=30),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        with dg.DagsterInstance.get() as instance:
            started = time.monotonic()
            asked = [
                "job",
                "backfill",
                "-w",
                WORKSPACE,
                "-j",
                JOB,
                "--partitions",
                ",".join(days),
                "--noprompt",
            ]
            subprocess.run(
                [BIN / "dagster", *asked],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            while len(instance.get_runs(RunsFilter(statuses=ENDED))) < len(days):
                time.sleep(1)
            return time.monotonic() - started, list_day_runs(instance)
    finally:
        daemon.terminate()
        daemon.wait()


def list_day_runs(instance: dg.DagsterInstance) -> list[tuple[float, float, float]]:
    records = instance.get_run_records(RunsFilter(statuses=ENDED))
    red = [
        record.dagster_run.tags["dagster/partition"]
        for record in records
        if not record.dagster_run.is_success
    ]
    if red:
        sys.exit(f"days that were not published: {', '.join(sorted(red))}")
    steps = []
    for record in records:
        of_run = instance.get_run_step_stats(record.dagster_run.run_id)
        (step,) = (one for one in of_run if one.step_key == "flights_enriched")
        steps.append((step.start_time, step.end_time, record.end_time - record.start_time))
    steps.sort()
    ends = [steps[0][0], *(end for _, end, _ in steps)]
    return [
        (run, end - start, start - before)
        for (start, end, run), before in zip(steps, ends, strict=False)
    ]


def tell(bare: list[float], total: float, runs: list[tuple[float, float, float]]) -> None:
    days, of_bare = len(runs), statistics.median(bare)
    of_run, of_step, gap = medians(runs)
    print(f"{days} days, one after the other, {os.cpu_count()} cores; medians, s")
    print(
        f"  bare: a process per day, tidegate run         {of_bare:7.1f} per day, of {len(bare)} "
        "days"
    )
    print(f"  Dagster: the Spark step                       {of_step:7.1f} per day")
    print(f"  Dagster: the run, summary included            {of_run:7.1f} per day")
    print(f"  Dagster: from one Spark step to the next      {gap:7.1f}")
    print(
        f"  Dagster: the backfill, asked for to done      {total / days:7.1f} per day, "
        f"{total:.0f} s in all"
    )
    print(f"  Dagster / bare                                {total / days / of_bare:7.2f}")


if __name__ == "__main__":
    sys.exit(main())
