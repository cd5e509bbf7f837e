"""Flink 2.3 itself on the work of benchmarks/bridge.py: its Java Async I/O in a mini cluster, from the jars on PyPI.

    make bench-flink                                  fetches the jars into .flink (330 MB) and needs a JDK (javac)
    python benchmarks/flink_beside.py --rows 2000 --at-once 50000 --runs 1

W1: distinct keys over HTTP, 100 in flight, two tasks, so a capacity of 50 each; act and work as in bridge.py.
W2: rows whose function completes at once, in rows/s from submitting the job to its end, the JVM's start left out.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from bridge import IN_FLIGHT, SEED, TASKS, keys_of
from contenders import bare_asyncio

from demo import data, weather_service
from demo.draws import latency

ROOT = Path(__file__).parent.parent
JARS = ROOT / ".flink" / "pyflink" / "lib"
OPENED = ("java.base/java.util", "java.base/java.lang", "java.base/java.util.concurrent", "java.base/java.nio")


def classes(folder: Path) -> str:
    """The class path, with our program compiled."""
    path = f"{JARS}/*"
    source = Path(__file__).parent / "flink" / "Lookups.java"
    subprocess.run(["javac", "-cp", path, "-d", str(folder), str(source)], check=True)
    return f"{folder}:{path}"


def flink(path: str, mode: str, keys: Path, url: str, out: Path) -> float:
    """Seconds from submitting the job to its end."""
    opened = [word for package in OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
    quiet = "-Dlog4j2.level=ERROR"
    command = ["java", *opened, quiet, "-Xmx1g", "-cp", path, "Lookups", mode, str(keys), url, str(out)]
    done = subprocess.run([*command, str(TASKS), str(IN_FLIGHT // TASKS)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"Flink failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split("seconds ")[-1])


def over_http(path: str, root: Path, rows: int, runs: int) -> None:
    keys = keys_of(root / "demo", rows)
    listed = root / "keys.txt"
    listed.write_text("".join(f"{origin}/{moment}\n" for origin, moment in keys))
    limit = sum(latency(SEED, f"{origin}/{moment}") for origin, moment in keys) / IN_FLIGHT
    print(f"W1: {len(keys):,} keys, {IN_FLIGHT} in flight, {TASKS} tasks; limit {limit:.2f} s", flush=True)
    print(f"{'':24} act / limit   work / limit", flush=True)
    for name in ("bare asyncio + aiohttp", "Flink, ordered", "Flink, unordered"):
        figures = []
        for run in range(runs):
            here = f"{name.replace(' ', '-')}-{run}"
            with weather_service.running(root / "demo", root / f"{here}.jsonl", seed=SEED) as service:
                started = time.monotonic()
                if name.startswith("Flink"):
                    work = flink(path, name.split(", ")[1], listed, service.url, root / here)
                else:
                    bare_asyncio(keys, service.url, IN_FLIGHT)
                    work = time.monotonic() - started
                calls = service.calls()
            act = max(call.t_end for call in calls) - min(call.t_start for call in calls)
            figures.append((act / limit, work / limit))
        act, work = (statistics.median(column) for column in zip(*figures, strict=True))
        print(f"{name:24} {act:11.3f} {work:14.3f}", flush=True)


def at_once(path: str, root: Path, rows: int, runs: int) -> None:
    listed = root / "numbers.txt"
    listed.write_text("".join(f"{number}\n" for number in range(rows)))
    print(f"W2: {rows:,} rows whose function completes at once", flush=True)
    for mode in ("ordered", "unordered"):
        seconds = statistics.median(flink(path, mode, listed, "-", root / f"once-{mode}-{run}") for run in range(runs))
        print(f"{'Flink, ' + mode:24} {rows / seconds:11,.0f} rows/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="of W1")
    parser.add_argument("--at-once", type=int, default=500_000, help="rows of W2")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if not JARS.is_dir():
        raise SystemExit("Flink's jars are not there: `make bench-flink` fetches them.")
    with tempfile.TemporaryDirectory(prefix="tidegate-flink-") as folder:
        root = Path(folder)
        data.prepare(root, days=[])
        path = classes(root / "classes")
        over_http(path, root, options.rows, options.runs)
        at_once(path, root, options.at_once, options.runs)


if __name__ == "__main__":
    main()
