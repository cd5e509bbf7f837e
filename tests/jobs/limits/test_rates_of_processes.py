"""Rates of runs as real processes, before an HTTP server that counts sliding windows for itself."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from jobs.limits.store_url import LIMITS_URL
from tests.jobs.limits.rated_run import LIMIT, PER_MINUTE, PER_SECOND, TOKENS
from tests.jobs.limits.test_rates import most_in_a_window

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[3]


class Geo:
    """Counts requests where they arrive, tokens where they are spent, and what is with it
    at once.
    """

    def __init__(self):
        self.draw, self.arrivals, self.tokens, self.slowest = random.Random(1), [], [], 0.0

    async def __call__(self, request):
        self.arrivals.append((arrived := time.monotonic(), 1))
        asked = await request.json()
        self.slowest = max(self.slowest, arrived - asked["sent_at"])  # the clock of the machine
        key = asked["k"]
        tokens = self.draw.randint(30, TOKENS)
        self.tokens.append((time.monotonic(), tokens))
        await asyncio.sleep(self.draw.uniform(0.05, 0.2))
        return web.json_response({"x": key, "tokens": tokens})


@contextmanager
def runs(service, count, *, tasks, rows, url=None):
    environment = os.environ | {"PYTHONPATH": str(ROOT), LIMITS_URL: url or "off"}
    command = [
        sys.executable,
        Path(__file__).parent / "rated_run.py",
        service.url,
        str(tasks),
        str(rows),
    ]
    started = [subprocess.Popen(command, env=environment) for _ in range(count)]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.fixture
def geo(service):
    service.answer = Geo()
    return service


@pytest.mark.proof
def test_two_runs_with_a_store_use_and_keep_a_single_rate(geo, tmp_path):
    with runs(geo, 2, tasks=2, rows=50, url=f"file://{tmp_path}/limits.sqlite") as started:
        assert [process.wait(60) for process in started] == [0, 0]
    arrivals = [when for when, _ in geo.answer.arrivals]
    assert len(arrivals) == 200
    assert most_in_a_window(geo.answer.arrivals, 1.0) <= PER_SECOND
    assert geo.highest_in_flight <= LIMIT
    assert arrivals[-1] - arrivals[0] < 12, "200 calls take 5 s at the full rate"


@pytest.mark.proof
def test_the_tasks_of_one_run_keep_a_rate_without_a_store(geo):
    with runs(geo, 1, tasks=4, rows=40) as (process,):
        assert process.wait(60) == 0
    arrivals = [when for when, _ in geo.answer.arrivals]
    assert len(arrivals) == 160
    assert most_in_a_window(geo.answer.arrivals, 1.0) <= PER_SECOND
    assert arrivals[-1] - arrivals[0] < 9, "160 calls take 4 s at the full rate"


class Throttling(Geo):
    """Refuses its 60th request, with a pause of 3 s."""

    def __init__(self):
        super().__init__()
        self.refused_at = None

    async def __call__(self, request):
        if self.refused_at is None and len(self.arrivals) == 60:
            self.refused_at = time.monotonic()
            return web.Response(status=429, headers={"Retry-After": "3"})
        return await super().__call__(request)


@pytest.mark.proof
@pytest.mark.parametrize("store", [True, False])
def test_a_refusal_pauses_all_tasks_of_all_runs_and_then_one_call_probes(
    service, tmp_path, wait_for, store
):
    service.answer = geo = Throttling()
    count, url = (3, f"file://{tmp_path}/limits.sqlite") if store else (1, None)
    with runs(service, count, tasks=4, rows=1000, url=url):
        wait_for(
            lambda: geo.refused_at is not None and time.monotonic() > geo.refused_at + 5.0,
            seconds=60,
        )
    since = sorted(when - geo.refused_at for when, _ in geo.arrivals if when > geo.refused_at + 1.0)
    assert since[0] >= 3.0, "none from 1 s after it until it ends"
    assert since[1] >= since[0] + 0.05, "one, until its answer"
    assert sum(when < since[1] + 1.0 for when in since) > 10, "then all"


@pytest.mark.proof
@pytest.mark.parametrize("trouble", [False, True])
def test_three_runs_of_four_tasks_keep_three_rates_for_minutes(geo, tmp_path, trouble):
    with runs(geo, 3, tasks=4, rows=100_000, url=f"file://{tmp_path}/limits.sqlite") as started:
        while not geo.answer.arrivals:
            time.sleep(0.1)
        begun = time.monotonic()
        if trouble:
            time.sleep(20)
            started[0].kill()
            time.sleep(20)
            started[1].send_signal(signal.SIGSTOP)
            time.sleep(30)
            started[1].send_signal(signal.SIGCONT)
        time.sleep(max(0.0, begun + 180 - time.monotonic()))
        ended = time.monotonic()
    used = sum(tokens for when, tokens in geo.answer.tokens if when < ended)
    print(f"{len(geo.answer.arrivals)} requests, {used} tokens in {ended - begun:.0f} s")
    print(f"the slowest request was on its way for {geo.answer.slowest:.2f} s")
    assert geo.highest_in_flight <= LIMIT
    assert most_in_a_window(geo.answer.arrivals, 1.0) <= PER_SECOND
    assert most_in_a_window(geo.answer.tokens, 60.0) <= PER_MINUTE
    if not trouble:
        assert used >= 0.95 * PER_MINUTE * (ended - begun) / 60
