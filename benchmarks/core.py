"""What asyncio_core costs, compared with bare asyncio and two packages in the same run.

    python benchmarks/core.py [--records 500000] [--repeat 3] [--json FILE]
                             [--only cost,order,flat,memory]

cost    CPU time per record (process_time, best of the repeats, contenders in turns), 100 in flight
order   how long ordered takes against unordered: lognormal latencies, mean 50 ms, p99 200 ms,
        concurrency 50, capacity 800; 20 seeds in virtual time, then once in real time
flat    CPU time per record as capacity, segments and keys grow
memory  peak memory of a process that puts 100,000 and 10,000,000 records through
"""

import argparse
import asyncio
import functools
import gc
import json
import platform
import random
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from command_line import option_parser
from core_contenders import IN_FLIGHT, MODES, OTHERS, AtOnce, Count, Sleeps, SuspendsOnce, operator

from asyncio_core import AsyncWaitOperator, OutputMode, StreamRecord
from asyncio_core.testing import run_virtual

FUNCTIONS = {"returns at once": AtOnce, "suspends once": SuspendsOnce, "sleeps 1 ms": Sleeps}
CAPACITIES = (100, 1600)


def prepare(count: int) -> list[StreamRecord]:
    """Make the records before any clock starts, hidden from the collector, for all contenders."""
    records = [StreamRecord(number, number) for number in range(count)]
    gc.collect()
    gc.freeze()
    return records


def price_units(contender, function, records) -> float:
    """Return microseconds of CPU per record, in a separate loop."""
    take = Count()
    spent = asyncio.run(contender(function(), records, take))
    assert take.count >= len(records), (
        f"{contender} gave {take.count} results for {len(records)} records"
    )
    return spent / len(records) * 1e6


def cost(arguments, report) -> None:
    records = prepare(arguments.records)
    contenders = {
        name: (contender, records[: int(len(records) * share)])
        for name, (contender, share) in OTHERS.items()
    }
    for name, options in MODES.items():
        for capacity in CAPACITIES:
            contenders[f"asyncio_core {name}, {capacity}"] = (
                functools.partial(operator, capacity=capacity, **options),  # type: ignore[arg-type]
                records,
            )
    for title, function in FUNCTIONS.items():
        repeats = arguments.repeat if function is not Sleeps else 1
        best = dict.fromkeys(contenders, float("inf"))
        for _ in range(repeats):
            for name, (contender, some) in contenders.items():
                best[name] = min(best[name], price_units(contender, function, some))
        print(f"\nCPU µs per record, {title}, {len(records):,} records, {IN_FLIGHT} in flight")
        for name, value in best.items():
            given = len(contenders[name][1])
            fewer = f"   ({given:,} records)" if given < len(records) else ""
            print(f"  {name:46}{value:8.2f}{fewer}")
        report["cost"][title] = best
        if function is not Sleeps:
            judge_cost(best)


def judge_cost(best) -> None:
    """Our figures against the bare workers and against both ways to make a Task per record."""
    bare, batches, sliding = (best[name] for name in list(OTHERS)[:3])
    print(
        "  asyncio_core: over the bare workers, share of a Task per record in batches, share of a "
        "sliding one"
    )
    for name, value in best.items():
        if name not in OTHERS:
            print(f"  {name:46}{value - bare:8.2f}{value / batches:8.2f}{value / sliding:8.2f}")


async def wait_for_all(latencies, mode) -> float:
    """Seconds on the loop's clock from the first record to the last result."""
    loop = asyncio.get_running_loop()

    class Waits:
        async def async_invoke(self, value):
            await asyncio.sleep(latencies[value])
            return [value]

    take = Count()
    waiting = AsyncWaitOperator(
        Waits(), take, mode=mode, timeout=60.0, capacity=800, concurrency=50
    )
    await waiting.open()
    started = loop.time()
    for number in range(len(latencies)):
        await waiting.process_element(StreamRecord(number))
    await waiting.end_input()
    spent = loop.time() - started
    await waiting.close()
    assert take.count == len(latencies)
    return spent


def lognormal(count, seed):
    chance = random.Random(seed)
    # mean 0.050 s, p99 0.200 s
    return [chance.lognormvariate(-3.2420, 0.7018) for _ in range(count)]


def order(_, report) -> None:
    ratios, above_limit = [], []
    for seed in range(20):
        latencies = lognormal(20_000, seed)
        ordered = run_virtual(wait_for_all(latencies, OutputMode.ORDERED))
        unordered = run_virtual(wait_for_all(latencies, OutputMode.UNORDERED))
        ratios.append(ordered / unordered)
        above_limit.append(ordered / (sum(latencies) / 50))
    print("\nOrdered against unordered, 20,000 records, concurrency 50, capacity 800")
    print(
        f"  virtual time, 20 seeds: mean {statistics.mean(ratios):.4f}, worst {max(ratios):.4f}",
        end="",
    )
    print(f"; ordered / (sum of latencies / 50): worst {max(above_limit):.4f}")
    latencies = lognormal(10_000, 0)
    real = [
        asyncio.run(wait_for_all(latencies, mode))
        for mode in (OutputMode.ORDERED, OutputMode.UNORDERED)
    ]
    print(
        f"  real time, 10,000 records: {real[0]:.2f} s / {real[1]:.2f} s = {real[0] / real[1]:.4f}"
    )
    report["order"] = {"virtual": ratios, "real": real, "limit": sum(latencies) / 50}


def flat(arguments, report) -> None:
    records = prepare(arguments.records // 5)
    unordered, keyed = OutputMode.UNORDERED, OutputMode.KEY_ORDERED
    series = {
        "capacity, ordered": {
            size: {"mode": OutputMode.ORDERED, "capacity": size, "concurrency": 16}
            for size in (16, 100, 1600, 10_000)
        },
        "capacity, unordered": {
            size: {"mode": unordered, "capacity": size, "concurrency": 16}
            for size in (16, 100, 1600, 10_000)
        },
        "records per segment": {
            size: {"mode": unordered, "capacity": 1600, "watermark_every": size}
            for size in (1, 10, 100, 10_000)
        },
        "keys": {
            size: {"mode": keyed, "capacity": 1600, "keys": size} for size in (1, 10, 1000, 100_000)
        },
    }
    print(f"\nCPU µs per record, suspends once, {len(records):,} records")
    for title, sizes in series.items():
        best = dict.fromkeys(sizes, float("inf"))
        for _ in range(arguments.repeat):
            for size, options in sizes.items():
                best[size] = min(
                    best[size],
                    price_units(functools.partial(operator, **options), SuspendsOnce, records),
                )
        print(
            f"  {title:24}" + "   ".join(f"{size:,}: {value:.2f}" for size, value in best.items())
        )
        report["flat"][title] = best


def memory(_, report) -> None:
    print("\nPeak memory of a process of its own, ordered, suspends once, capacity 1,600")
    for count in (100_000, 10_000_000):
        run = subprocess.run(
            [sys.executable, __file__, "--one-memory", str(count)],
            capture_output=True,
            text=True,
            check=True,
        )
        peak, seconds = map(float, run.stdout.split())
        print(f"  {count:12,} records: {peak:.1f} MB, {seconds / count * 1e6:.2f} µs per record")
        report["memory"][count] = peak


def one_memory(count: int) -> None:
    take = Count()
    started = time.process_time()
    records = (StreamRecord(number, number) for number in range(count))
    asyncio.run(operator(SuspendsOnce(), records, take, mode=OutputMode.ORDERED, capacity=1600))
    assert take.count == count
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.process_time() - started)


SECTIONS = {"cost": cost, "order": order, "flat": flat, "memory": memory}


def main() -> None:
    parser = option_parser(__doc__, records=500_000, repeat=3, only=",".join(SECTIONS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one-memory", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one_memory:
        one_memory(arguments.one_memory)
        return
    report = {
        "python": platform.python_version(),
        "cost": {},
        "order": {},
        "flat": {},
        "memory": {},
    }
    print(f"Python {report['python']}, {platform.platform()}")
    for section in arguments.only.split(","):
        SECTIONS[section](arguments, report)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
