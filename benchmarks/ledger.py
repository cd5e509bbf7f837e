"""What the ledger costs: keeping and finding an answer, and finding a day's keys among many.

python benchmarks/ledger.py                   500,000 answers stored and read; a day among 2 million
python benchmarks/ledger.py --stored 50000000   a day among 50 million (4 GB in a temporary folder)
"""

import re
import statistics
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from command_line import option_parser

from jobs.declare.answers.answer_json import dump
from jobs.declare.ledger_settings import Ttl
from jobs.ledger.answers import SCHEMA
from jobs.ledger.changes.compaction import compact
from jobs.ledger.generations import contents
from jobs.ledger.index import AnswerIndex, write_index
from jobs.ledger.keys import key_text
from jobs.ledger.scan import records_of
from jobs.ledger.selection import select
from jobs.ledger.store import LedgerFolder
from jobs.ledger.writing.writer import LedgerWriter

ROWS = 500_000
BATCH = 10_000  # rows of an output batch: before it is yielded, its answers are stored


def size_of(folder):
    return sum(path.stat().st_size for path in Path(folder.path).rglob("*") if path.is_file())


def peak_mb():
    """Of this process: getrusage would count what its parent held when it made it."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


# -- keeping ---------------------------------------------------------------------------------------
def keep(rows, root):
    """As a task does it: raw answer to bytes, put; wait before each output batch."""
    folder = LedgerFolder(root, "scores", "f")
    writer = LedgerWriter(folder, "run-1", "0-0")
    began, wall, thread = time.process_time(), time.perf_counter(), time.thread_time()
    for number in range(rows):
        response = dump({"score": number, "grade": "B"})
        ticket = writer.put((number,), "ok", response, 1_700_000_000_000_000 + number)
        if ticket % BATCH == 0:
            writer.wait(ticket)
    loop = time.thread_time() - thread
    writer.close()
    return time.process_time() - began, time.perf_counter() - wall, loop, folder


def keeping():
    for _ in range(2):  # the first is cold
        with tempfile.TemporaryDirectory() as root:
            cpu, wall, loop, folder = keep(ROWS, root)
            parts = len(folder.parts())
            message = f"{size_of(folder) / ROWS:.0f} B each, {parts} parts"
    began = time.process_time()
    for number in range(ROWS):
        key_text((number,)), dump({"score": number, "grade": "B"})
    making = time.process_time() - began
    each, making, loop = (seconds / ROWS * 1e6 for seconds in (cpu, making, loop))
    print(f"keep      {ROWS:,} answers: {each:.2f} µs CPU each, wall {wall:.2f} s, {message}")
    print(f"          {making:.2f} of it key text and JSON; {loop:.2f} in the calling thread")


def putting():
    with tempfile.TemporaryDirectory() as root:
        writer = LedgerWriter(
            LedgerFolder(root, "scores", "f"),
            "run-1",
            "0-0",
            flush_rows=1 << 60,
            flush_seconds=60.0,
        )
        began = time.thread_time()
        for _ in range(ROWS):
            writer.put((1,), "ok", b"1", 1)
        print(f"put       {(time.thread_time() - began) / ROWS * 1e9:.0f} ns in the calling thread")
        writer.close()


# -- finding ---------------------------------------------------------------------------------------
def finding():
    with tempfile.TemporaryDirectory() as root:
        _, _, _, folder = keep(ROWS, root)
        keys = [key_text((number,)) for number in range(ROWS)]
        began = time.perf_counter()
        selected = select(folder, pa.array(keys), now_us=time.time_ns() // 1000, ttl=Ttl())
        print(
            f"select    {ROWS:,} keys out of {len(folder.parts())} parts: "
            f"{time.perf_counter() - began:.2f} s"
        )
        began = time.perf_counter()
        write_index(f"{root}/index.arrow", selected.answers)
        print(f"index     written in {time.perf_counter() - began:.2f} s")
        index = AnswerIndex.open(f"{root}/index.arrow")
        began = time.process_time()
        for start in range(0, ROWS, BATCH):
            assert len(index.answers(index.lines(pa.array(keys[start : start + BATCH])))) == BATCH
        print(
            f"find      {(time.process_time() - began) / ROWS * 1e6:.2f} µs each, {BATCH:,} at once"
        )


# -- a day among many ------------------------------------------------------------------------------
def store(folder, stored, kind, per_part=250_000):
    """Store answers in parts, as runs leave them; keys at random, or by days."""
    rng = np.random.default_rng(7)
    for start in range(0, stored, per_part):
        numbers = np.arange(start, min(start + per_part, stored))
        count = len(numbers)
        measured = (rng.random((3, count)) * [[300], [200], [10_000]]).astype(int)
        temperature, speed, visibility = (pa.array(values).cast(pa.string()) for values in measured)
        texts = [
            '{"temp_dc":',
            temperature,
            ',"wind":{"dms":',
            speed,
            '},"visibility_m":',
            visibility,
            "}",
            "",
        ]
        responses = pc.binary_join_element_wise(*texts)
        columns = [keys_of(numbers, kind), pa.repeat("ok", count), responses]
        columns += [
            pa.array(numbers).cast(SCHEMA.field("answered_at").type),
            pa.repeat("run", count),
        ]
        folder.write_part("run", f"{start:012d}", pa.table(columns, schema=SCHEMA))


def fill(folder, stored, kind):
    """The same, compacted."""
    store(folder, stored, kind)
    began = time.perf_counter()
    compact(folder, grace=timedelta(0))
    compact(folder, grace=timedelta(0))
    print(
        f"{kind:9} {stored:,} answers compacted in {time.perf_counter() - began:.0f} s to "
        f"{len(contents(folder).generation.files)} files, "
        f"{size_of(folder) / stored:.0f} B each; peak memory {peak_mb():,.0f} MB"
    )


def keys_of(numbers, kind):
    if kind == "by day":
        day, flight = (
            pa.array(values).cast(pa.string()) for values in (numbers // 10_000, numbers % 10_000)
        )
        parts = ['["day ', pc.utf8_lpad(day, 6, "0"), '",', flight, "]"]
    else:
        parts = [
            '["',
            pa.array(numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).cast(pa.string()),
            '"]',
        ]
    return pc.binary_join_element_wise(*parts, "")


def a_day(folder, stored, kind, count=10_000):
    """10,000 keys, half of them stored."""
    rng = np.random.default_rng(11)
    if kind == "by day":
        numbers = np.arange(stored - count // 2, stored + count // 2)
    else:
        numbers = np.concatenate(
            [rng.choice(stored, count // 2, replace=False), stored + np.arange(count // 2)]
        )
    wanted = keys_of(numbers, kind)
    seconds = []
    for _ in range(3):
        began, io_before = time.perf_counter(), bytes_read()
        selected = select(folder, wanted, now_us=stored + 1, ttl=Ttl())
        seconds.append(time.perf_counter() - began)
        read = bytes_read() - io_before
    assert selected.answers.num_rows == count // 2
    print(
        f"{kind:9} a day of {count:,} keys, half of them stored: {statistics.median(seconds):.2f} "
        f"s; {read / 1e6:,.1f} of {size_of(folder) / 1e6:,.0f} MB; peak memory {peak_mb():,.0f} MB"
    )


def a_cell(folder, stored, kind):
    """The records of one key, as `tidegate explain` asks for them."""
    wanted = keys_of(np.array([stored // 3]), kind).to_pylist()
    began, cpu = time.perf_counter(), time.process_time()
    assert records_of(folder, wanted).num_rows == 1
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(f"{kind:9} the records of one key: {seconds:.2f} s, {cpu:.2f} s of CPU")


def bytes_read():
    """What this process has read by system calls."""
    return int(Path("/proc/self/io").read_text().split()[1])


def main():
    parser = option_parser(__doc__, stored=2_000_000)
    parser.add_argument("--kind", choices=["at random", "by day"], default=None)
    arguments = parser.parse_args()
    if arguments.kind is None:
        putting()
        keeping()
        finding()
    for kind in ["at random", "by day"] if arguments.kind is None else [arguments.kind]:
        with tempfile.TemporaryDirectory() as root:
            folder = LedgerFolder(root, "weather", "f")
            fill(folder, arguments.stored, kind)
            a_day(folder, arguments.stored, kind)
            a_cell(folder, arguments.stored, kind)
    assert threading.active_count() == 1


if __name__ == "__main__":
    main()
