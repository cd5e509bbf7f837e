"""Windows of a day's rows compared with Spark's window(): the same aggregates of 1,000,000 rows.

    python benchmarks/windows.py
    python benchmarks/windows.py --rows 200000 --rounds 3 --kind session

Ours: reading the event times to know the watermarks, the windows to Parquet, and the dropped rows
to Parquet. Spark's: its window() or session_window(), whose result has the late rows too. Rounds
alternate; the ratio of each is printed.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from command_line import option_parser
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's own name for it
from whole_run import session

from jobs.run.engines.engine import SparkEngine
from jobs.run.windows.window_rows import WindowedDay
from jobs.schema import columns as schema
from jobs.schema.records import DeclaredFacts, EventTimeFacts, WindowFacts

FILES = 8
BOUND_S, SIZE_S, GAP_S = 5, 60, 2
SECONDS = 86_400


def write_rows(folder: Path, rows: int, late: float) -> tuple[list[str], dict[str, int]]:
    """Write files as a run does, with rising event times, a share behind; return rows per file."""
    drawn = np.random.default_rng(1)
    at = np.sort(drawn.integers(0, SECONDS * 1_000_000, rows))
    behind = drawn.random(rows) < late
    at = np.where(
        behind,
        at - drawn.integers(BOUND_S, 300, rows) * 1_000_000,
        at - drawn.integers(0, 2_000_000, rows),
    )
    each = rows // FILES
    paths, counts = [], {}
    for number in range(FILES):
        part = slice(number * each, (number + 1) * each)
        source = f"{folder}/in-{number}.parquet"
        table = pa.table(
            {
                "action": drawn.choice(["pv", "cart", "buy", "fav"], each),
                "price": drawn.random(each),
                "at": pa.array(at[part] + 1_590_278_400_000_000, pa.timestamp("us", "UTC")),
                "user": drawn.integers(0, 50_000, each),
                schema.SOURCE_FILE: pa.array([f"file:{source}"] * each).dictionary_encode(),
                schema.SOURCE_ROW: np.arange(each),
            }
        )
        paths.append(str(folder / f"out-{number}.parquet"))
        pq.write_table(table, paths[-1])
        counts[source] = each
    return paths, counts


def ours(
    spark: SparkSession, paths: list[str], counts: dict[str, int], window: WindowFacts, folder: Path
) -> None:
    declared = DeclaredFacts(
        enrichment="windows", table="", input_path="", partition="date", mode="unordered",
        lookups=(), row_id=schema.SOURCE_IDENTITY, event_time=EventTimeFacts("at", BOUND_S),
    )  # fmt: skip
    columns = ["action", "price", "at", "user"]
    written = WindowedDay.of(
        SparkEngine(spark), declared, paths, [*counts], columns, str(folder)
    ).write(window)
    print(
        (
            f"    {written.windows:,} windows, {written.rows:,} rows in them, {written.dropped:,} "
            "dropped"
        ),
        flush=True,
    )


def sparks(spark: SparkSession, paths: list[str], window: WindowFacts, folder: Path) -> None:
    frame: DataFrame = spark.read.parquet(*paths)
    extent = f"{window.size_ms} milliseconds", f"{window.every_ms} milliseconds"
    windows = (
        F.session_window("at", extent[0]) if window.kind == "session" else F.window("at", *extent)
    )
    made = frame.groupBy("action", windows).agg(
        F.expr("count(*) AS n"), F.expr("avg(price) AS mean")
    )
    made.write.parquet(str(folder / "spark"))


def seconds(work: Callable[[], None]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def main() -> None:
    parser = option_parser(__doc__, rows=1_000_000, rounds=5)
    parser.add_argument(
        "--late", type=float, default=0.02, help="share of the rows that are behind the bound"
    )
    parser.add_argument("--kind", choices=("tumbling", "sliding", "session"), default="tumbling")
    options = parser.parse_args()
    size = timedelta(seconds=GAP_S if options.kind == "session" else SIZE_S) // timedelta(
        milliseconds=1
    )
    every = {"tumbling": size, "sliding": size // 4, "session": 0}[options.kind]
    window = WindowFacts(
        "w", options.kind, size, every, 0, ("action",), "count(*) AS n, avg(price) AS mean", "last"
    )  # fmt: skip
    spark = session("benchmark of windows")
    ratios = []
    with tempfile.TemporaryDirectory(prefix="tidegate-") as name:
        root = Path(name)
        paths, counts = write_rows(root, options.rows, options.late)
        for number in range(options.rounds + 1):
            folder = root / f"round-{number}"
            own = seconds(lambda folder=folder: ours(spark, paths, counts, window, folder))  # type: ignore[misc]
            its = seconds(lambda folder=folder: sparks(spark, paths, window, folder))  # type: ignore[misc]
            print(
                f"round {number}: ours {own:5.2f} s, Spark's {its:5.2f} s, ratio {own / its:.2f}",
                flush=True,
            )
            ratios.append(own / its)
    spark.stop()
    after = sorted(ratios[1:])
    print(f"{options.kind}, {options.rows:,} rows: median of the ratios "
          f"{statistics.median(after):.2f}, "
          f"from {after[0]:.2f} to {after[-1]:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
