"""Runs of one machine, as real processes without any setting, meet: one limit holds for all of
them.
"""

import asyncio
import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from jobs.limits.store_url import LIMITS_URL, STATE_HOME, limits_url, open_store
from tests.jobs.limits.rated_run import LIMIT
from tests.support.documents import blocks

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[3]


class Vendor:
    """Works on each request for 0.1 s, whether the client is still there or not, and counts those
    with it.
    """

    def __init__(self):
        self.with_it = self.peak = self.answered = 0
        self.busy = set()

    async def __call__(self, _request):
        work = asyncio.create_task(self._work())
        self.busy.add(work)
        work.add_done_callback(self.busy.discard)
        await asyncio.shield(work)
        return web.json_response({"first_x": 1})

    async def _work(self):
        self.with_it += 1
        self.peak = max(self.peak, self.with_it)
        await asyncio.sleep(0.1)
        self.with_it -= 1
        self.answered += 1


@contextmanager
def runs(service, count, *, rows, state):
    environment = {name: value for name, value in os.environ.items() if name != LIMITS_URL}
    environment |= {"PYTHONPATH": str(ROOT), STATE_HOME: str(state)}
    command = [
        sys.executable,
        Path(__file__).parent / "rated_run.py",
        service.url,
        "2",
        str(rows),
        "plain",
    ]
    started = [subprocess.Popen(command, env=environment, cwd=state) for _ in range(count)]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_two_runs_at_once_use_and_keep_a_single_limit(service, tmp_path):
    service.answer = vendor = Vendor()
    with runs(service, 2, rows=80, state=tmp_path) as started:
        assert [process.wait(60) for process in started] == [0, 0]
    assert vendor.answered == 320
    assert LIMIT - 1 <= vendor.peak <= LIMIT


@pytest.mark.proof
@pytest.mark.parametrize("count", [2, 3])
def test_a_killed_run_leaves_its_share_to_other_runs_within_the_limit(
    service, tmp_path, wait_for, count
):
    service.answer = vendor = Vendor()
    with runs(service, count, rows=100_000, state=tmp_path) as started:
        wait_for(lambda: vendor.answered > 200, seconds=60)
        started[0].kill()
        time.sleep(1)  # its calls end at the vendor, and its lease holds their slots
        assert vendor.peak <= LIMIT
        vendor.peak = 0
        wait_for(lambda: vendor.peak == LIMIT, seconds=60)  # the others use what it held
        time.sleep(5)
    assert vendor.peak <= LIMIT


def test_the_file_of_limits_is_in_the_state_folder_and_off_disables_it():
    assert limits_url({STATE_HOME: "/a/state"}, str) == "file:///a/state/tidegate/limits.sqlite"
    assert (
        limits_url({"XDG": ""}, str) == f"file://{Path.home()}/.local/state/tidegate/limits.sqlite"
    )
    found = []
    for line in blocks("docs/limits.md", "sh")[0].splitlines():
        _, setting = shlex.split(line, comments=True)
        url = limits_url(dict([setting.split("=", 1)]))
        found.append(url and type(open_store(url)).__name__)
    assert found == ["PostgresStore", "FileStore", ""], "as the page says"


def test_machines_that_share_a_home_folder_have_separate_files_of_limits():
    one, again, other = (
        limits_url({STATE_HOME: "/a/state"}, lambda name=name: name) for name in ("a", "a", "b")
    )
    assert one == again != other
    assert re.fullmatch(r"file:///a/state/tidegate/limits-[0-9a-f]{12}\.sqlite", one)
