"""Dagster's web page with the reports beside it, started together and ended together.

python -m orchestration.dagster.web.ui        # http://127.0.0.1:3000; ports: TIDEGATE_UI_PORT, TIDEGATE_REPORTS_PORT
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.process.process_guard import command_under_guard
from orchestration.common import report_server
from orchestration.common.report_server import REPORTS_PORT, REPORTS_URL
from orchestration.dagster.home import UI_URL, dagster_home

WORKSPACE = Path("workspace.yaml")  # of the project that is the current folder
UI_PORT = "TIDEGATE_UI_PORT"
GRACE = 20.0  # s; Dagster cancels the runs under way, each of which ends its Spark


def serve(
    environment: Mapping[str, str], others: Sequence[list[str]] = (), ports: Mapping[str, str] | None = None
) -> int:
    """Run report server, `others` and `dagster dev` until one ends or Ctrl-C; then end all. Returns an exit status.

    ports: those of `others`, by the variable that sets each. Nothing is started while one of the ports is taken.
    """
    reports = os.environ.get(REPORTS_PORT, "3070")
    port = os.environ.get(UI_PORT, "3000")
    for variable, number in {UI_PORT: port, REPORTS_PORT: reports, **(ports or {})}.items():
        if _is_taken(int(number)):  # dagster dev would go on without its page
            cure = f"end that, or set {variable} to a free one"
            print(f"Port {number} is taken, perhaps by another `make ui`: {cure}.", file=sys.stderr)
            return 1
    for stop in (signal.SIGINT, signal.SIGTERM):  # started in the background, a shell has them ignore SIGINT
        signal.signal(stop, signal.default_int_handler)
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(dagster_home()),
        REPORTS_PORT: reports,
        REPORTS_URL: f"http://127.0.0.1:{reports}",
        UI_URL: os.environ.get(UI_URL) or f"http://127.0.0.1:{port}",
        "PYTHONWARNINGS": "ignore:Function `dev_command` is superseded",  # advice to us, not to the user
        **environment,
    }
    dagster = Path(sys.executable).parent / "dagster"
    commands = [
        [sys.executable, "-m", report_server.__name__],
        *others,
        [str(dagster), "dev", "-w", str(WORKSPACE), "-h", "127.0.0.1", "-p", port],
    ]
    print(f"Dagster: http://127.0.0.1:{port}   reports: http://127.0.0.1:{reports}   Ctrl-C ends both.", flush=True)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes += [_start(command, environment) for command in commands]
        while all(process.poll() is None for process in processes):
            time.sleep(0.5)
    except KeyboardInterrupt:
        return 0
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    return 1


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that just ended take no port
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _start(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603
        command_under_guard(command, grace=GRACE), env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )


if __name__ == "__main__":
    sys.exit(serve({}))
