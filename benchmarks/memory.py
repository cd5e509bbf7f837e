"""A Python worker's memory, which must be the same for 100,000 and 10,000,000 rows and five jobs.

    python benchmarks/memory.py                      all of them, two services (about 9 minutes)
    python benchmarks/memory.py --small 20000 --large 200000

A function returns at once, another is slower than Spark (1 ms a call, 100 in flight: 100,000 rows a
second at most, and Spark reads faster). The peak is the high-water mark of the resident memory
(VmHWM) of the largest Python worker of a separate Spark for each line. The rows are written like a
day's: a gigabyte of files for the 10,000,000, gone at the end. Spark makes the rows on demand.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from typing import Any

from command_line import option_parser
from usage import MemoryWatch
from whole_run import session

from jobs.run.enrich import write_out
from jobs.run.plan.planner import plan_tasks
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output

SLOW_S = 0.001
JOBS = 5


class AtOnce:
    async def async_invoke(self, keys: dict[str, Any]) -> list[dict[str, Any]]:  # noqa: ARG002  # Flink's signature
        return [{"x": 1.5}]


class Slow(AtOnce):
    async def async_invoke(self, keys: dict[str, Any]) -> list[dict[str, Any]]:
        await asyncio.sleep(SLOW_S)
        return await super().async_invoke(keys)


FUNCTIONS = {"at once": AtOnce, "slower than Spark": Slow}


def one_line(name: str, rows: int, jobs: int) -> None:
    """Send rows through the bridge in this process; return the need of its largest worker."""
    spark = session("bench")
    lookup = AsyncFunctionLookup(
        name="f",
        function=FUNCTIONS[name],
        keys={"id": "id"},
        returns="x DOUBLE",
        timeout=60.0,
        max_concurrency=100,
    )
    declared = Enrichment(
        name="bench",
        input=Input(path="in", row_id=["id"]),
        lookups=[lookup],
        output=Output(path="out"),
        ledger=None,
    )
    frame = spark.range(0, rows, 1, 2).selectExpr("id", "repeat(string(id), 10) AS payload")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder, MemoryWatch() as watch:
        for job in range(jobs):
            write_out(*plan_tasks(frame, declared), f"{folder}/{job}")
    seconds = time.monotonic() - started
    print(
        f"{name:20} {jobs} x {rows:12,} rows {seconds:8.1f} s {watch.peaks['worker']:6} MB",
        flush=True,
    )


def main() -> None:
    parser = option_parser(__doc__, small=100_000, large=10_000_000)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one_line(options.one[0], *map(int, options.one[1:]))
        return
    print(f"{'':20}     {'':12}      {'':8}   peak of a worker", flush=True)
    for name in FUNCTIONS:
        for jobs, rows in ((1, options.small), (JOBS, options.small), (1, options.large)):
            command = [sys.executable, __file__, "--one", name, str(rows), str(jobs)]
            subprocess.run(command, stderr=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()
