"""W2: what the bridge itself costs, when the function returns at once and nothing is waited for.

    python benchmarks/throughput.py            500,000 rows to Parquet, ordered, with audit columns
    python benchmarks/throughput.py --rows 100000 --runs 3
    python benchmarks/throughput.py --limits    also with a limit over runs, and with a rate
    python benchmarks/throughput.py --profile  where an event loop spends its time (no Spark);
                                               with --shared, equal calls are shared

It is compared with an identity mapInArrow that writes the same columns, the audit columns as
constants: all that Spark, Arrow and Parquet cost without us. The ledger is off except for the last
line, which has a new folder for it each time.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from command_line import option_parser
from usage import profiled_loop
from whole_run import session, write_enriched

from jobs.input.day import InputDay, of_files
from jobs.limits.store_url import LIMITS_URL
from jobs.task.plan import PartitionPlan
from jobs.task.runner import PartitionRun
from tidegate import AsyncFunctionLookup, Enrichment, Input, Ledger, Output, Rate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TASKS = 2
IN_FLIGHT = 100
NEVER_REACHED = Rate(10_000_000, per="second")


class AtOnce:
    """An AsyncFunction that waits for nothing."""

    async def async_invoke(self, keys: dict[str, Any]) -> list[dict[str, Any]]:  # noqa: ARG002  # Flink's signature
        return [{"x": 1.5}]


def enrichment(
    mode: str = "ordered",
    *,
    ledger: Ledger | None = None,
    shared: bool = False,
    rate: Sequence[Rate] = (),
) -> Enrichment:
    cache: dict[str, Any] = {} if shared else {"cache": None}
    lookup = AsyncFunctionLookup(
        name="f", function=AtOnce, keys={"id": "id"}, returns="x DOUBLE", timeout=60.0,
        max_concurrency=IN_FLIGHT, rate=rate, **cache,
    )  # fmt: skip
    return Enrichment(
        name="bench",
        input=Input(path="in"),
        lookups=[lookup],
        output=Output(path="out"),
        mode=mode,  # type: ignore[arg-type]
        ledger=ledger,
    )


def table(rows: int, first: int = 0) -> pa.Table:
    """Eight columns, about 200 bytes a row."""
    ids = np.arange(first, first + rows)
    text = pa.array([f"{number % 1000:050d}" for number in range(1000)]).take(pa.array(ids % 1000))
    columns = {
        "id": pa.array(ids),
        "a": ids * 3,
        "b": ids / 7,
        "c": text,
        "d": text,
        "e": text,
        "f": ids % 2 == 0,
    }
    return pa.table(columns | {"g": pa.array(ids, pa.timestamp("us", tz="UTC"))})


def write_input(folder: Path, rows: int) -> None:
    """A file for each task."""
    folder.mkdir(exist_ok=True)
    for task in range(TASKS):
        pq.write_table(table(rows // TASKS, task * rows // TASKS), folder / f"part-{task}.parquet")


def constants(schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The identity: each batch with the columns that the bridge adds, all the same value."""

    def value(kind: pa.DataType) -> Any:
        if pa.types.is_list(kind):
            return [value(kind.value_type)]
        if pa.types.is_struct(kind):
            return {field.name: value(field.type) for field in kind}
        return "ok" if pa.types.is_string(kind) else pa.scalar(1).cast(kind).as_py()

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made: dict[int, dict[str, pa.Array]] = {}
        for batch in batches:
            rows = batch.num_rows
            if rows not in made:
                made[rows] = {
                    f.name: pa.array([value(f.type)] * rows, f.type)
                    for f in schema
                    if f.name not in batch.schema.names
                }
            arrays = [
                made[rows][f.name] if f.name in made[rows] else batch.column(f.name) for f in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return task


class Bench:
    def __init__(self, root: Path, rows: int) -> None:
        self.root, self.rows = root, rows
        write_input(root / "in", rows)
        self.spark = session("bench")
        self.number = 0

    @property
    def day(self) -> InputDay:
        return of_files(sorted((self.root / "in").glob("*.parquet")))

    def frame(self) -> DataFrame:
        return self.day.read(self.spark)

    def identity(self) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        from jobs.run.plan.planner import plan_tasks
        from jobs.run.rows.keyed_rows import written_schema

        prepared, plan = plan_tasks(self.frame(), enrichment())
        written = written_schema(prepared.schema, plan.layout)
        self.number += 1
        out = str(self.root / f"out-{self.number}")
        prepared.mapInArrow(
            constants(to_arrow_schema(written, timezone="UTC")), written
        ).write.parquet(out)

    def limited(self, rate: Sequence[Rate] = ()) -> None:
        """With the calls in flight leased from a store, and a rate that is never reached."""
        os.environ[LIMITS_URL] = f"file://{self.root}/limits.sqlite"
        try:
            self.tidegate("ordered", rate=rate)
        finally:
            os.environ[LIMITS_URL] = "off"

    def tidegate(
        self, mode: str, *, ledger: bool = False, shared: bool = False, rate: Sequence[Rate] = ()
    ) -> None:
        kept = Ledger(str(self.root / f"ledger-{self.number}")) if ledger else None
        self.number += 1
        declared, out = (
            enrichment(mode, ledger=kept, shared=shared, rate=rate),
            self.root / f"out-{self.number}",
        )
        write_enriched(self.frame(), declared, out, day=self.day)

    def measure(self, work: Callable[[], None]) -> float:
        """Rows per second, from submitting the job to the end of its output."""
        started = time.monotonic()
        work()
        return self.rows / (time.monotonic() - started)


def profile(rows: int, *, shared: bool) -> None:
    """Run a partition in this process, from memory, with the loop's thread under cProfile."""
    from jobs.task.rows.arrow_batches import BatchLayout

    declared = enrichment(shared=shared)
    lookups = tuple(declared.lookups)
    layout = BatchLayout(
        carried=("id", "a", "b", "c", "d", "e", "f", "g", "_source_file", "_source_row"),
        keys=(("__key_0_0",),), order_key=(), event_time=None, max_out_of_orderness_ms=0,
        lookups=("f",), answers=(lookups[0].columns,),
    )  # fmt: skip
    plan = PartitionPlan(lookups, ((IN_FLIGHT // TASKS,),), "ordered", layout, None)
    whole = table(rows)
    whole = whole.append_column("__key_0_0", whole["id"]).append_column(
        "_source_file", pa.nulls(rows, pa.string())
    )
    batches = whole.append_column("_source_row", whole["id"]).to_batches(max_chunksize=1000)
    list(PartitionRun(plan, 0, 0).run(iter(batches[:10])))  # imports and first times
    started = time.process_time()
    for _ in PartitionRun(plan, 0, 0).run(iter(batches)):
        pass
    print(
        f"{1e6 * (time.process_time() - started) / rows:.2f} µs of CPU a row, one partition, no "
        "Spark"
    )
    with profiled_loop(25):
        for _ in PartitionRun(plan, 0, 0).run(iter(batches)):
            pass


def main() -> None:
    options = option_parser(
        __doc__, rows=500_000, runs=5, profile=False, shared=False, limits=False
    ).parse_args()
    if options.limits:
        os.environ[LIMITS_URL] = "off"
    if options.profile:
        profile(options.rows, shared=options.shared)
        return
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        bench = Bench(Path(folder), options.rows)
        contenders: dict[str, Callable[[], None]] = {
            "identity mapInArrow": bench.identity,
            "tidegate, ordered": lambda: bench.tidegate("ordered"),
            "tidegate, unordered": lambda: bench.tidegate("unordered"),
            "tidegate, ordered, equal calls shared": lambda: bench.tidegate("ordered", shared=True),
            "tidegate, ordered, ledger on": lambda: bench.tidegate("ordered", ledger=True),
        }
        if options.limits:
            contenders["tidegate, ordered, limit over runs"] = bench.limited
            contenders["tidegate, ordered, limit and rate"] = lambda: bench.limited([NEVER_REACHED])
        print(f"W2: {options.rows:,} rows, {TASKS} tasks, to Parquet", flush=True)
        for work in contenders.values():  # warms the JVM and Spark's Python workers
            work()
        figures: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(options.runs):
            for name, work in contenders.items():
                figures[name].append(bench.measure(work))
        identity = statistics.median(figures["identity mapInArrow"])
        print(f"{'':40} rows/s   of the identity")
        for name, rates in figures.items():
            rate = statistics.median(rates)
            print(f"{name:38} {rate:8,.0f} {rate / identity:17.2f}", flush=True)
        bench.spark.stop()


if __name__ == "__main__":
    main()
