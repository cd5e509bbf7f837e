"""Dagster's own daemon, as a deployment runs it: queue, schedules, sensors, and the workers of
runs.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jobs.process.process_guard import command_under_guard

WORKSPACE = str(Path(__file__).parent.parent.parent / "workspace.yaml")
BIN = Path(sys.executable).parent


@contextlib.contextmanager
def daemon() -> Iterator[subprocess.Popen[bytes]]:
    """The daemon of DAGSTER_HOME while the body runs."""
    command = command_under_guard([str(BIN / "dagster-daemon"), "run", "-w", WORKSPACE], grace=30)
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
