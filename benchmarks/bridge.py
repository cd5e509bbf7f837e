"""The Spark bridge beside what one would write by hand: the same work, the same service, one run.

    python benchmarks/bridge.py            W1: 20,000 distinct keys over HTTP, 100 in flight, two tasks
    python benchmarks/bridge.py --rows 2000 --runs 3

Latencies are drawn per key, lognormal, mean 50 ms, p99 200 ms; limit = their sum / calls in flight: no program can be
faster. act is the time from the first call to the last as the service logged it, work that from submitting the job to
the end of its output without the start of the JVM; both as a ratio to the limit. The median of the runs is shown.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pyarrow as pa
import pyarrow.parquet as pq

from demo import data, weather_service
from demo.draws import latency
from demo.weather_service import WeatherService
from tidegate import Enrichment, HttpLookup, Input, Output, Service

IN_FLIGHT = 100
TASKS = 2
SEED = 0


def keys_of(folder: Path, rows: int) -> list[tuple[str, str]]:
    """Distinct (origin, hour) of the real weather table, hours as the service wants them."""
    keys = sorted(tuple(key.split("/", 1)) for key in weather_service.load(folder))
    return [(origin, hour) for origin, hour in keys[:rows]]


def write_input(folder: Path, keys: list[tuple[str, str]]) -> None:
    """One file per task, as a day of raw input; rows are dealt out in turn."""
    for task in range(TASKS):
        mine = keys[task::TASKS]
        hours = [datetime.fromisoformat(hour).astimezone(UTC) for _, hour in mine]
        table = pa.table(
            {"origin": [origin for origin, _ in mine], "hour": pa.array(hours, pa.timestamp("us", tz="UTC"))}
        )
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / f"part-{task}.parquet")


# -- contenders --------------------------------------------------------------------------------------------------------
def bare_asyncio(keys: list[tuple[str, str]], url: str) -> None:
    """The fewest moving parts: as many workers as calls in flight, one list of keys, no Spark."""

    async def main() -> None:
        waiting = iter(keys)
        connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def worker() -> None:
                for origin, hour in waiting:
                    async with session.get(f"{url}/v1/{origin}/{hour}") as response:
                        await response.json()

            await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))

    asyncio.run(main())


def gather_per_batch(url: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What is usually written by hand: asyncio.gather over each Arrow batch, a semaphore, one session per task."""
    share = IN_FLIGHT // TASKS

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        loop = asyncio.new_event_loop()
        session = None

        async def ask(allowed: asyncio.Semaphore, origin: str, hour: datetime) -> float:
            async with allowed, session.get(f"{url}/v1/{origin}/{hour:%Y-%m-%dT%H:%M:%SZ}") as response:
                return (await response.json())["temp_c"]

        async def ask_all(batch: pa.RecordBatch) -> list[float]:
            nonlocal session
            session = session or aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=share))
            allowed = asyncio.Semaphore(share)
            pairs = zip(batch.column("origin").to_pylist(), batch.column("hour").to_pylist(), strict=True)
            return await asyncio.gather(*(ask(allowed, *pair) for pair in pairs))

        for batch in batches:
            temperatures = loop.run_until_complete(ask_all(batch))
            yield batch.append_column("temp_c", pa.array(temperatures, pa.float64()))
        if session is not None:
            loop.run_until_complete(session.close())
        loop.close()

    return task


def enrichment(url: str, mode: str) -> Enrichment:
    service = Service(name="weather", url=url, max_concurrency=IN_FLIGHT)
    weather = HttpLookup(
        name="weather", service=service, request="GET /v1/{origin}/{when}", keys={"origin": "origin", "when": "hour"},
        returns="temp_c DOUBLE", timeout=30.0,
    )  # fmt: skip
    return Enrichment(name="bench", input=Input(path="in"), lookups=[weather], output=Output(path="out"), mode=mode)


# -- one run -----------------------------------------------------------------------------------------------------------
class Bench:
    def __init__(self, root: Path, keys: list[tuple[str, str]]) -> None:
        from jobs.enrich_day import session

        self.root, self.keys = root, keys
        self.limit = sum(latency(SEED, f"{origin}/{hour}") for origin, hour in keys) / IN_FLIGHT
        self.spark = session("bench")
        self.spark.sparkContext.setLogLevel("ERROR")
        self.number = 0

    def measure(self, work: Callable[[str, Path], None]) -> tuple[float, float]:
        """act and work of one contender, with a service of its own."""
        self.number += 1
        log = self.root / f"calls-{self.number}.jsonl"
        with weather_service.running(self.root / "demo", log, seed=SEED) as service:
            started = time.monotonic()
            work(service.url, self.root / f"out-{self.number}")
            seconds = time.monotonic() - started
        return self._act(service) / self.limit, seconds / self.limit

    def _act(self, service: WeatherService) -> float:
        calls = service.calls()
        assert len({call.key for call in calls}) == len(self.keys), f"{len(calls)} calls for {len(self.keys)} keys"
        return max(call.t_end for call in calls) - min(call.t_start for call in calls)

    def tidegate(self, mode: str) -> Callable[[str, Path], None]:
        def work(url: str, out: Path) -> None:
            from jobs.enrich import enrich

            self.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
            enrich(self.spark.read.parquet(str(self.root / "in")), enrichment(url, mode)).write.parquet(str(out))

        return work

    def gather(self, rows: int) -> Callable[[str, Path], None]:
        def work(url: str, out: Path) -> None:
            self.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))
            frame = self.spark.read.parquet(str(self.root / "in"))
            frame.mapInArrow(gather_per_batch(url), "origin STRING, hour TIMESTAMP, temp_c DOUBLE").write.parquet(
                str(out)
            )

        return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        root = Path(folder)
        data.prepare(root, days=[])
        keys = keys_of(root / "demo", options.rows)
        write_input(root / "in", keys)
        bench = Bench(root, keys)
        contenders = {
            "bare asyncio + aiohttp": lambda url, _out: bare_asyncio(keys, url),
            "tidegate, ordered": bench.tidegate("ordered"),
            "tidegate, unordered": bench.tidegate("unordered"),
            "gather per 1,000 rows": bench.gather(1000),
            "gather per 10,000 rows": bench.gather(10_000),
        }
        print(f"W1: {len(keys):,} keys, {IN_FLIGHT} in flight, {TASKS} tasks; limit {bench.limit:.2f} s", flush=True)
        bench.measure(contenders["tidegate, unordered"])  # warms the JVM and Spark's Python workers
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        for _ in range(options.runs):
            for name, work in contenders.items():
                figures[name].append(bench.measure(work))
        bare = statistics.median(act for act, _ in figures["bare asyncio + aiohttp"])
        print(f"{'':24} act / limit   work / limit   act / bare")
        for name, measured in figures.items():
            act = statistics.median(act for act, _ in measured)
            work_ratio = statistics.median(work for _, work in measured)
            print(f"{name:24} {act:11.3f} {work_ratio:14.3f} {act / bare:12.3f}", flush=True)
        bench.spark.stop()


if __name__ == "__main__":
    main()
