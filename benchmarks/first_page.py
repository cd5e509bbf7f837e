"""How long until Dagster's page is there: loading the definitions, and `make ui` from its start to the first page.

    python benchmarks/first_page.py            three times each; half a minute on 2 quiet cores

Every start is a new process; Dagster's folder is new each time, as on the first day.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AT_MOST = 300.0  # s
HEAVY = ("pyspark", "great_expectations", "plotly", "pandas", "deltalake")
LOADING = f"""
import sys, time
started = time.perf_counter()
import dagster
dagster_itself = time.perf_counter()
import orchestration.definitions
print(dagster_itself - started, time.perf_counter() - dagster_itself, *sorted({set(HEAVY)} & set(sys.modules)))
"""
LOADED = "{ repositoriesOrError { ... on RepositoryConnection { nodes { jobs { name } } } } }"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    loads = [load() for _ in range(options.times)]
    starts = [start() for _ in range(options.times)]
    print(f"seconds, each of {options.times} times, {os.cpu_count()} cores; the median last")
    tell("import dagster", [dagster for dagster, _, _ in loads])
    tell("import orchestration.definitions, after it", [ours for _, ours, _ in loads])
    print(f"  of {', '.join(HEAVY)} it loads: {', '.join(loads[0][2]) or 'none'}")
    tell("dagster dev: the first page", [page for page, _ in starts])
    tell("dagster dev: the definitions are there", [definitions for _, definitions in starts])
    return 0


def tell(what: str, seconds: list[float]) -> None:
    print(f"  {what:<44}{' '.join(f'{one:6.2f}' for one in seconds)}   {statistics.median(seconds):6.2f}")


def load() -> tuple[float, float, list[str]]:
    """Seconds to load Dagster, and our definitions after it, in a process of their own; what heavy came with them."""
    done = subprocess.run([sys.executable, "-c", LOADING], cwd=ROOT, check=True, capture_output=True, text=True)
    dagster, ours, *heavy = done.stdout.split()
    return float(dagster), float(ours), heavy


def start() -> tuple[float, float]:
    """Seconds from the start of `make ui`'s program to the HTML of its page, and to its jobs over GraphQL."""
    ports = {f"TIDEGATE_{name}_PORT": free_port() for name in ("UI", "REPORTS")}
    address = f"http://127.0.0.1:{ports['TIDEGATE_UI_PORT']}"
    with tempfile.TemporaryDirectory(prefix="tidegate-first-page-") as folder:
        started = time.monotonic()
        page = subprocess.Popen(
            [sys.executable, "-m", "orchestration.ui"],
            cwd=folder, env=os.environ | ports, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            html = seconds_until(lambda: b"<html" in answer(address).lower(), page, started)
            query = json.dumps({"query": LOADED}).encode()
            return html, seconds_until(lambda: has_jobs(answer(f"{address}/graphql", query)), page, started)
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


def has_jobs(said: bytes) -> bool:
    nodes = json.loads(said or "{}").get("data", {}).get("repositoriesOrError", {}).get("nodes", [])
    return any(job["name"].endswith("_nightly") for node in nodes for job in node["jobs"])


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
