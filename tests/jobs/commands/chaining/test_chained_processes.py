"""Chains in processes that are killed, or that work at once: no key of a level is paid twice."""

import asyncio
import multiprocessing
import os
import random
import signal
import time
from collections import Counter

import pytest
from aiohttp import web

from jobs.run.engines.engine import ENGINE, LOCAL
from tests.jobs.commands.chaining import chained_process

CHAIN = """
a = vendor("a", keys={"key": "key"}, returns="b_key STRING")
b = vendor("b", keys={"key": "b_key"}, returns="c_key STRING")
c = vendor("c", keys={"key": "c_key"}, returns="x STRING", when="b_status = 'ok'")
firms = table(a, b, c)
"""
ROWS, KEYS = 60, 24  # of `a`; `b` has a half of them, and `c` a third of those
DAYS = ["2026-01-05", "2026-01-06"]
PENDING = 0.5  # s before a kill: answers that may not be stored yet

pytestmark = pytest.mark.process


class Counted:
    """Answers each vendor after a while; a request may kill the process that sent it."""

    def __init__(self, service):
        self.answered = []  # (vendor, key, at)
        self.requests, self.kill_at, self.victim, self.killed = 0, None, None, None
        self.is_dead = False
        service.answer = self._answer

    async def _answer(self, request):
        _, vendor, key = request.path.split("/", 2)
        self.requests += 1
        if self.kill_at in (self.requests, vendor):
            self.kill_at, self.killed = None, (vendor, time.monotonic())
            os.kill(self.victim.pid, signal.SIGKILL)
            self.is_dead = True
        if self.is_dead:
            return web.Response(status=503)
        await asyncio.sleep(0.005)
        number = int(key[1:])
        answer = {"a": {"b_key": f"b{number // 2}"}, "b": {"c_key": f"c{number // 3}"}}
        self.answered.append((vendor, key, time.monotonic()))
        return web.json_response(answer.get(vendor, {"x": "X"}))

    @property
    def counts(self):
        return Counter((vendor, key) for vendor, key, _ in self.answered)


@pytest.fixture
def counted(firms, service, tmp_path):
    firms.declare(CHAIN)
    for day in DAYS:
        firms.write_input({"key": [f"a{number % KEYS}" for number in range(ROWS)]}, day=day)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([chained_process.__name__])
    found = Counted(service)
    environment = {ENGINE: LOCAL, "VENDOR_URL": service.url}

    def start(day, run_id):
        arguments = (tmp_path, environment, day, run_id)
        found.victim = processes.Process(target=chained_process.run, args=arguments)
        found.victim.start()
        found.is_dead = False
        return found.victim

    found.start = start
    return found


def all_keys():
    a = [("a", f"a{number}") for number in range(KEYS)]
    b = [("b", f"b{number}") for number in range(KEYS // 2)]
    return {*a, *b, *(("c", f"c{number}") for number in range(KEYS // 6))}


@pytest.mark.proof
@pytest.mark.parametrize("at", ["b", "c", *range(18)])
def test_a_killed_run_repeats_no_call_of_finished_levels(counted, at):
    counted.kill_at = at if isinstance(at, str) else random.Random(at).randint(1, len(all_keys()))
    killed = counted.start(DAYS[0], "killed")
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    vendor, moment = counted.killed
    before = counted.answered[:]
    again = counted.start(DAYS[0], "again")
    again.join(60)
    assert again.exitcode == 0
    assert set(counted.counts) == all_keys()
    repeated = {call for call, count in counted.counts.items() if count > 1}
    just_now = {(of, key) for of, key, when in before if of == vendor and when > moment - PENDING}
    assert repeated <= just_now
    assert max(counted.counts.values()) <= 2


def test_two_runs_at_once_call_each_key_of_each_level_once(counted):
    first, second = [counted.start(day, f"run-{day}") for day in DAYS]
    for process in (first, second):
        process.join(90)
        assert process.exitcode == 0
    assert counted.counts == Counter(all_keys())
