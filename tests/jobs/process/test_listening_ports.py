"""What a run listens on, and what it does when another user throws bytes at it: a real Spark
program, real sockets.
"""

import asyncio
import contextlib
import ipaddress
import json
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from jobs.process.spark_submit import SparkSubmit
from jobs.tables.records import run_records

pytestmark = pytest.mark.spark
DAY = "2026-11-01"
KEYS = 240
DECLARATION = """
import atexit
from pathlib import Path

from tidegate import Enrichment, HttpLookup, Input, Output, Service

score = HttpLookup(
    name="score", service=Service(name="s", url="{url}", max_concurrency=10), request="GET /score/{{k}}",
    keys={{"k": "k"}}, returns="twice BIGINT", timeout=300.0,
)
scored = Enrichment(name="scored", input=Input(path="raw", row_id=["k"]), lookups=[score], output=Output(path="out"))


@atexit.register
def tell_the_secret():  # for the test: nothing else may
    from jobs.run.engines import spark_coordinator

    if spark_coordinator._coordinator is not None:
        Path("secret").write_text(spark_coordinator._coordinator._secret)
"""
# random and crafted bytes, and connections that say nothing and stay; a program, which becomes
# another user if it may
THROWER = """
import contextlib, encodings.idna, json, os, random, socket, sys, time
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65_534)
    os.setuid(65_534)
ports, times = json.loads(sys.argv[1]), int(sys.argv[2])
chance = random.Random(times)
crafted = [
    b"[" * 60_000 + b"\\n", b"{}\\n", b"\\n" * 50, b"\\xff" * 5000, b"GET / HTTP/1.1\\r\\n\\r\\n", b"",
    b"0" * 64 + b"\\n{}\\n",
    b'{"unit": "rows", "partition": 0, "attempt": 9}', b'{"partition": 0, "stage": 0, "task": 0, "frame": "x"}\\n',
    b"\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x15", b"\\x7f" * 40, b"x" * 64, b"auth\\n",
]
silent = []
for port in ports:
    for _ in range(3):
        with contextlib.suppress(OSError):
            silent.append(socket.create_connection(("127.0.0.1", port), 0.5))
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(times):
    said = chance.choice([*crafted, chance.randbytes(chance.randrange(300))])
    port = ports[number % len(ports)]
    with contextlib.suppress(OSError):
        datagrams.sendto(said[:1400], ("127.0.0.1", port))
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5) as line:
        line.sendall(said)
print("thrown", flush=True)
time.sleep(600)  # the silent ones stay
"""


def processes_of(mark):
    """Guard, JVM, driver and Python workers of one run."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("TIDEGATE_TEST") == mark:
                yield process


def listening(mark):
    """Process, kind and address of every socket that waits for others."""
    found = []
    for process in processes_of(mark):
        with contextlib.suppress(psutil.Error):
            for connection in process.net_connections("inet"):
                kind = "udp" if connection.type == socket.SOCK_DGRAM else "tcp"
                if not connection.raddr and (
                    kind == "udp" or connection.status == psutil.CONN_LISTEN
                ):
                    ip, port = connection.laddr
                    found.append((process.name(), kind, ip.removeprefix("::ffff:"), port))
    return found


@contextlib.contextmanager
def thrown(ports, times):
    """Has another user throw so many datagrams and lines at the ports; he keeps silent connections
    until the end.
    """
    program = [sys.executable, "-I", "-S", "-c", THROWER, json.dumps(ports), str(times)]
    thrower = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    try:
        assert thrower.stdout.readline() == "thrown\n"
        yield
    finally:
        thrower.kill()
        thrower.communicate()


class Day:
    """A day of keys in two files, whose service holds back its answers from the middle on until
    `go` is set.
    """

    def __init__(self, service):
        self.service = service
        self.code = None
        self.go = threading.Event()
        service.answer = self._answer

    async def _answer(self, request):
        key = int(request.path.rpartition("/")[2])
        if len(self.service.log) > KEYS // 2:
            await asyncio.to_thread(self.go.wait, 300)
        return web.json_response({"twice": 2 * key})

    @property
    def is_in_the_middle(self):
        assert self.code is None, Path("spark.log").read_text()[-3000:]
        return len(self.service.log) > KEYS // 2

    def start(self, mark, **fields):
        environment = {
            "TIDEGATE_TEST": mark,
            "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path]),
        }
        self._thread = threading.Thread(
            target=self._run, args=(SparkSubmit(**fields, environment=environment),)
        )
        self._thread.start()

    def _run(self, submit):
        log = Path("spark.log")
        self.code = submit.run("scoring:scored", days=[DAY], run_id="r", log=log)

    def end(self):
        self.go.set()
        self._thread.join(300)
        return self.code


@pytest.fixture
def day(tmp_path, monkeypatch, service):
    monkeypatch.chdir(tmp_path)
    Path("scoring.py").write_text(DECLARATION.format(url=service.url))
    folder = Path(f"raw/date={DAY}")
    folder.mkdir(parents=True)
    for file in range(2):
        pq.write_table(
            pa.table({"k": pa.array(range(file, KEYS, 2), pa.int64())}),
            folder / f"part-{file}.parquet",
        )
    made = Day(service)
    yield made
    made.end()


@pytest.mark.proof
@pytest.mark.parametrize("times", [100, 10_000])
def test_a_run_listens_only_on_loopback_and_survives_bytes_of_strangers(
    day, wait_for, service, times
):
    mark = f"ports-{os.getpid()}-{times}"
    Path("events").mkdir()
    day.start(
        mark,
        conf={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": Path("events").absolute().as_uri(),
        },
    )
    wait_for(lambda: day.is_in_the_middle, 120)
    found = listening(mark)
    print(*found, sep="\n")
    assert [
        port for port in found if port[1] == "udp" or not ipaddress.ip_address(port[2]).is_loopback
    ] == []
    words = [" ".join(process.cmdline()) for process in processes_of(mark)]
    with thrown([port for *_, port in found], times):
        assert day.end() == 0, Path("spark.log").read_text()[-3000:]
    assert set(Counter(service.log).values()) == {1}
    (record,) = run_records.load("scored", DAY)
    rows = [row for file in record.facts.files for row in pq.ParquetFile(file).read().to_pylist()]
    assert Counter((row["k"], row["twice"], row["score_status"]) for row in rows) == {
        (key, 2 * key, "ok"): 1 for key in range(KEYS)
    }
    assert record.figures.lookups[0].requests.sent == KEYS
    secret = Path("secret").read_text()
    kept = [path for path in Path.cwd().rglob("*") if path.is_file() and path.name != "secret"]
    assert any(path.is_relative_to(Path("events").absolute()) for path in kept)
    assert [path for path in kept if secret.encode() in path.read_bytes()] == []
    assert not any(secret in word for word in words)
