"""Flink 2.3 on the work of benchmarks/bridge.py: its Java Async I/O in a mini cluster, from PyPI.

    make bench-flink   fetches the jars into .flink (330 MB) and needs a JDK (javac)
    python benchmarks/flink_beside.py --rows 2000 --at-once 50000 --runs 1
    python benchmarks/flink_beside.py --work W2 --runs 3

W1: distinct keys over HTTP, 100 in flight, two tasks, so a capacity of 50 each; act and work as in
bridge.py.
W2: the work of throughput.py, which measures our side: the same two Parquet files, a function that
completes at once, Parquet files with the same columns, the audit columns as constants as in its
identity. In rows/s from submitting the job to its end, without the JVM's start and three whole runs
before it. What was written is read and checked.
"""

import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pyspark
from bridge import IN_FLIGHT, SEED, TASKS, keys_of
from command_line import option_parser
from contenders import bare_asyncio
from throughput import table, write_input
from usage import medians

from demo import data, weather_service
from demo.draws import latency
from jobs.schema import columns as schema

ROOT = Path(__file__).parent.parent
JARS = ROOT / ".flink" / "pyflink" / "lib"
PARQUET = (  # Flink brings none; these come with Spark
    "parquet-column", "parquet-common", "parquet-encoding", "parquet-format-structures",
    "parquet-hadoop", "parquet-jackson", "hadoop-client-api", "hadoop-client-runtime", "jts-core",
)  # fmt: skip
OPENED = (
    "java.base/java.util",
    "java.base/java.lang",
    "java.base/java.util.concurrent",
    "java.base/java.nio",
)


def classes(folder: Path) -> str:
    """The class path, with our programs compiled."""
    spark = Path(pyspark.__file__).parent / "jars"
    path = ":".join(
        [f"{JARS}/*", *(str(next(spark.glob(f"{name}-[0-9]*.jar"))) for name in PARQUET)]
    )
    sources = sorted(str(source) for source in (Path(__file__).parent / "flink").glob("*.java"))
    subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(folder), *sources], check=True)
    return f"{folder}:{path}"


def flink(path: str, program: str, *arguments: str) -> float:
    """Seconds from submitting the job to its end."""
    opened = [word for package in OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
    quiet = "-Dlog4j2.level=ERROR"
    command = [
        "java",
        *opened,
        quiet,
        "-Xmx1g",
        "-cp",
        path,
        program,
        *arguments,
        str(TASKS),
        str(IN_FLIGHT // TASKS),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"Flink failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split("seconds ")[-1])


def over_http(path: str, root: Path, rows: int, runs: int) -> None:
    keys = keys_of(root / "demo", rows)
    listed = root / "keys.txt"
    listed.write_text("".join(f"{origin}/{moment}\n" for origin, moment in keys))
    limit = sum(latency(SEED, f"{origin}/{moment}") for origin, moment in keys) / IN_FLIGHT
    print(
        f"W1: {len(keys):,} keys, {IN_FLIGHT} in flight, {TASKS} tasks; limit {limit:.2f} s",
        flush=True,
    )
    print(f"{'':24} act / limit   work / limit", flush=True)
    for name in ("bare asyncio + aiohttp", "Flink, ordered", "Flink, unordered"):
        figures = []
        for run in range(runs):
            here = f"{name.replace(' ', '-')}-{run}"
            with weather_service.running(
                root / "demo", root / f"{here}.jsonl", seed=SEED
            ) as service:
                started = time.monotonic()
                if name.startswith("Flink"):
                    work = flink(
                        path,
                        "Lookups",
                        name.split(", ")[1],
                        str(listed),
                        service.url,
                        str(root / here),
                    )
                else:
                    bare_asyncio(keys, service.url, IN_FLIGHT)
                    work = time.monotonic() - started
                calls = service.calls()
            act = max(call.t_end for call in calls) - min(call.t_start for call in calls)
            figures.append((act / limit, work / limit))
        act, work = medians(figures)
        print(f"{name:24} {act:11.3f} {work:14.3f}", flush=True)


def at_once(path: str, root: Path, rows: int, runs: int) -> None:
    write_input(root / "in", rows)
    print(
        f"W2: {rows:,} rows whose function completes at once, {TASKS} tasks, to Parquet",
        flush=True,
    )
    for mode in ("ordered", "unordered"):
        rates = []
        for run in range(runs):
            out = root / f"once-{mode}-{run}"
            rates.append(rows / flink(path, "AtOnceToParquet", mode, str(root / "in"), str(out)))
            check(out / "measured", rows, mode)
        print(f"{'Flink, ' + mode:24} {statistics.median(rates):11,.0f} rows/s", flush=True)


def check(written: Path, rows: int, mode: str) -> None:
    """Fail unless all columns exist and every row once, in "ordered" in its file's order."""
    names = [
        *table(0).column_names, "x", schema.published_status("f"),
        schema.published_answered_at("f"), *schema.ROW_COLUMNS, *schema.audit_columns("f"),
        schema.key("f"),
    ]  # fmt: skip
    parts = [pq.read_table(path) for path in sorted(written.glob("*.parquet"))]
    ids = [part["id"].to_numpy() for part in parts]
    swapped = [
        (np.diff(of_file) < 0).any()
        for part in ids
        for of_file in (part[part // (rows // TASKS) == number] for number in range(TASKS))
    ]
    if any(part.column_names != names for part in parts):
        raise SystemExit(f"{written}: these columns are missing, or not in this order: {names}")
    if not np.array_equal(np.sort(np.concatenate(ids)), np.arange(rows)):
        raise SystemExit(f"{written}: not every row is there once")
    if mode == "ordered" and any(swapped):
        raise SystemExit(f"{written}: the rows of a file are not in its order")


def main() -> None:
    parser = option_parser(__doc__, runs=3)
    parser.add_argument("--work", choices=("W1", "W2"), help="one of them only")
    parser.add_argument("--rows", type=int, default=20_000, help="of W1")
    parser.add_argument("--at-once", type=int, default=500_000, help="rows of W2")
    options = parser.parse_args()
    if not JARS.is_dir():
        raise SystemExit("Flink's jars are not there: `make bench-flink` fetches them.")
    with tempfile.TemporaryDirectory(prefix="tidegate-flink-") as folder:
        root = Path(folder)
        path = classes(root / "classes")
        if options.work != "W2":
            data.prepare(root, days=[])
            over_http(path, root, options.rows, options.runs)
        if options.work != "W1":
            at_once(path, root, options.at_once, options.runs)


if __name__ == "__main__":
    main()
