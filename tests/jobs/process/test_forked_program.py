"""A program that is a fork of its starter keeps what a program in a process of its own promises."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STARTER = """
import os, sys, time
from pathlib import Path
from jobs.process.forked_program import can_fork, forked

def program(arguments):
    print("program", os.environ["NAME"], *arguments, flush=True)
    if arguments[0] == "kill":
        os.kill(os.getpid(), 9)
    if arguments[0] == "wait":
        Path("child").write_text(str(os.getpid()))
        time.sleep(60)
    return 3

assert can_fork()
with open("log", "wb") as log:
    with forked(program, sys.argv[1:2], output=log, environment={"NAME": "of a day"}, grace=1.0) as wait:
        if sys.argv[2:] == ["raise"]:
            while not Path("child").exists():
                assert wait(0.01) is None
            raise KeyboardInterrupt
        while (code := wait(1.0)) is None:
            pass
sys.exit(code)
"""


def start(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", STARTER, *arguments],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def child_of(folder):
    while not (folder / "child").exists() or not (folder / "child").read_text():
        time.sleep(0.01)
    return Path("/proc", (folder / "child").read_text())


def has_ended(process):
    for _ in range(1000):
        stat = process / "stat"
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.01)
    return False


pytestmark = pytest.mark.process


def test_the_starter_gets_its_status_and_its_log(tmp_path):
    assert start(tmp_path, "end").wait() == 3
    assert (tmp_path / "log").read_text() == "program of a day end\n"


def test_a_killed_program_has_the_status_of_its_signal(tmp_path):
    assert start(tmp_path, "kill").wait() == 128 + signal.SIGKILL


def test_it_is_ended_when_the_starter_is_interrupted(tmp_path):
    starter = start(tmp_path, "wait", "raise")
    assert starter.wait() != 0
    assert has_ended(child_of(tmp_path))


def test_it_ends_when_its_starter_is_killed(tmp_path):
    starter = start(tmp_path, "wait")
    child = child_of(tmp_path)
    starter.kill()
    starter.wait()
    assert has_ended(child)


def test_arrow_works_without_the_import_of_pandas(tmp_path):
    asked = """
import sys
from jobs.process.forked_program import spare_pandas
spare_pandas()
import pyarrow as pa
import pyarrow.compute as pc
assert pc.equal(pa.array(["a", None]), "a").to_pylist() == [True, None]
import pyarrow.dataset
assert "pandas" not in sys.modules
assert pa.table({"n": [1, 2]}).to_pandas()["n"].sum() == 3
"""
    subprocess.run(
        [sys.executable, "-c", asked], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True
    )
