"""Where the seconds of a small day go: 932 flights by `tidegate run`, stage by stage, with the CPU of each process.

python benchmarks/small_day.py                  the first night: all keys are asked
python benchmarks/small_day.py --again          and the same day once more: all answers are known
python benchmarks/small_day.py --plain          without the demo's options for Java
python benchmarks/small_day.py --days 30        a month of such days in one command: seconds per day
python benchmarks/small_day.py --dagster        the same by a run of Dagster, as the nightly schedule starts it

The services are the demo's, and a stage that is indented is part of the one above. "before" is what the process did up
to its first stage: interpreter, imports, Java.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from datetime import date, timedelta
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from demo import data, surroundings, weather_service  # noqa: E402  # the path is set above

DAY = "2013-01-10"
LOOK_EVERY = 0.02  # s
KINDS = {
    "org.apache.spark.launcher.Main": "Java that writes Spark's command line",
    "org.apache.spark.deploy.SparkSubmit": "Spark's Java",
    "pyspark.daemon": "Spark's Python workers",
    "enrich_day.py": "the Spark program's Python",
    "process_guard": "the guard",
    "run_days": "Dagster",
    "tidegate": "tidegate run",
}


class CpuWatch:
    """The CPU seconds of a process and all below it, by what they are; looked at until they end."""

    def __init__(self, process):
        self._root = psutil.Process(process.pid)
        self._spent = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self):
        while not self._ended.wait(LOOK_EVERY):
            try:
                family = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for process in family:
                try:
                    words, times = " ".join(process.cmdline()), process.cpu_times()
                except psutil.Error:
                    continue
                kind = next((kind for word, kind in KINDS.items() if word in words), "shells")
                self._spent[process.pid, process.create_time()] = kind, times.user + times.system

    def end(self):
        self._ended.set()
        self._thread.join()
        found = {}
        for kind, seconds in self._spent.values():
            found[kind] = found.get(kind, 0.0) + seconds
        return found


def command_of(days, by_dagster):
    if by_dagster:
        module = "orchestration.dagster.run_days"
        return [sys.executable, "-m", module, "flights_enriched_nightly", *days, "--outcomes", "outcomes"]
    span = ["--day", days[0]] if len(days) == 1 else ["--from", days[0], "--to", days[-1]]
    return [sys.executable, "-m", "tidegate", "run", "flights_enriched", *span]


def run(folder, environment, days, by_dagster):
    """Run the days; gives their wall seconds, CPU seconds by process, and what the stages noted."""
    log = folder / "stages.jsonl"
    log.unlink(missing_ok=True)
    path = os.pathsep.join([str(ROOT / "benchmarks" / "stages"), str(ROOT)])
    variables = os.environ | environment | {"TIDEGATE_STAGES": str(log), "PYTHONPATH": path}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # each of the Pythons would compile every module anew
    began = time.time()
    process = subprocess.Popen(command_of(days, by_dagster), cwd=folder, env=variables)
    watch = CpuWatch(process)
    status = process.wait()
    wall = time.time() - began
    cpu = watch.end()
    if status:
        sys.exit(f"the run ended with status {status}")
    return began, wall, cpu, [json.loads(line) for line in log.read_text().splitlines()]


def tell(began, wall, cpu, noted):
    noted.sort(key=lambda one: (one["began"], -one["ended"]))
    print(f"\n{'began':>7} {'took':>6}")
    around = []
    for one in noted:
        while around and around[-1]["ended"] < one["ended"]:
            around.pop()
        print(f"{one['began'] - began:7.2f} {one['ended'] - one['began']:6.2f}  {'  ' * len(around)}{one['name']}")
        around.append(one)
    print(f"{wall:7.2f}         the end\n")
    for kind, seconds in sorted(cpu.items(), key=lambda one: -one[1]):
        print(f"{seconds:7.2f} s CPU  {kind}")
    print(f"{sum(cpu.values()):7.2f} s CPU in all, {wall:.2f} s wall", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--dagster", action="store_true")
    options = parser.parse_args()
    first = date.fromisoformat(DAY)
    days = [first + timedelta(number) for number in range(options.days)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data.prepare(folder / "data", days)
        with weather_service.running(folder / "data" / "demo", folder / "calls.jsonl") as service:
            environment = surroundings.environment(service.url) | {"DAGSTER_HOME": str(folder / "dagster")}
            (folder / "dagster").mkdir()
            if options.plain:
                environment.pop("TIDEGATE_SPARK_JAVA_OPTIONS")
            for _ in range(1 + options.again):
                began, wall, cpu, noted = run(folder, environment, [str(day) for day in days], options.dagster)
                tell(began, wall, cpu, noted if len(days) == 1 else [])
                print(f"{wall / len(days):.2f} s a day", flush=True)


if __name__ == "__main__":
    main()
