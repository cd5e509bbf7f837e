"""Where the seconds of a small day go: 932 flights by `tidegate run`, by stage and process.

python benchmarks/small_day.py                      the first night: all keys are asked
python benchmarks/small_day.py --again         and the same day once more: all answers are known
python benchmarks/small_day.py --plain              without the demo's options for Java
python benchmarks/small_day.py --days 30       a month in one command, and what the service takes
python benchmarks/small_day.py --days 30 --faults   1 % of the weather calls fail, as in the demo
python benchmarks/small_day.py --dagster       as the nightly schedule of Dagster starts it

The services are the demo's, and an indented stage is part of the stage above. "before" is what the
process did up to its first stage: interpreter, imports, Java.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

from command_line import option_parser
from usage import CpuWatch, medians

from demo import data, surroundings, weather_service
from enrichments.flights import weather

ROOT = Path(__file__).resolve().parents[1]
DAY = "2013-01-10"


def command_of(days, by_dagster):
    if by_dagster:
        module = "demo.run_days"
        return [
            sys.executable,
            "-m",
            module,
            "flights_enriched_nightly",
            *days,
            "--outcomes",
            "outcomes",
        ]
    span = ["--day", days[0]] if len(days) == 1 else ["--from", days[0], "--to", days[-1]]
    return [sys.executable, "-m", "tidegate", "run", "flights_enriched", *span]


def run(folder, environment, days, by_dagster):
    """Run the days; gives their wall seconds, CPU seconds by process, and what the stages noted."""
    log = folder / "stages.jsonl"
    log.unlink(missing_ok=True)
    path = os.pathsep.join([str(ROOT / "benchmarks" / "stages"), str(ROOT)])
    variables = os.environ | environment | {"TIDEGATE_STAGES": str(log), "PYTHONPATH": path}
    # each of the Pythons would compile every module anew
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.time()
    process = subprocess.Popen(command_of(days, by_dagster), cwd=folder, env=variables)
    with CpuWatch(process.pid, every=0.02) as watch:
        status = process.wait()
        wall = time.time() - began
    if status:
        sys.exit(f"the run ended with status {status}")
    return began, wall, watch.by_kind(), [json.loads(line) for line in log.read_text().splitlines()]


def tell(began, wall, cpu, noted):
    noted.sort(key=lambda one: (one["began"], -one["ended"]))
    print(f"\n{'began':>7} {'took':>6}")
    around: list[dict[str, float]] = []
    for one in noted:
        while around and around[-1]["ended"] < one["ended"]:
            around.pop()
        print(
            f"{one['began'] - began:7.2f} {one['ended'] - one['began']:6.2f}  "
            f"{'  ' * len(around)}{one['name']}"
        )
        around.append(one)
    print(f"{wall:7.2f}         the end\n")
    for kind, seconds in cpu.items():
        print(f"{seconds:7.2f} s CPU  {kind}")
    print(f"{sum(cpu.values()):7.2f} s CPU in all, {wall:.2f} s wall", flush=True)


def tell_days(noted, ended, calls):
    """Each day's seconds from preflight to preflight: up to its first call to the weather, to its
    last, after that.

    least: what the service takes, the sum of its latencies over the calls in flight.
    """
    starts = [one["began"] for one in noted if one["name"] == "jobs.run.plan.preflight.preflight"]
    line = "{:>7} {:>7} {:>7} {:>7} {:>7}".format
    print("\n" + line("day", "least", "before", "called", "after"))
    days = []
    for began, end in itertools.pairwise([*starts, ended]):
        if own := [call for call in calls if began <= call.t_start < end]:
            first, last = min(call.t_start for call in own), max(call.t_end for call in own)
            least = sum(call.t_end - call.t_start for call in own) / weather.service.max_concurrency
            days.append((end - began, least, first - began, last - first, end - last))
            print(line(*(f"{seconds:.2f}" for seconds in days[-1])))
    if between := days[1:-1]:  # the first starts Spark, and the last ends it
        print(
            line(*(f"{seconds:.2f}" for seconds in medians(between))),
            " medians, without the first and the last",
        )


def main():
    options = option_parser(
        __doc__, again=False, plain=False, days=1, faults=False, dagster=False
    ).parse_args()
    first = date.fromisoformat(DAY)
    days = [first + timedelta(number) for number in range(options.days)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data.prepare(folder / "data", days)
        faults = surroundings.FAULT_SHARES if options.faults else "none"
        with weather_service.running(
            folder / "data" / "demo", folder / "calls.jsonl", faults=faults
        ) as service:
            environment = surroundings.environment(service.url) | {
                "DAGSTER_HOME": str(folder / "dagster")
            }
            (folder / "dagster").mkdir()
            if options.plain:
                environment.pop("TIDEGATE_SPARK_JAVA_OPTIONS")
            for _ in range(1 + options.again):
                began, wall, cpu, noted = run(
                    folder, environment, [str(day) for day in days], options.dagster
                )
                tell(began, wall, cpu, noted if len(days) == 1 else [])
                if len(days) > 1:
                    tell_days(noted, began + wall, service.calls())
                print(f"{wall / len(days):.2f} s a day", flush=True)


if __name__ == "__main__":
    main()
