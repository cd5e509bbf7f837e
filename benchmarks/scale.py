"""A large day with its checks: the time of each part, and the peak memory of each process.

python benchmarks/scale.py              10,000,000 rows over 500,000 keys, 5,000,000 stored answers
python benchmarks/scale.py --rows 1000000     20 rows for each key, two for each answer
python benchmarks/scale.py --rows 100000000   about 30 GB in a temporary folder

99 of 100 keys of the day are stored; the others are asked of a function that returns at once. The
driver's Java has 4 GB. Memory: the high-water mark of the resident memory of a process (VmHWM),
with the mapped index.
"""

import os
import tempfile
import time
from contextlib import chdir
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from command_line import option_parser
from ledger import keys_of, store
from usage import MemoryWatch
from whole_run import session

from jobs.ledger.changes.compaction import compact
from jobs.ledger.declared_folder import request_fingerprint
from jobs.ledger.store import LedgerFolder
from jobs.run.day import run_day
from tidegate import AsyncFunctionLookup, Enrichment, Input, Ledger, Output

DAY = "2024-05-01"
ROWS_PER_FILE = 2_500_000
NEW_EACH = 100  # keys


class AtOnce:
    """An AsyncFunction that waits for nothing."""

    async def async_invoke(self, keys):  # noqa: ARG002  # Flink's signature
        return [{"temp_dc": 215}]


def enrichment(root):
    lookup = AsyncFunctionLookup(
        name="f",
        function=AtOnce,
        keys={"k": "k"},
        returns="temp_dc INT",
        timeout=60.0,
        max_concurrency=100,
    )
    return Enrichment(
        name="large", input=Input(path=str(root / "in"), row_id=["id"]), lookups=[lookup],
        output=Output(path=str(root / "out")), ledger=Ledger(str(root / "ledger")),
    )  # fmt: skip


def write_day(folder, *, rows, keys, stored):
    """Three columns, about 80 bytes a row."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(3)
    numbers = rng.choice(stored, keys, replace=False)
    numbers[::NEW_EACH] += stored
    texts = pa.array([f"{number:050d}" for number in range(1000)])
    key = pa.array([text[2:-2] for text in keys_of(numbers, "at random").to_pylist()])
    for start in range(0, rows, ROWS_PER_FILE):
        ids = np.arange(start, min(rows, start + ROWS_PER_FILE))
        table = {
            "id": ids,
            "k": key.take(pa.array(rng.integers(0, keys, len(ids)))),
            "t": texts.take(pa.array(ids % 1000)),
        }
        pq.write_table(pa.table(table), folder / f"{start:012d}.parquet")


class Stages:
    """Prints what each stage took: wall, and CPU of the driver's Python."""

    def __init__(self):
        self._began, self._cpu = time.monotonic(), time.process_time()
        self._seen = set()

    def tell(self, what):
        now, used = time.monotonic(), time.process_time()
        print(
            f"{now - self._began:8.1f} s, {used - self._cpu:6.1f} s of the driver's CPU  {what}",
            flush=True,
        )
        self._began, self._cpu = now, used

    def report(self, event):
        """Of a day's run: its events, and the first progress of each stage."""
        if event["kind"] == "progress":
            stage = event.get("unit", "rows")
            if stage not in self._seen:
                self._seen.add(stage)
                self.tell(f"until the first progress of {stage}")
        elif event["kind"] != "started":
            self.tell(event["kind"])


def main():
    options = option_parser(__doc__, rows=10_000_000).parse_args()
    rows, keys, stored = options.rows, options.rows // 20, options.rows // 2
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--driver-memory 4g pyspark-shell"
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder, chdir(folder):
        root = Path(folder)
        declared = enrichment(root)
        lookup = declared.lookups[0]
        ledger = LedgerFolder(str(root / "ledger"), lookup.name, request_fingerprint(lookup))
        stages = Stages()
        store(ledger, stored, "at random")
        compact(ledger, grace=timedelta(0))
        compact(ledger, grace=timedelta(0))
        stages.tell(f"{stored:,} answers stored and compacted")
        write_day(root / "in" / f"date={DAY}", rows=rows, keys=keys, stored=stored)
        stages.tell(f"{rows:,} rows over {keys:,} keys written")
        spark = session("large")
        stages.tell("Spark started")
        with MemoryWatch() as watch:
            record = run_day(
                declared, DAY, "r1", checks="data_quality.day:check", report=stages.report
            )
        (counted,) = record.figures.lookups
        print(
            f"{counted.from_ledger:,} rows from the ledger, {counted.calls:,} calls; job "
            f"{record.figures.job_s:.1f} s"
        )
        print(", ".join(f"{kind} {mb:,} MB" for kind, mb in sorted(watch.peaks.items())))
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        print(f"{size / 1e9:.1f} GB on disk; checks: {sorted({v.status for v in record.verdicts})}")
        spark.stop()


if __name__ == "__main__":
    main()
