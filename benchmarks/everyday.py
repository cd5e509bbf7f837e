"""The everyday night, with repeated and mostly stored keys, against Spark's broadcast join.

    python benchmarks/everyday.py             1,000,000 rows over 50,000 keys, medians of 5 in turns
    python benchmarks/everyday.py --rows 300000 --runs 3
    python benchmarks/everyday.py --modes ordered unordered key_ordered
    python benchmarks/everyday.py --only stored   or: first-night, few-unknown

    join                Spark's broadcast join of the rows with the answers, from and to Parquet
    join, same columns  the same, and the other columns that we write, constants if possible
    stored              ours, every answer in the ledger
    first-night         ours, an empty ledger and a function that returns at once
    few-unknown         ours over HTTP at 50 ms, 100 in flight: every hundredth row has a new key
    calls alone         the calls of few-unknown by bare aiohttp, in as many processes

The wall is from planning to the end of the files, with looking for hits. 2 tasks; the audit columns
are written. CPU is the sum of the driver, Spark's JVM and its workers; on a machine with other work
trust it and not the wall.
"""

from __future__ import annotations

import argparse
import datetime as dt
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import uneven_service
from at_once import AtOnce, parse_answer
from command_line import option_parser
from contenders import bare_asyncio
from usage import MemoryWatch, cpu_s, medians
from whole_run import session, write_enriched

from jobs.declare.answers.answer_json import dump
from jobs.input.day import InputDay, of_files
from jobs.ledger.declared_folder import request_fingerprint
from jobs.ledger.store import LedgerFolder
from jobs.ledger.writing.writer import LedgerWriter
from tidegate import (
    AsyncFunctionLookup,
    Enrichment,
    EventTime,
    HttpLookup,
    Input,
    Ledger,
    Output,
    Service,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidegate import Lookup

TASKS = 2
IN_FLIGHT = 100
CALL_S = 0.05
UNKNOWN_EACH = 100  # rows
SEED = 0


def function_lookup() -> Lookup:
    return AsyncFunctionLookup(
        name="f", function=AtOnce, keys={"key": "key"}, returns="temp_c DOUBLE, station STRING",
        timeout=60.0, max_concurrency=IN_FLIGHT,
    )  # fmt: skip


def http_lookup(url: str) -> Lookup:
    return HttpLookup(
        name="f", service=Service(name="s", url=url, max_concurrency=IN_FLIGHT),
        request="GET /v1/{key}/now", keys={"key": "key"}, returns="temp_c DOUBLE", timeout=30.0,
    )  # fmt: skip


def key_texts(keys: int) -> pa.Array:
    return pa.array([f"KEY-{number:07d}" for number in range(keys)])


def write_rows(folder: Path, rows: int, keys: int, *, new_keys: bool) -> None:
    """Write nine columns, about 200 bytes a row, a file for each task.

    With new_keys every hundredth row has a new key.
    """
    folder.mkdir()
    drawn = np.random.default_rng(SEED).integers(0, keys, rows)
    repeated = pa.array([f"{number % 1000:050d}" for number in range(1000)])
    ids = np.arange(rows)
    key = key_texts(keys).take(pa.array(drawn))
    if new_keys:
        is_new = pa.array(ids % UNKNOWN_EACH == 0)
        key = pc.if_else(
            is_new,
            pc.binary_join_element_wise("NEW", pc.cast(pa.array(ids), pa.string()), "-"),
            key,
        )
    text = repeated.take(pa.array(ids % 1000))
    columns = {
        "id": pa.array(ids),
        "key": key,
        "a": ids * 3,
        "b": ids / 7,
        "c": text,
        "d": text,
        "e": text,
    }
    columns |= {
        "f": ids % 2 == 0,
        "g": pa.array(ids * 1_000_000 // 50, pa.timestamp("us", tz="UTC")),
    }
    table = pa.table(columns)
    for task in range(TASKS):
        start = task * rows // TASKS
        pq.write_table(
            table.slice(start, (task + 1) * rows // TASKS - start), folder / f"part-{task}.parquet"
        )


def store_answers(root: Path, lookup: Lookup, keys: int) -> None:
    """A ledger that holds an answer for each key."""
    writer = LedgerWriter(
        LedgerFolder(str(root), lookup.name, request_fingerprint(lookup)), "before", "0-0"
    )
    now = time.time_ns() // 1000
    for key in key_texts(keys).to_pylist():
        writer.put((key,), "ok", dump(parse_answer(key)), now)
    writer.close()


class Bench:
    def __init__(self, root: Path, options: argparse.Namespace) -> None:
        self.root, self.rows, self.keys = root, options.rows, options.keys
        self.event_time = (
            EventTime("g", max_out_of_orderness=dt.timedelta(seconds=10))
            if options.event_time
            else None
        )
        for name in ("rows", "rows-few-unknown"):
            write_rows(root / name, self.rows, self.keys, new_keys=name != "rows")
        answers = [parse_answer(key) for key in key_texts(self.keys).to_pylist()]
        table = pa.Table.from_pylist(answers).append_column("key", key_texts(self.keys))
        times = pa.array([time.time_ns() // 1000] * self.keys, pa.timestamp("us", tz="UTC"))
        pq.write_table(table.append_column("f_answered_at", times), root / "answers.parquet")
        store_answers(root / "ledger", function_lookup(), self.keys)
        self.spark = session("everyday")

    def day(self, name: str = "rows") -> InputDay:
        return of_files(sorted((self.root / name).glob("*.parquet")))

    def frame(self) -> DataFrame:
        return self.day().read(self.spark)

    def enrich(self, declared: Enrichment, out: Path, name: str = "rows") -> None:
        day = self.day(name)
        write_enriched(day.read(self.spark), declared, out, day=day)

    def out(self) -> Path:
        return self.root / f"out-{uuid.uuid4().hex}"

    def join(self) -> None:
        self._joined(self.frame()).write.parquet(str(self.out()))

    def _joined(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        answers = self.spark.read.parquet(str(self.root / "answers.parquet"))
        return frame.join(F.broadcast(answers), "key", "left")

    def join_same_columns(self) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        from jobs.run.plan.planner import plan_tasks
        from jobs.run.rows.keyed_rows import written_schema

        prepared, plan = plan_tasks(self.frame(), self.enrichment(function_lookup(), "ordered"))
        written = written_schema(prepared.schema, plan.layout)
        number = F.monotonically_increasing_id()
        made = {
            "_partition": F.spark_partition_id(), "_input_seq": number, "_output_seq": number,
            "f_status": F.lit("ok"), "_segment": F.lit(0).cast("bigint"), "_late": F.lit(False),
            "_f_status": F.lit("ok"), "_f_source": F.lit("ledger"), "_f_attempts": F.array(),
            "_f_key": F.struct("key"),
        }  # fmt: skip
        joined = self._joined(prepared)
        columns = [
            (
                made.get(
                    field.name, F.col(field.name) if field.name in joined.columns else F.lit(None)
                )
            )
            .cast(field.dataType)
            .alias(field.name)
            for field in written
        ]
        joined.select(*columns).write.parquet(str(self.out()))

    def enrichment(self, lookup: Lookup, mode: str, ledger: Path | None = None) -> Enrichment:
        key: dict[str, Any] = {"key": ["a"]} if mode == "key_ordered" else {}
        return Enrichment(
            name="bench", input=Input(path="in", row_id=["id"]), lookups=[lookup],
            output=Output(path="out"), mode=mode,  # type: ignore[arg-type]
            ledger=None if ledger is None else Ledger(str(ledger)), event_time=self.event_time,
            **key,
        )  # fmt: skip

    def stored(self, mode: str) -> None:
        declared = self.enrichment(function_lookup(), mode, self.root / "ledger")
        self.enrich(declared, self.out())

    def first_night(self, mode: str) -> None:
        out, empty = self.out(), self.root / f"ledger-{uuid.uuid4().hex}"
        declared = self.enrichment(function_lookup(), mode, empty)
        self.enrich(declared, out)
        calls = sum(
            pc.sum(
                pc.list_value_length(pq.read_table(file, columns=["_f_attempts"])["_f_attempts"])
            ).as_py()
            for file in out.glob("*.parquet")
        )
        assert calls == len(pc.unique(pq.read_table(self.root / "rows", columns=["key"])["key"])), (
            calls
        )

    def few_unknown(self, mode: str, lookup: Lookup) -> None:
        fresh = self.root / f"ledger-{uuid.uuid4().hex}"
        store_answers(fresh, lookup, self.keys)
        self.begun = time.monotonic(), cpu_s()  # without filling the ledger
        declared = self.enrichment(lookup, mode, fresh)
        self.enrich(declared, self.out(), "rows-few-unknown")

    def calls_alone(self, url: str, processes: ProcessPoolExecutor) -> None:
        calls = range(self.rows // UNKNOWN_EACH)
        keys = [
            [(f"NEW-{number}", "now") for number in calls[task::TASKS]] for task in range(TASKS)
        ]
        list(processes.map(bare_asyncio, keys, [url] * TASKS, [IN_FLIGHT // TASKS] * TASKS))

    def measure(self, work: Callable[[], None]) -> tuple[float, float]:
        """Seconds of wall and of CPU."""
        self.begun = time.monotonic(), cpu_s()
        work()
        return time.monotonic() - self.begun[0], cpu_s() - self.begun[1]


def contenders(
    bench: Bench, options: argparse.Namespace, url: str, processes: ProcessPoolExecutor
) -> dict[str, Callable[[], None]]:
    found: dict[str, Callable[[], None]] = {
        "join": bench.join,
        "join, same columns": bench.join_same_columns,
    }
    lookup = http_lookup(url)
    ours: dict[str, Callable[[str], None]] = {
        "stored": bench.stored,
        "first-night": bench.first_night,
        "few-unknown": lambda mode: bench.few_unknown(mode, lookup),
    }
    for name, work in ours.items():
        if not options.only or name in options.only:
            found |= {f"{name}, {mode}": partial(work, mode) for mode in options.modes}
    if not options.only or "few-unknown" in options.only:
        found["calls alone"] = partial(bench.calls_alone, url, processes)
    return found


def main() -> None:
    parser = option_parser(__doc__, rows=1_000_000, keys=50_000, runs=5)
    parser.add_argument(
        "--modes", nargs="+", default=["ordered"], choices=["ordered", "unordered", "key_ordered"]
    )
    parser.add_argument("--only", nargs="+", choices=["stored", "first-night", "few-unknown"])
    parser.add_argument(
        "--event-time", action="store_true", help="with watermarks: one after nearly every row"
    )
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder,
        uneven_service.running(CALL_S, 0.0, 0.0) as url,
        ProcessPoolExecutor(TASKS, get_context("spawn")) as processes,
    ):
        bench = Bench(Path(folder), options)
        chosen = contenders(bench, options, url, processes)
        print(
            (
                f"{options.rows:,} rows, {options.keys:,} keys, {TASKS} tasks, medians of "
                f"{options.runs}"
            ),
            flush=True,
        )
        for work in chosen.values():  # warms the JVM and Spark's Python workers
            work()
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in chosen}
        for _ in range(options.runs):
            for name, work in chosen.items():
                figures[name].append(bench.measure(work))
        report(figures, options.rows)
        if "calls alone" in chosen:
            took = statistics.median(end - start for start, end in uneven_service.calls_of(url))
            print(f"a call took {took * 1000:.1f} ms at the service (median)")
        with MemoryWatch() as memory:
            pass
        print(f"peak memory of a Python worker: {memory.peaks['worker']:,} MB")
        bench.spark.stop()


def report(figures: dict[str, list[tuple[float, float]]], rows: int) -> None:
    middle = {name: medians(turns) for name, turns in figures.items()}
    print(
        f"{'':26}{'wall s':>8}{'rows/s':>12}{'/ join':>8}{'/ same columns':>16}"
        f"{'CPU s':>8}{'/ join':>8}   wall, each"
    )
    join, same = middle["join"], middle["join, same columns"]
    for name, (wall, cpu) in middle.items():
        print(
            f"{name:26}{wall:8.2f}{rows / wall:12,.0f}{wall / join[0]:8.2f}{wall / same[0]:16.2f}",
            end="",
        )
        print(
            (
                f"{cpu:8.2f}{cpu / join[1]:8.2f}   "
                f"{' '.join(f'{turn:.2f}' for turn, _ in figures[name])}"
            ),
            flush=True,
        )
    if any(name.startswith("few-unknown") for name in middle):
        print(f"limit of few-unknown's calls: {rows / UNKNOWN_EACH * CALL_S / IN_FLIGHT:.2f} s")


if __name__ == "__main__":
    main()
