"""Looking for hits: what a run spends before it asks, to find out which of a day's keys are stored.

python benchmarks/hits.py                            1,000 keys of 1,000 rows among 2,000,000 stored
python benchmarks/hits.py --rows 1000000 --keys 50000   and other sizes
python benchmarks/hits.py --stored 50000000 --rows 10000000 --keys 5000000

Half of the keys are stored, at random. Each line is a way to the same keys: Arrow in the driver,
for keys that are plain columns; a Spark job that collects them, for other expressions; a shuffle of
Spark, for many rows. All read the same ledger after that, compacted and not.
"""

import tempfile
import time
import uuid
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from command_line import option_parser
from ledger import keys_of, store
from usage import medians
from whole_run import session

from jobs.input.day import of_files
from jobs.ledger.changes.compaction import compact
from jobs.run.keys import day_keys
from jobs.run.keys.day_keys import find_keys
from jobs.run.keys.hits import find_hits
from jobs.run.plan import options
from jobs.run.plan.planner import plan_tasks
from tidegate import AsyncFunctionLookup, Enrichment, Input, Ledger, Output

ROWS_PER_PART = 10_000  # as a task with many answers writes them
WAYS = {"Arrow": ("k", 10**12), "one job": ("upper(k)", 10**12), "shuffle": ("k", 0)}


class NeverAsked:
    """An AsyncFunction that no key reaches."""

    async def async_invoke(self, keys):
        raise NotImplementedError


def enrichment(root, key):
    lookup = AsyncFunctionLookup(
        name="f",
        function=NeverAsked,
        keys={"k": key},
        returns="x DOUBLE",
        timeout=1.0,
        max_concurrency=2,
    )
    return Enrichment(
        name="e",
        input=Input(path="in"),
        lookups=[lookup],
        output=Output(path="out"),
        ledger=Ledger(str(root)),
    )


def write_day(folder, *, rows, keys, stored):
    """Two files. A key is a number as text: half of the numbers are stored."""
    rng = np.random.default_rng(11)
    numbers = np.concatenate(
        [rng.choice(stored, keys // 2, replace=False), stored + np.arange(keys - keys // 2)]
    )
    drawn = np.concatenate([numbers, rng.choice(numbers, rows - keys)])
    texts = pa.array([text[2:-2] for text in keys_of(drawn, "at random").to_pylist()])
    for part in range(2):
        pq.write_table(pa.table({"k": texts[part::2]}), folder / f"{part}.parquet")


def measure(spark, root, day, way, runs):
    """Seconds of each run: all of it, and of that finding the keys."""
    key, most_rows = WAYS[way]
    vars(day_keys).update(MOST_ROWS=most_rows, ROWS_COLLECTED=most_rows)
    declared = enrichment(root, key)
    found = []
    for _ in range(runs + 1):  # the first is cold
        prepared, plan = plan_tasks(day.read(spark), declared, day=day if way == "Arrow" else None)
        ledger = options.plan_ledger(
            declared, declared.lookups[0], uuid.uuid4().hex, options.RunOptions()
        )
        began = time.perf_counter()
        find_keys(prepared, plan, 0, day).distinct(hidden=False, seed=1).drop()
        keys_s = time.perf_counter() - began
        began = time.perf_counter()
        hits = find_hits(find_keys(prepared, plan, 0, day), declared.lookups[0], ledger, seed=1)
        found.append((time.perf_counter() - began, keys_s))
        known = hits.answers.num_rows
        hits.keys.drop()
    return medians(found[1:]), known


def main():
    parser = option_parser(__doc__, stored=2_000_000, rows=1_000, keys=1_000, runs=5)
    parser.add_argument("--way", choices=WAYS, action="append")
    asked = parser.parse_args()
    spark = session("hits")
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        (root / "day").mkdir()
        write_day(root / "day", rows=asked.rows, keys=asked.keys, stored=asked.stored)
        day = of_files(sorted((root / "day").iterdir()))
        declared = enrichment(root / "ledger", "k")
        planned = options.plan_ledger(declared, declared.lookups[0], "r", options.RunOptions())
        folder = planned.open_folder()
        print(
            f"{asked.keys:,} keys of {asked.rows:,} rows among {asked.stored:,} stored",
            flush=True,
        )
        for state in ("parts", "compacted"):
            if state == "parts":
                store(folder, asked.stored, "at random", ROWS_PER_PART)
            else:
                compact(folder, grace=timedelta(0))
                compact(folder, grace=timedelta(0))
            for way in asked.way or WAYS:
                (whole, keys_s), known = measure(spark, root / "ledger", day, way, asked.runs)
                print(
                    (
                        f"{state:10} {way:8} {whole:7.2f} s, the keys {keys_s:.2f} s; {known:,} "
                        "known"
                    ),
                    flush=True,
                )
    spark.stop()


if __name__ == "__main__":
    main()
