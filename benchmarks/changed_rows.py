"""A table without days of which little changed: its calls and CPU compared with the first run.

    python benchmarks/changed_rows.py --rows 1000000

Each row has a distinct key, which an HTTP service on loopback answers at once. Some rows are
published before the others, so that their answers are past the `ttl` in the end; then some others
change their key. The runs are `tidegate run`:

first      all rows but those that are published already
changed    0.1 % changed, 0.5 % past their ttl
unchanged  the same input again

CPU is of all processes of a run, without the service.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import uneven_service
from command_line import option_parser
from usage import CpuWatch

ROOT = Path(__file__).resolve().parents[1]

CHANGED, EXPIRED = 0.001, 0.005  # of the rows
PAUSE = 60.0  # s between the answers that will be past their ttl and the others
FOR_EVER = 1e9  # s
JAVA = {"TIDEGATE_SPARK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}  # for short runs
DECLARATION = """
import os
from datetime import timedelta
from tidegate import Enrichment, HttpLookup, Input, Ledger, Output, Service, Ttl

score = HttpLookup(
    name="score", request="GET /{{key}}",
    service=Service(name="s", url="{url}", max_concurrency=200),
    keys={{"key": "key"}}, returns="temp_c DOUBLE", timeout=60.0,
    ttl=Ttl(ok=timedelta(seconds=float(os.environ["TTL"]))),
)
customers = Enrichment(
    name="customers", lookups=[score],
    output=Output(path="data/customers"), ledger=Ledger("data/ledger"),
    input=Input(path="raw", partition="part", every=["all"],
                row_id=["customer_id"], rows="changed"),
)
"""
ANSWER = b'{"temp_c": 1.5}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


class Service(asyncio.Protocol):
    """Answers each request of a connection at once, and counts them; GET /_asked gives the
    count.
    """

    asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._heard = transport, b""

    def data_received(self, data: bytes) -> None:
        *requests, self._heard = (self._heard + data).split(b"\r\n\r\n")
        for request in requests:
            answer = ANSWER
            if request.startswith(b"GET /_asked"):
                answer = str(Service.asked).encode()
            else:
                Service.asked += 1
            self._transport.write(HEAD % len(answer) + answer)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Service, "127.0.0.1", 0, backlog=4096)
    await uneven_service.until_closed(server.sockets[0].getsockname()[1])


def asked(url: str) -> int:
    with urllib.request.urlopen(f"{url}/_asked", timeout=60) as response:
        return int(response.read())


def customers(rows: int, changed: int = 0) -> pa.Table:
    """Return the first rows of the table; `changed` rows before the last have another key."""
    ids = np.arange(rows)
    keys = np.where((ids >= rows - changed), ids + 10**9, ids)
    return pa.table(
        {
            "customer_id": ids,
            "key": [f"KEY-{key:010d}" for key in keys.tolist()],
            "name": [f"customer number {one:09d}" for one in ids.tolist()],
            "city": pa.array(["Berlin", "Oslo", "Lyon", None]).take(pa.array(ids % 4)),
            "revenue": ids / 7,
            "since": pa.array(ids % 20_000, pa.int32()).cast(pa.date32()),
        }
    )


class Bench:
    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        (folder / "declared").mkdir()
        (folder / "declared" / "__init__.py").touch()
        (folder / "declared" / "customers.py").write_text(DECLARATION.format(url=url))

    def give(self, table: pa.Table) -> None:
        (self.folder / "raw" / "part=all").mkdir(parents=True, exist_ok=True)
        pq.write_table(
            table, self.folder / "raw" / "part=all" / "part-0.parquet", row_group_size=100_000
        )

    def run(self, name: str, ttl: float = FOR_EVER) -> float:
        """Run the table and print what it took. Returns the CPU seconds."""
        before, began = asked(self.url), time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegate", "run", "customers", "--package", "declared"],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{self.folder}", "TTL": str(ttl)} | JAVA,
        )  # fmt: skip
        with CpuWatch(process.pid, every=0.2) as watch:
            status = process.wait()
        if status:
            sys.exit(f"the run ended with status {status}")
        cpu = watch.by_kind()
        spent = sum(cpu.values())
        calls = asked(self.url) - before
        print(
            f"{name:<10}{calls:>10,} calls {time.monotonic() - began:8.1f} s {spent:8.1f} s CPU",
            flush=True,
        )
        for kind, seconds in cpu.items():
            print(f"{'':<10}{seconds:8.1f} s CPU  {kind}", flush=True)
        return spent


def main() -> None:
    parser = option_parser(__doc__, rows=1_000_000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    rows, changed, expired = (
        options.rows,
        round(options.rows * CHANGED),
        round(options.rows * EXPIRED),
    )
    with (
        tempfile.TemporaryDirectory() as temporary,
        uneven_service.running("--serve", program=__file__) as url,
    ):
        bench = Bench(Path(temporary), url)
        bench.give(customers(expired))
        bench.run("before")
        until = time.time()
        time.sleep(PAUSE)
        bench.give(customers(rows))
        first = bench.run("first")
        bench.give(customers(rows, changed))
        of_changed = bench.run("changed", ttl=time.time() - until)
        print(f"{'':<10}{of_changed / first:.3f} of the first run's CPU", flush=True)
        bench.run("unchanged")


if __name__ == "__main__":
    main()
