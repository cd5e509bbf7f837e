"""Runs as real processes, on a real store, before a service that counts for itself: kills, stops, a
store restarted.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[3]
LATENCY = 0.1


class CountingService:
    """Answers after LATENCY seconds; knows when each call came, from whom, and how many were with
    it at once.
    """

    def __init__(self):
        self.in_flight = self.peak = 0
        self.calls = []  # when, from whom
        self.ready = threading.Event()
        self.port = 0
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self.ready.wait()

    async def _serve(self):
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=200)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        await self._ended.wait()
        server.close()
        await asyncio.sleep(3 * LATENCY)  # those that are with it are answered

    async def _answer(self, reader, writer):
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            name = (await reader.readline()).decode().strip()
            self.calls.append((time.monotonic(), name))
            await asyncio.sleep(LATENCY)
        finally:
            self.in_flight -= 1
            writer.close()

    def rate(self, since, until):
        return sum(since <= when < until for when, _ in self.calls) / (until - since)

    def close(self):
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()


@contextmanager
def runs(url, service, count, *, limit=16):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, Path(__file__).parent / "run_process.py", url, str(service.port)]
    started = [
        subprocess.Popen(
            [*command, f"run-{number}", str(limit), "4"], env=environment, stdout=subprocess.PIPE
        )
        for number in range(count)
    ]
    try:
        for process in started:
            process.stdout.readline()
        yield started
    finally:
        for process in started:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture
def counting():
    service = CountingService()
    yield service
    service.close()


def store_url(server):
    return f"postgresql://{server.user}:{server.password}@{server.host}:{server.port}/{server.new_database()}"


@pytest.fixture(params=["file", "postgresql"])
def url(request, tmp_path):
    if request.param == "file":
        return f"file://{tmp_path}/limits.sqlite"
    return store_url(request.getfixturevalue("postgres"))


@pytest.mark.proof
@pytest.mark.parametrize("url", ["file", "postgresql"], indirect=True)
def test_three_runs_at_once_share_a_limit_and_a_pause(url, counting):
    with runs(url, counting, 3) as processes:
        for _ in range(5):  # on a busy machine the third run begins late
            time.sleep(2.0)
            begun = time.monotonic()
            time.sleep(2.0)
            each = [
                sum(name == f"run-{n}" for when, name in counting.calls if when > begun)
                for n in range(3)
            ]
            if sum(each) ** 2 / (3 * sum(count * count for count in each)) >= 0.95:
                break
        processes[0].send_signal(signal.SIGUSR1)
        paused = time.monotonic()
        time.sleep(6.8)
    assert counting.peak == 16
    assert sum(each) ** 2 / (3 * sum(count * count for count in each)) >= 0.95
    after = sorted(when - paused for when, _ in counting.calls if when > paused + 1.0)
    assert after[0] >= 5.0, "from one second later no call of any run starts until the pause ends"
    assert after[1] - after[0] >= LATENCY, "then one"
    assert len(after) > 16, "then all"


@pytest.mark.proof
def test_killed_and_stopped_holders_never_let_the_limit_be_exceeded(url, counting):
    with runs(url, counting, 4) as processes:
        time.sleep(3)
        processes[0].kill()
        killed = time.monotonic()
        time.sleep(15)
        processes[1].send_signal(signal.SIGSTOP)
        time.sleep(30)
        processes[1].send_signal(signal.SIGCONT)
        time.sleep(4)
    assert counting.peak == 16
    assert counting.rate(killed + 13, killed + 15) >= 0.8 * 16 / LATENCY, (
        "full rate again after the time to live"
    )
    assert counting.rate(killed + 35, killed + 45) >= 0.8 * 16 / LATENCY


@pytest.mark.proof
def test_a_store_killed_and_restarted_twice_never_lets_the_limit_be_exceeded(counting):
    from tests.support.postgres_server import PostgresServer

    with PostgresServer.running() as server, runs(store_url(server), counting, 3):
        time.sleep(3)
        for seconds in (2, 20):
            server.kill()
            time.sleep(seconds)
            server.start_again()
            time.sleep(6)
        end = time.monotonic()
    assert counting.peak == 16
    assert counting.rate(end - 2, end) >= 0.8 * 16 / LATENCY
