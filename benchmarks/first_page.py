"""The time until Dagster's page loads: of the definitions, and of `make ui` up to the first page.

    python benchmarks/first_page.py            three times each

Every start is a new process; Dagster's folder is new each time, as on the first day. CPU is the
sum of its processes: on a machine with other work trust it and not the wall.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from command_line import option_parser
from usage import cpu_s

ROOT = Path(__file__).resolve().parent.parent
AT_MOST = 300.0  # s
HEAVY = ("pyspark", "great_expectations", "plotly", "pandas", "deltalake")
LOADING = f"""
import sys, time
times = [time.perf_counter(), time.process_time()]
import dagster
times += [time.perf_counter(), time.process_time()]
import orchestration.definitions
times += [time.perf_counter(), time.process_time()]
spent = [after - before for before, after in zip(times, times[2:])]
print(*spent, *sorted({set(HEAVY)} & set(sys.modules)))
"""
LOADED = "{ repositoriesOrError { ... on RepositoryConnection { nodes { jobs { name } } } } }"


def main() -> int:
    options = option_parser(__doc__, times=3).parse_args()
    loads = [load() for _ in range(options.times)]
    starts = [start() for _ in range(options.times)]
    print(
        f"s, each of {options.times} times, {os.cpu_count()} cores; medians, then the times of "
        "the wall one by one"
    )
    print(f"  {'':<44}{'wall':>6}{'CPU':>7}")
    tell("import dagster", [load[:2] for load in loads])
    tell("import orchestration.definitions, after it", [load[2:4] for load in loads])
    print(f"  of {', '.join(HEAVY)} it loads: {', '.join(loads[0][4:]) or 'none'}")
    tell("dagster dev: the first page", [(html, cpu) for html, _, cpu in starts])
    tell(
        "dagster dev: the definitions are there",
        [(definitions, cpu) for _, definitions, cpu in starts],
    )
    return 0


def tell(what: str, times: list[tuple]) -> None:
    wall, cpu = (
        statistics.median(float(one) for one in column) for column in zip(*times, strict=True)
    )
    print(
        f"  {what:<44}{wall:6.2f}{cpu:7.2f}   {' '.join(f'{float(one):.2f}' for one, _ in times)}"
    )


def load() -> tuple[str, ...]:
    """Return wall and CPU of loading Dagster, then of our definitions, and heavy modules.

    They load in a separate process.
    """
    done = subprocess.run(
        [sys.executable, "-c", LOADING], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return tuple(done.stdout.split())


def start() -> tuple[float, float, float]:
    """Return seconds from the start of `make ui` to its page and its jobs, and CPU until then."""
    ports = {f"TIDEGATE_{name}_PORT": free_port() for name in ("UI", "REPORTS")}
    address = f"http://127.0.0.1:{ports['TIDEGATE_UI_PORT']}"
    with tempfile.TemporaryDirectory(prefix="tidegate-first-page-") as folder:
        shutil.copy(ROOT / "workspace.yaml", folder)
        started = time.monotonic()
        page = subprocess.Popen(
            [sys.executable, "-m", "orchestration.dagster.web.ui"],
            cwd=folder, env=os.environ | ports, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            html = seconds_until(lambda: b"<html" in answer(address).lower(), page, started)
            query = json.dumps({"query": LOADED}).encode()
            definitions = seconds_until(
                lambda: has_jobs(answer(f"{address}/graphql", query)), page, started
            )
            return html, definitions, cpu_s(page.pid)
        finally:
            page.send_signal(signal.SIGINT)
            page.wait()


def seconds_until(condition, page: subprocess.Popen, started: float) -> float:
    while not condition():
        if page.poll() is not None or time.monotonic() - started > AT_MOST:
            sys.exit("Dagster's page did not come up")
        time.sleep(0.05)
    return time.monotonic() - started


def answer(url: str, body: bytes | None = None) -> bytes:
    """Empty as long as nobody answers."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=30) as response:
        return response.read()
    return b""


def has_jobs(message: bytes) -> bool:
    nodes = (
        json.loads(message or "{}").get("data", {}).get("repositoriesOrError", {}).get("nodes", [])
    )
    return any(job["name"].endswith("_nightly") for node in nodes for job in node["jobs"])


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
