"""What levels cost: a waterfall of three vendors, known answers of 1 to 3 levels, and a small day.

    python benchmarks/chains.py rungs --rows 200000
    python benchmarks/chains.py known --rows 1000000
    python benchmarks/chains.py small

The vendors answer in the run's process after a fixed time, so that only the levels are measured.
Those of `rungs` hit 60, 50 and 30 % of the keys that they are asked for, independently of each
other; its limit is the sum over the vendors of calls * latency / calls in flight. All days run on
the local engine.
"""

import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from command_line import option_parser
from usage import run_measured

from jobs.tables.records import run_records

ROOT = Path(__file__).resolve().parents[1]
DAY = "2026-01-05"
RUN = [
    sys.executable,
    "-m",
    "tidegate",
    "run",
    "firms",
    "--package",
    "levels",
    "--day",
    DAY,
    "--engine",
    "local",
]
HITS = {"a": 0.6, "b": 0.5, "c": 0.3}
RUNG_S, RUNG_CALLS = 0.025, 25
DECLARED = """
import asyncio
import hashlib

from asyncio_core import AsyncFunction
from tidegate import AsyncFunctionLookup, Enrichment, Input, Ledger, Output, Waterfall


def lookup(name, column, key="key", share=1.0, seconds=0.0, calls=50):
    class Vendor(AsyncFunction):
        async def async_invoke(self, value):
            await asyncio.sleep(seconds)
            digest = hashlib.md5(f"{name} {value['key']}".encode()).digest()
            hit = int.from_bytes(digest[:4]) < share * 2**32
            return [{column: name + value["key"][1:]}] if hit else []

    return AsyncFunctionLookup(
        name=name, function=Vendor, keys={"key": key}, returns=f"{column} STRING", timeout=60.0,
        max_concurrency=calls,
    )


def rung(name, share):
    return lookup(name, "id", share=share, seconds=RUNG_S, calls=RUNG_CALLS)


firms = Enrichment(
    name="firms",
    input=Input(path="data/raw/firms", row_id=["number"]),
    lookups=LOOKUPS,
    output=Output(path="data/published/firms"),
    ledger=Ledger("data/ledger"),
)
"""


def declare(lookups: str) -> None:
    Path("levels").mkdir(exist_ok=True)
    Path("levels/__init__.py").touch()
    text = DECLARED.replace("LOOKUPS", lookups)
    text = text.replace("RUNG_S", str(RUNG_S)).replace("RUNG_CALLS", str(RUNG_CALLS))
    Path("levels/firms.py").write_text(text)


def write_input(keys: list[str]) -> None:
    folder = Path(f"data/raw/firms/date={DAY}")
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"number": range(len(keys)), "key": keys}), folder / "part-0.parquet")


def rungs(rows: int) -> None:
    vendors = ", ".join(f"rung({name!r}, {share})" for name, share in HITS.items())
    declare(f'[Waterfall(name="firm", of=[{vendors}])]')
    write_input([f"k{number}" for number in range(rows)])
    wall, cpu, _ = run_measured(RUN)
    record = run_records.load("firms", DAY)[-1]
    table = pa.concat_tables(pq.read_table(file, partitioning=None) for file in record.facts.files)
    spans, declared, limit, calls = [], 0.0, 0.0, 0
    for lookup in record.figures.lookups:
        attempts = table[f"_{lookup.name}_attempts"].combine_chunks().flatten()
        first = pc.min(attempts.field("start")).as_py() / 1e6
        last = pc.max(attempts.field("end")).as_py() / 1e6
        spans += [first, last]
        declared += lookup.calls * RUNG_S / RUNG_CALLS
        limit += lookup.limit_s
        calls += lookup.calls
        print(
            f"{lookup.name}: {lookup.calls:,} calls, {lookup.outcomes['ok']:,} hits, from "
            f"{first - spans[0]:.2f} to {last - spans[0]:.2f} s: "
            f"{(last - first) / lookup.limit_s:.3f} of its limit"
        )
    whole = max(spans) - min(spans)
    print(
        f"first to last call {whole:.2f} s, limit {limit:.2f} s: {whole / limit:.3f} (with the "
        f"vendors' declared times {declared:.2f} s: {whole / declared:.3f}); wall {wall:.1f} s, "
        f"CPU {cpu:.1f} s, {1e6 * cpu / calls:.0f} us a call"
    )


def known(rows: int) -> None:
    draw = random.Random(1)
    write_input([f"k{draw.randrange(1000)}" for _ in range(rows)])
    for levels, of_b, of_c in ((1, "key", "key"), (2, "a_id", "key"), (3, "a_id", "b_id")):
        shutil.rmtree("data/ledger", ignore_errors=True)
        declare(
            f'[lookup("a", "a_id"), lookup("b", "b_id", {of_b!r}), lookup("c", "c_id", {of_c!r})]'
        )
        run_measured(RUN)
        wall, cpu, _ = run_measured(RUN)
        print(f"{rows:,} rows, all known, {levels} levels: CPU {cpu:.2f} s, wall {wall:.2f} s")


def small(rows: int) -> None:
    write_input([f"k{number}" for number in range(rows)])
    for levels, of_b in ((1, "key"), (2, "a_id")):
        shutil.rmtree("data/ledger", ignore_errors=True)
        declare(f'[lookup("a", "a_id", seconds=0.05), lookup("b", "b_id", {of_b!r}, seconds=0.05)]')
        wall, cpu, _ = run_measured(RUN)
        print(f"{rows:,} rows, 50 ms a call, {levels} levels: wall {wall:.2f} s, CPU {cpu:.2f} s")


FIGURES = {"rungs": (rungs, 200_000), "known": (known, 1_000_000), "small": (small, 1_000)}


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("--rows", type=int)
    options = parser.parse_args()
    measure, rows = FIGURES[options.figure]
    os.environ["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        measure(options.rows or rows)
        os.chdir(ROOT)


if __name__ == "__main__":
    main()
