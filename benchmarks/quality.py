"""What judging a day costs: the suite against a lag-window query plus an aggregation in a session.

    .venv/bin/python benchmarks/quality.py [--rows 1000000] [--rounds 5] [--heap 1g]

Both read the same columns of the same files. The suite is measured with and without
stored answers to compare. Wall time, CPU time of the JVM and of Python, best of the rounds after
the first; the number of Spark jobs; the largest heap in use and the largest memory of Python.
Imports and making the day are left out.
"""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "data_quality"))  # honest_day
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from command_line import option_parser  # noqa: E402
from honest_day import honest_day  # type: ignore[import-not-found]  # noqa: E402
from pyspark.sql import DataFrame, SparkSession, Window  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402, N812
from pyspark.sql.types import ArrayType  # noqa: E402

from data_quality.day import check  # noqa: E402


def session(heap: str) -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", heap)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def lag_window(frame: DataFrame) -> None:
    by_files = Window.partitionBy("_partition").orderBy("_output_seq")
    before = F.lag("_input_seq").over(by_files)
    frame.withColumn("_before", before).where("_before > _input_seq").count()


def aggregation(frame: DataFrame) -> None:
    measures = [F.count("*")]
    for field in frame.schema.fields:
        column = F.size(field.name) if isinstance(field.dataType, ArrayType) else F.col(field.name)
        measures += [F.min(column), F.max(column)]
    frame.agg(*measures).collect()


class Meter:
    """Wall time, CPU time of the JVM and of this process, and Spark jobs of a piece of work."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._java = self._context._jvm.java  # noqa: SLF001  # the JVM is what is measured
        management = self._java.lang.management.ManagementFactory
        self._pools = management.getMemoryPoolMXBeans()
        self._measured: dict[str, list[tuple[float, float, int]]] = {}

    def _cpu_s(self) -> float:
        fields = Path(f"/proc/{self._java.lang.ProcessHandle.current().pid()}/stat").read_text()
        user, system = fields.rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") + time.process_time()

    def _jobs(self) -> int:
        """Spark jobs so far, whichever thread started them."""
        return int(self._context._jsc.sc().dagScheduler().numTotalJobs())  # noqa: SLF001

    def measure(self, name: str, work: Callable[[], Any]) -> Any:
        jobs = self._jobs()
        wall, cpu = time.perf_counter(), self._cpu_s()
        result = work()
        spent = time.perf_counter() - wall, self._cpu_s() - cpu
        self._measured.setdefault(name, []).append((*spent, self._jobs() - jobs))
        return result

    def best(self, name: str) -> tuple[float, float, int]:
        warm = self._measured[name][1:] or self._measured[name]
        return min(wall for wall, _, _ in warm), min(cpu for _, cpu, _ in warm), warm[-1][2]

    def largest_heap_mb(self) -> float:
        heap = [pool for pool in self._pools if str(pool.getType()) == "Heap memory"]
        return sum(pool.getPeakUsage().getUsed() for pool in heap) / 2**20


def main() -> None:
    parser = option_parser(__doc__, rows=1_000_000, rounds=5, heap="1g")
    parser.add_argument(
        "--mode", default="unordered", choices=["ordered", "unordered", "key_ordered"]
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sizes = (
            options.rows * 3 // 10,
            options.rows * 3 // 10,
            options.rows - options.rows * 3 // 10 * 2,
        )
        day = honest_day(Path(folder), options.mode, sizes=sizes)
        facts, figures = day.write()
        spark = session(options.heap)
        meter = Meter(spark)
        frame = spark.read.parquet(*facts.files)
        for _ in range(options.rounds):
            meter.measure("lag window", lambda: lag_window(frame))
            meter.measure("aggregation", lambda: aggregation(frame))
            found = meter.measure("checks", lambda: check(spark, facts, figures)).verdicts
            found += meter.measure(
                "with ledger", lambda: check(spark, facts, figures, day.ledger())
            ).verdicts
        red = [verdict for verdict in found if verdict.status == "failed"]
        assert not red, red
        checks = f"{len(found) // 2} checks, heap {options.heap}, {os.cpu_count()} cores"
        print(f"{options.rows:,} rows, {options.mode}, {checks}")
        print(f"{'':16}{'wall s':>8}{'cpu s':>8}{'jobs':>6}")
        for name in ("lag window", "aggregation", "checks", "with ledger"):
            wall, cpu, jobs = meter.best(name)
            print(f"{name:16}{wall:8.2f}{cpu:8.2f}{jobs:6}")
        wall, cpu = (meter.best("lag window")[n] + meter.best("aggregation")[n] for n in (0, 1))
        for name in ("checks", "with ledger"):
            judged = meter.best(name)
            print(
                f"{name} / (lag window + aggregation): wall {judged[0] / wall:.2f}, cpu "
                f"{judged[1] / cpu:.2f}"
            )
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"largest heap in use: {meter.largest_heap_mb():,.0f} MB; of Python, with the day in "
            f"it: {memory:,.0f} MB"
        )
        spark.stop()


if __name__ == "__main__":
    main()
