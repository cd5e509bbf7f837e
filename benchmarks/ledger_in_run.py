"""What the ledger adds to a run whose function returns at once: W2 with and without it, in turns.

python benchmarks/ledger_in_run.py              500,000 rows, three turns, with a cache and without
python benchmarks/ledger_in_run.py --turns 20   a single turn says little: the medians of twenty
python benchmarks/ledger_in_run.py --rows 100000 --turns 1

CPU is the sum of the driver, Spark's JVM and its workers; on a machine with other work trust it and
not the wall.
"""

import shutil
import tempfile
import time
from pathlib import Path

from command_line import option_parser
from throughput import enrichment, write_input
from usage import cpu_s, medians
from whole_run import session, write_enriched

from jobs.input.day import of_files
from tidegate import Ledger


def run(spark, folder, *, cache, ledger):
    """Run over all rows; return CPU s, wall s."""
    declared = enrichment(ledger=Ledger(str(folder / "ledger")) if ledger else None, shared=cache)
    for left in ("written", "ledger"):
        shutil.rmtree(folder / left, ignore_errors=True)
    cpu, wall = cpu_s(), time.perf_counter()
    day = of_files(sorted((folder / "rows").glob("*.parquet")))
    write_enriched(day.read(spark), declared, folder / "written", day=day)
    return cpu_s() - cpu, time.perf_counter() - wall


def compared(message, spark, folder, *, cache, turns):
    """Print each turn, and what the ledger adds in the median."""
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for ledger in found:  # cold
        run(spark, folder, cache=cache, ledger=ledger)
    for turn in range(turns):
        for ledger in (True, False) if turn % 2 else (False, True):
            found[ledger].append(run(spark, folder, cache=cache, ledger=ledger))
        (cpu, wall), (cpu_with, wall_with) = found[False][-1], found[True][-1]
        print(f"{message}  without: {cpu:.1f} s CPU {wall:.1f} s", end="   ")
        print(f"with the ledger: {cpu_with:.1f} s CPU {wall_with:.1f} s", flush=True)
    cpu, wall = medians([ratios(*turn) for turn in zip(found[False], found[True], strict=True)])
    print(f"{message}  x {cpu:.3f} CPU, x {wall:.3f} wall (medians of {turns} turns)", end="; ")
    cpu, wall = ratios(medians(found[False]), medians(found[True]))
    print(f"ratios of the medians x {cpu:.3f} CPU, x {wall:.3f} wall")


def ratios(without, with_it):
    return [after / before for before, after in zip(without, with_it, strict=True)]


def main():
    options = option_parser(__doc__, rows=500_000, turns=3).parse_args()
    spark = session("ledger in a run")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_input(folder / "rows", options.rows)
        for cache in (True, False):
            compared(
                f"cache {'on ' if cache else 'off'}",
                spark,
                folder,
                cache=cache,
                turns=options.turns,
            )
    spark.stop()


if __name__ == "__main__":
    main()
