"""Chains on real Spark: killed 20 times over all levels, and without a vendor that is down."""

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web

from demo.killing import kill_tree
from jobs.run.engines.engine import ENGINE
from tests.jobs.commands.chaining.conftest import DAY
from tests.jobs.commands.chaining.test_outages import DOWN, falls_silent

pytestmark = [pytest.mark.spark, pytest.mark.proof]
ROOT = Path(__file__).parents[4]
KEYS, KILLS = 240, 20  # of `a`; `b` has a half of them, and `c` a third of those
PENDING = 1.0  # s before a kill: answers that may not be stored yet
CHAIN = """
a = vendor("a", keys={"key": "key"}, returns="b_key STRING")
b = vendor("b", keys={"key": "b_key"}, returns="c_key STRING")
c = vendor("c", keys={"key": "c_key"}, returns="x STRING", when="b_status = 'ok'")
firms = table(a, b, c, ledger=Ledger("data/ledger", flush_rows=4, flush_seconds=0.1))
"""


class Killing:
    """Counts the answers to each key, and kills the run after as many new ones as are due."""

    def __init__(self, service, every):
        self.answered = []  # (vendor, key, at)
        self.kills = []  # (vendor, at)
        self.run, self.every, self.due = None, every, every
        service.answer = self._answer

    async def _answer(self, request):
        _, vendor, key = request.path.split("/", 2)
        await asyncio.sleep(0.05)
        number = int(key[1:])
        answer = {"a": {"b_key": f"b{number // 2}"}, "b": {"c_key": f"c{number // 3}"}}
        self.answered.append((vendor, key, time.monotonic()))
        if len({call[:2] for call in self.answered}) >= self.due and len(self.kills) < KILLS:
            self.due += self.every
            self.kills.append((vendor, time.monotonic()))
            kill_tree(self.run.pid)
        return web.json_response(answer.get(vendor, {"x": "X"}))


def start():
    program = [sys.executable, str(ROOT / "jobs/run/enrich_day.py")]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{Path.cwd()}"}
    environment.pop(ENGINE, None)
    return subprocess.Popen(
        [*program, "--enrichment", "chained.firms:firms", "--day", DAY], env=environment,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def write_two_files(keys):
    """Of a task each, which Spark's workers run."""
    folder = Path(f"data/raw/firms/date={DAY}")
    folder.mkdir(parents=True)
    for file in range(2):
        numbers = range(file, len(keys), 2)
        table = pa.table({"number": numbers, "key": [keys[number] for number in numbers]})
        pq.write_table(table, folder / f"part-{file}.parquet")


def test_a_chain_that_is_killed_20_times_repeats_only_the_latest_calls(firms, service):
    firms.declare(CHAIN)
    write_two_files([f"a{number % KEYS}" for number in range(2 * KEYS)])
    expected = {("a", f"a{number}") for number in range(KEYS)}
    expected |= {("b", f"b{number}") for number in range(KEYS // 2)}
    expected |= {("c", f"c{number}") for number in range(KEYS // 6)}
    killing = Killing(service, every=len(expected) // (KILLS + 1))
    killed = None
    while killed != len(killing.kills):  # the exit status of a killed run may be lost to psutil
        killed = len(killing.kills)
        killing.run = start()
        _, errors = killing.run.communicate(timeout=580)
    assert killing.run.returncode == 0, errors[-3000:]
    assert len(killing.kills) == KILLS
    assert {vendor for vendor, _ in killing.kills} == {"a", "b", "c"}
    counts = Counter(call[:2] for call in killing.answered)
    assert set(counts) == expected
    for _, moment in killing.kills:
        stored = {call[:2] for call in killing.answered if call[2] < moment - PENDING}
        assert not stored & {call[:2] for call in killing.answered if call[2] > moment}
    rows = firms.rows()
    assert len(rows) == 2 * KEYS
    assert {row["c_status"] for row in rows} == {"ok"}
    print(counts.total() - len(expected), "repeated", Counter(of for of, _ in killing.kills))


def test_an_outage_spills_to_the_next_vendor(firms, service):
    keys = [f"k{number:02}" for number in range(40)]
    firms.declare(DOWN)
    firms.vendors.answers = {(of, key): {"text": f"{of} {key}"} for of in "ab" for key in keys}
    service.answer = falls_silent(firms, "a", 20)
    write_two_files(keys)
    run = start()
    _, errors = run.communicate(timeout=580)
    assert run.returncode == 0, errors[-3000:]
    asked = [key for of, key in firms.vendors.calls if of == "a"]
    assert 20 < len(asked) <= 26
    rows = firms.rows()
    assert {row["key"] for row in rows if row["firm_vendor"] == "a"} == {*asked[:20]}
    assert firms.vendors.asked("b") == sorted({*keys} - {*asked[:20]})
    assert all(row["text"] == f"{row['firm_vendor']} {row['key']}" for row in rows)
    assert "The next vendor was asked" in firms.record().warnings[0]
