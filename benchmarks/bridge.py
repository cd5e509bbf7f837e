"""The Spark bridge compared with code by hand: the same work, the same service, the same run.

    python benchmarks/bridge.py             all works below, the median of 5 runs (about 25 minutes)
    python benchmarks/bridge.py --work W1   a single work; --runs 1 --share 0.1 for a first look
    python benchmarks/bridge.py --limits    tidegate, with and without a limit over runs and a rate

    W1           20,000 distinct keys over HTTP, latencies lognormal with mean 50 ms and p99 200 ms
    W3           the same 20,000 rows with 2,000 distinct keys
    slow-parent  10,000 rows of 4 KB that arrive 500 at a time, 0.4 s apart; calls take 50 ms
    tail         10,000 distinct keys; 2 % take 1 s, others 50 ms; "hedged" with hedge_after="p95"

100 calls in flight in all, two tasks. limit = the sum of the calls' latencies / calls in flight: no
program can be faster. act is the time from the first call to the last as the service logged it,
work the time from submitting the job to the end of its output without the start of the JVM; both as
a ratio to the limit. "ledger" is the whole work of a run that keeps answers; other lines keep none.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import contenders
import pyarrow as pa
import pyarrow.parquet as pq
import uneven_service
from command_line import option_parser
from contenders import Batches
from usage import medians
from whole_run import session, write_enriched

from demo import data, weather_service
from demo.draws import latency
from jobs.input.day import InputDay, of_files
from jobs.limits.store_url import LIMITS_URL
from jobs.run.enrich import write_out
from jobs.run.plan.planner import plan_tasks
from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Rate, Service

IN_FLIGHT = 100
NEVER_REACHED = Rate(1_000_000, per="second")
TASKS = 2
SEED = 0
ROW_UDF_KEYS = 200  # a plain UDF has one call in flight per task: the whole would take an hour
Work = Callable[[str, Path], None]


def keys_of(folder: Path, rows: int) -> list[tuple[str, str]]:
    """Distinct (origin, hour) of the real weather table, hours as the service wants them."""
    keys = sorted(tuple(key.split("/", 1)) for key in weather_service.load(folder))
    return [(origin, hour) for origin, hour in keys[:rows]]


def write_input(folder: Path, keys: list[tuple[str, str]], payload: int = 0) -> None:
    """Write a file per task, as a day of raw input; rows are dealt out in turn."""
    folder.mkdir(parents=True)
    for task in range(TASKS):
        own = keys[task::TASKS]
        hours = [datetime.fromisoformat(hour).astimezone(UTC) for _, hour in own]
        columns = {
            "origin": [origin for origin, _ in own],
            "hour": pa.array(hours, pa.timestamp("us", tz="UTC")),
        }
        if payload:
            columns["payload"] = [f"{number:0{payload}d}" for number in range(len(own))]
        pq.write_table(pa.table(columns), folder / f"part-{task}.parquet")


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A parent that has 500 rows ready every 0.4 s."""
    for batch in batches:
        for start in range(0, batch.num_rows, 500):
            time.sleep(0.4)
            yield batch.slice(start, 500)


def enrichment(
    url: str,
    mode: str,
    ledger: Ledger | None = None,
    rate: Sequence[Rate] = (),
    *,
    hedged: bool = False,
) -> Enrichment:
    service = Service(name="weather", url=url, max_concurrency=IN_FLIGHT, rate=rate)
    weather = HttpLookup(
        name="weather", service=service, request="GET /v1/{origin}/{when}",
        keys={"origin": "origin", "when": "hour"}, returns="temp_c DOUBLE", timeout=30.0,
        hedge_after="p95" if hedged else None,
    )  # fmt: skip
    return Enrichment(
        name="bench", input=Input(path="in", row_id=["origin", "hour"]), lookups=[weather],
        output=Output(path="out"), mode=mode, ledger=ledger,  # type: ignore[arg-type]
    )  # fmt: skip


@dataclass(frozen=True)
class Workload:
    rows: list[tuple[str, str]]
    limit: float  # s, when every distinct key is asked once
    # number of the run -> a context that gives the address and what reads its log
    service: Callable[[int], Any]
    folder: Path
    slow_parent: bool = False
    slow_calls: bool = False

    @property
    def day(self) -> InputDay:
        return of_files(sorted(self.folder.glob("*.parquet")))


class Bench:
    def __init__(self, root: Path, share: float, *, limits: bool = False) -> None:
        self.root, self.share, self.limits = root, share, limits
        data.prepare(root, days=[])
        self.spark = session("bench")
        self.number = 0

    # -- works -------------------------------------------------------------------------------------
    def workload(self, name: str) -> Workload:
        folder = self.root / f"in-{name}"
        rows = int(self.share * (20_000 if name in ("W1", "W3") else 10_000))
        keys = keys_of(self.root / "demo", rows)
        if name == "W3":
            keys = keys[: rows // 10] * 10
            random.Random(SEED).shuffle(keys)  # else each task would have half of the keys
        write_input(folder, keys, payload=4096 if name == "slow-parent" else 0)
        if name in ("W1", "W3"):
            drawn = sum(latency(SEED, f"{origin}/{hour}") for origin, hour in set(keys))
            return Workload(keys, drawn / IN_FLIGHT, self._weather, folder)
        settings = (0.05, 0.02, 1.0) if name == "tail" else (0.05, 0.0, 0.0)
        drawn = sum(
            uneven_service.latency(f"/v1/{origin}/{hour}", *settings) for origin, hour in keys
        )
        return Workload(
            keys,
            drawn / IN_FLIGHT,
            partial(uneven, settings),
            folder,
            name == "slow-parent",
            name == "tail",
        )

    @contextmanager
    def _weather(
        self, number: int
    ) -> Iterator[tuple[str, Callable[[], list[tuple[float, float]]]]]:
        with weather_service.running(
            self.root / "demo", self.root / f"calls-{number}.jsonl", seed=SEED
        ) as service:
            yield service.url, lambda: [(call.t_start, call.t_end) for call in service.calls()]

    def contenders(self, work: Workload) -> dict[str, Work]:
        share = IN_FLIGHT // TASKS
        if self.limits:
            return {
                "tidegate, unordered": self.tidegate(work, "unordered"),
                "tidegate, unordered, limits": self.limited(self.tidegate(work, "unordered")),
                "tidegate, unordered, a rate": self.limited(
                    self.tidegate(work, "unordered", rate=[NEVER_REACHED])
                ),
            }
        found: dict[str, Work] = {
            "tidegate, ordered": self.tidegate(work, "ordered"),
            "tidegate, unordered": self.tidegate(work, "unordered"),
            "tidegate, unordered, ledger": self.tidegate(work, "unordered", ledger=True),
            "gather per 1,000 rows": self.in_arrow(
                work, partial(contenders.gather_per_batch, share=share), 1000
            ),
            "gather per 10,000 rows": self.in_arrow(
                work, partial(contenders.gather_per_batch, share=share), 10_000
            ),
            "threads in mapInPandas": self.threads(work, share),
        }
        distinct = list(dict.fromkeys(work.rows))
        bare: Work = lambda url, _out: contenders.bare_asyncio(distinct, url, IN_FLIGHT)  # noqa: E731
        # without a ledger: a day's input is files, and may be read more than once
        if work.slow_parent:
            del found["tidegate, unordered, ledger"]
            return found
        if work.slow_calls:
            found["tidegate, unordered, hedged"] = self.tidegate(work, "unordered", hedged=True)
        return {"bare asyncio + aiohttp": bare} | found

    def frame(self, work: Workload, records: int = 1000) -> Any:
        self.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(records))
        frame = work.day.read(self.spark)
        return frame.mapInArrow(slowly, frame.schema) if work.slow_parent else frame

    def limited(self, work: Work) -> Work:
        """With the calls in flight leased from the default store."""

        def run(url: str, out: Path) -> None:
            del os.environ[LIMITS_URL]
            try:
                work(url, out)
            finally:
                os.environ[LIMITS_URL] = "off"

        return run

    def tidegate(
        self,
        work: Workload,
        mode: str,
        *,
        ledger: bool = False,
        rate: Sequence[Rate] = (),
        hedged: bool = False,
    ) -> Work:
        def run(url: str, out: Path) -> None:
            kept = Ledger(str(self.root / f"ledger-{uuid.uuid4().hex}")) if ledger else None
            declared = enrichment(url, mode, kept, rate, hedged=hedged)
            if work.slow_parent:  # to be read once only
                write_out(*plan_tasks(self.frame(work), declared), str(out))
            else:
                write_enriched(self.frame(work), declared, out, day=work.day)

        return run

    def in_arrow(self, work: Workload, contender: Callable[[str], Batches], records: int) -> Work:
        def run(url: str, out: Path) -> None:
            self.frame(work, records).mapInArrow(contender(url), contenders.RETURNED).write.parquet(
                str(out)
            )

        return run

    def threads(self, work: Workload, share: int) -> Work:
        def run(url: str, out: Path) -> None:
            asking = contenders.threads_per_batch(url, share)
            self.frame(work).mapInPandas(asking, contenders.RETURNED).write.parquet(str(out))

        return run

    # -- measuring ---------------------------------------------------------------------------------
    def measure(self, work: Workload, contender: Work) -> tuple[float, float, int]:
        """Return act and work of a contender as ratios to the limit, and its calls.

        It gets a separate service.
        """
        self.number += 1
        with work.service(self.number) as (url, calls_of):
            started = time.monotonic()
            contender(url, self.root / f"out-{self.number}")
            seconds = time.monotonic() - started
            calls = calls_of()
        act = max(end for _, end in calls) - min(start for start, _ in calls)
        return act / work.limit, seconds / work.limit, len(calls)

    def row_udf(self, work: Workload) -> float:
        """Seconds of a plain UDF on a subset, as a ratio to the subset's limit."""
        folder = self.root / "in-udf"
        if not folder.exists():
            write_input(folder, work.rows[:ROW_UDF_KEYS])
        with self._weather(-1) as (url, _):
            frame = self.spark.read.parquet(str(folder))
            started = time.monotonic()
            asked = frame.withColumn("temp_c", contenders.row_udf(url)("origin", "hour"))
            asked.write.mode("overwrite").parquet(str(self.root / "out-udf"))
            seconds = time.monotonic() - started
        return seconds / (work.limit * ROW_UDF_KEYS / len(work.rows))

    def run(self, name: str, runs: int) -> None:
        work = self.workload(name)
        distinct = len(set(work.rows))
        print(
            f"\n{name}: {len(work.rows):,} rows, {distinct:,} keys; limit {work.limit:.2f} s",
            flush=True,
        )
        chosen = self.contenders(work)
        # warms the JVM and Spark's Python workers
        self.measure(work, chosen["tidegate, unordered"])
        figures: dict[str, list[tuple[float, float, int]]] = {contender: [] for contender in chosen}
        for _ in range(runs):
            for contender, asking in chosen.items():
                figures[contender].append(self.measure(work, asking))
        print(f"{'':28} act / limit   work / limit   calls")
        for contender, measured in figures.items():
            act, whole, calls = medians(measured)
            print(f"{contender:28} {act:11.3f} {whole:14.3f} {calls:7,.0f}", flush=True)
        self._ratios(figures)
        if name == "W1" and not self.limits:
            print(f"{'plain UDF, a subset':28} {'':11} {self.row_udf(work):14.3f}", flush=True)

    def _ratios(self, figures: dict[str, list[tuple[float, float, int]]]) -> None:
        median = {name: medians(of) for name, of in figures.items()}
        if "bare asyncio + aiohttp" in median:
            bare = median["bare asyncio + aiohttp"][0]
            both = (median[f"tidegate, {mode}"][0] / bare for mode in ("ordered", "unordered"))
            print("act / bare asyncio: ordered {:.3f}, unordered {:.3f}".format(*both))
        if self.limits:
            off = median["tidegate, unordered"]
            for name in ("limits", "a rate"):
                on = median[f"tidegate, unordered, {name}"]
                print(
                    f"with {name} / without: act {on[0] / off[0]:.3f}, work {on[1] / off[1]:.3f}",
                    flush=True,
                )
            return
        stored, plain = median["tidegate, unordered, ledger"][1], median["tidegate, unordered"][1]
        print(f"work with the ledger / without: {stored / plain:.3f}", flush=True)


@contextmanager
def uneven(
    settings: tuple[float, float, float], _number: int
) -> Iterator[tuple[str, Callable[[], Any]]]:
    with uneven_service.running(*settings) as url:
        yield url, lambda: uneven_service.calls_of(url)


WORKS = ("W1", "W3", "slow-parent", "tail")


def main() -> None:
    parser = option_parser(__doc__, runs=5, limits=False, share=1.0)
    parser.add_argument(
        "--work",
        choices=WORKS,
        action="append",
        help="more than once for several; all without it",
    )
    options = parser.parse_args()
    if options.limits:
        os.environ[LIMITS_URL] = "off"
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        bench = Bench(Path(folder), options.share, limits=options.limits)
        print(
            f"{IN_FLIGHT} calls in flight, {TASKS} tasks, the median of {options.runs}",
            flush=True,
        )
        for name in options.work or WORKS:
            bench.run(name, options.runs)
        bench.spark.stop()


if __name__ == "__main__":
    main()
