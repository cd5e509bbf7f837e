"""Whoever dies first, nothing of a guarded command stays."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.process.process_guard import command_under_guard

# A command as Spark is one: it starts a child in its own group and one in another group, and deaf
# ones ignore SIGTERM.
FAMILY = """
import os, signal, subprocess, sys
if "deaf" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
children = [subprocess.Popen(sleep), subprocess.Popen(sleep, process_group=0)]
print(os.getpid(), *(child.pid for child in children), flush=True)
signal.pause()
"""
# A step as Dagster runs it: starts the guard and waits.
STEP = """
import subprocess, sys
from jobs.process.process_guard import command_under_guard
guard = subprocess.Popen(command_under_guard(sys.argv[1:], grace=5), start_new_session=True)
guard.wait()
"""

pytestmark = pytest.mark.process


def family(*arguments: str) -> list[str]:
    return [sys.executable, "-c", FAMILY, *arguments]


def start(command: list[str]) -> tuple[subprocess.Popen[str], list[int]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        return process, [int(pid) for pid in process.stdout.readline().split()]


def living(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(pid)
    return found


def all_gone(pids: list[int], *, within: float = 20.0) -> bool:
    deadline = time.monotonic() + within
    while living(pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def kill_and_expect_the_end(guard: subprocess.Popen[str], pids: list[int]) -> None:
    """Kill the guard with -9, and test that its command ends."""
    guard.kill()
    guard.wait()
    try:
        # the command itself; what it leaves behind in turn dies with Spark's own means
        assert all_gone(pids[:1])
    finally:
        for pid in living(pids):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("status", [0, 2, 3])
def test_the_guard_ends_with_the_status_of_its_command(status):
    guarded = command_under_guard([sys.executable, "-c", f"raise SystemExit({status})"], grace=5)
    assert subprocess.run(guarded, check=False).returncode == status


def test_the_status_shows_that_the_command_was_killed():
    guarded = command_under_guard(
        [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], grace=5
    )
    assert subprocess.run(guarded, check=False).returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize("arguments", [(), ("deaf",)], ids=["listens", "ignores SIGTERM"])
def test_sigterm_ends_the_command_and_all_its_processes(arguments):
    guard, pids = start(command_under_guard(family(*arguments), grace=0.5 if arguments else 10.0))
    guard.terminate()
    status = guard.wait()
    assert living(pids) == []
    assert status == 128 + (signal.SIGKILL if arguments else signal.SIGTERM)


def test_kill_9_of_the_starter_ends_the_command():
    step, pids = start([sys.executable, "-c", STEP, *family()])
    step.kill()
    step.wait()
    assert all_gone(pids)


def test_kill_9_of_the_guard_ends_the_command():
    guard, pids = start(command_under_guard([sys.executable, "-c", FAMILY], grace=5))
    kill_and_expect_the_end(guard, pids)


def test_a_command_whose_starter_ignores_sigterm_ends_with_its_guard():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        guard, pids = start(command_under_guard(family(), grace=5))
    finally:
        signal.signal(signal.SIGTERM, before)
    kill_and_expect_the_end(guard, pids)


def test_a_guard_whose_starter_is_gone_starts_no_command(tmp_path):
    touched = tmp_path / "touched"
    guarded = command_under_guard(["touch", str(touched)], grace=5)
    # as if the starter had died before the guard looked
    guarded[guarded.index(str(os.getpid()))] = "1"
    assert subprocess.run(guarded, check=False).returncode == 128 + signal.SIGTERM
    assert not touched.exists()
