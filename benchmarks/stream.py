"""A stream: the time of a micro-batch, compared with plain batches, and of a file to its readers.

    python benchmarks/stream.py                         batches of 400 rows, 5 turns of 10
    python benchmarks/stream.py --follow 600            a file of 400 rows every 2 s for ten minutes

write      foreachBatch that writes its rows to Parquet
identity   the same through mapInArrow, which is what any call from Python needs
gather     identity that asks by aiohttp and asyncio.gather: nothing stored, checked or published
new        ours: each key is asked, over HTTP at once, stored, checked, published
known      ours: the ledger has each answer

The time is Spark's of a trigger, with the CPU time of this process, Spark's JVM and its workers,
which other work on the machine changes little. With --follow: from the rename of a file to the
Delta commit with its rows, and the memory of the driver, Spark's JVM and its workers on the way.
--every and --trigger are the s between two files and between two looks for new ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import uneven_service
from command_line import option_parser
from usage import cpu_s
from whole_run import session

from data_quality.day_quality import DayQuality
from jobs.storage.urls import path_from_spark
from jobs.streams.enrich_stream import Stream, Trigger
from jobs.streams.micro_batches import MicroBatches, open_source
from jobs.streams.stream_state import checkpoint_path
from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Service

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = 400
DAY = "2013-01-10"
COLUMNS = "id BIGINT, key STRING, text STRING, date STRING"


def declared(folder: Path, url: str, name: str) -> Enrichment:
    lookup = HttpLookup(
        name="f", service=Service(name="s", url=url, max_concurrency=50),
        request="GET /v1/{key}/now", keys={"key": "key"}, returns="temp_c DOUBLE", timeout=30.0,
    )  # fmt: skip
    return Enrichment(
        name=name, input=Input(path=str(folder / "in"), row_id=["id"]), lookups=[lookup],
        output=Output(path=str(folder / name)), ledger=Ledger(str(folder / "ledger")),
    )  # fmt: skip


def put(folder: Path, number: int) -> Path:
    """A file of new keys, there at once."""
    day = folder / "in" / f"date={DAY}"
    day.mkdir(parents=True, exist_ok=True)
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    texts = [f"{one:050d}" for one in ids]
    rows = pa.table({"id": ids, "key": [f"KEY-{one:09d}" for one in ids], "text": texts})
    path = day / f"{number:06d}.parquet"
    pq.write_table(rows, day / f".{path.name}")
    return (day / f".{path.name}").rename(path)


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


class Gather:
    """A hand-written job: a session for the rows of a task, 50 calls in flight."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            asyncio.run(self._ask(batch.column("key").to_pylist()))
            yield batch

    async def _ask(self, keys: list[str]) -> None:
        connector = aiohttp.TCPConnector(limit=50)
        async with aiohttp.ClientSession(self._url, connector=connector) as session:

            async def ask(key: str) -> None:
                async with session.get(f"/v1/{key}/now") as answer:
                    await answer.json()

            await asyncio.gather(*map(ask, keys))


class Bench:
    def __init__(self, root: Path, url: str) -> None:
        self.root, self.url = root, url
        self.spark = session("stream bench")

    def times(self, name: str, batches: int, turn: int) -> list[float]:
        """Return the seconds of each micro-batch of a turn."""
        folder = self.root / f"turn-{turn}-{'ours' if name in ('new', 'known') else name}"
        if name != "known":
            for number in range(batches):
                put(folder, turn * batches + number)
        enrichment = declared(folder, self.url, name)
        work: Any = {"write": self._write, "identity": self._identity, "gather": self._gather}.get(
            name
        ) or MicroBatches(
            self.spark,
            enrichment,
            checkpoint_path(enrichment.output.path),
            DayQuality(),
            wait=0.0,
            published=lambda *_: None,
        )
        watched = open_source(enrichment, checkpoint_path(enrichment.output.path)).watched()
        files = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        query = (
            files.parquet(watched.folders).writeStream.foreachBatch(work)
            .option("checkpointLocation", str(checkpoint_path(enrichment.output.path)))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return [
            one["durationMs"]["triggerExecution"] / 1e3
            for one in query.recentProgress
            if one["batchId"] >= 0
        ][:batches]

    def _write(self, frame: DataFrame, _number: int) -> None:
        frame.write.mode("append").parquet(str(self.root / "written"))

    def _identity(self, frame: DataFrame, number: int) -> None:
        self._write(frame.mapInArrow(identity, frame.schema), number)

    def _gather(self, frame: DataFrame, number: int) -> None:
        self._write(frame.mapInArrow(Gather(self.url), frame.schema), number)


def compare(bench: Bench, turns: int, batches: int) -> None:
    names = ("write", "identity", "gather", "new", "known")
    found: dict[str, list[float]] = {name: [] for name in names}
    cpu: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(turns + 1):
        for name in names:
            before = cpu_seconds()
            times = bench.times(name, batches, turn)
            if turn:  # the first one warms everything
                found[name] += times
                cpu[name].append((cpu_seconds() - before) / batches)
    base, base_cpu = statistics.median(found["identity"]), statistics.median(cpu["identity"])
    print(f"{ROWS} rows a batch, {turns} turns of {batches}")
    print(f"{'':10}{'median s':>10}{'p90':>8}{'/ identity':>12}{'CPU s':>10}{'/ identity':>12}")
    for name, times in found.items():
        median, spent = statistics.median(times), statistics.median(cpu[name])
        print(f"{name:10}{median:10.3f}{np.quantile(times, 0.9):8.3f}{median / base:12.2f}", end="")
        print(f"{spent:10.3f}{spent / base_cpu:12.2f}")


def follow(bench: Bench, seconds: float, every: float, trigger: float) -> None:
    enrichment = declared(bench.root, bench.url, "followed")
    stream = Stream(enrichment, DayQuality(), wait=0.0)
    threading.Thread(target=stream.run, args=(Trigger(trigger),), daemon=True).start()
    put_at: dict[str, float] = {}
    begins, number, memory = time.time(), 0, []
    while (now := time.time()) - begins < seconds:
        path = put(bench.root, number)
        put_at[str(path.resolve())] = time.time()
        number += 1
        memory.append((now - begins, *megabytes()))
        time.sleep(max(0.0, begins + number * every - time.time()))
    time.sleep(4 * trigger + 5)
    latencies = [at - put_at[file] for file, at in committed(Path(enrichment.output.path)).items()]
    p50, p99 = np.quantile(latencies, [0.5, 0.99])
    print(
        f"{len(latencies)} of {number} files published, a trigger of {trigger} s: p50 {p50:.2f} s, "
        f"p99 {p99:.2f} s"
    )
    for at, *sizes in memory[:: max(1, len(memory) // 10)]:
        print(
            f"{at:7.0f} s  driver {sizes[0]:5.0f} MB, JVM {sizes[1]:5.0f} MB, workers "
            f"{sizes[2]:5.0f} MB"
        )


def committed(table: Path) -> dict[str, float]:
    """By input file, when the commit with its rows was there."""
    found: dict[str, float] = {}
    for entry in sorted((table / "_delta_log").glob("*.json")):
        added = [
            action["add"]["path"] for line in entry.open() if "add" in (action := json.loads(line))
        ]
        for path in added:
            sources = pq.read_table(table / path, columns=["_source_file"], partitioning=None)[
                "_source_file"
            ].unique()
            at = entry.stat().st_mtime
            found |= {path_from_spark(source): at for source in sources.to_pylist()}
    return found


def megabytes() -> tuple[float, float, float]:
    """Resident memory of this process, of Spark's JVM, and of its Python workers."""
    me = psutil.Process()
    java = workers = 0
    for process in me.children(recursive=True):
        try:
            size = process.memory_info().rss
            java, workers = (
                (java + size, workers) if process.name() == "java" else (java, workers + size)
            )
        except psutil.Error:
            continue
    return me.memory_info().rss / 1e6, java / 1e6, workers / 1e6


def cpu_seconds() -> float:
    """Of this process, Spark's JVM and its Python workers so far, without the service's."""
    java = [child.pid for child in psutil.Process().children() if child.name() == "java"]
    return time.process_time() + sum(map(cpu_s, java))


def main() -> None:
    options = option_parser(
        __doc__, turns=5, batches=10, follow=0.0, every=2.0, trigger=1.0
    ).parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder,
        uneven_service.running(0.0, 0.0, 0.0) as url,
    ):
        os.chdir(folder)  # for the records
        bench = Bench(Path(folder), url)
        if options.follow:
            follow(bench, options.follow, options.every, options.trigger)
        else:
            compare(bench, options.turns, options.batches)
        bench.spark.stop()


if __name__ == "__main__":
    main()
