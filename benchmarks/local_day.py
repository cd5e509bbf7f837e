"""A small day on the local engine: 932 flights by `tidegate run`, and six rows by `tidegate try`.

python benchmarks/local_day.py --runs 5

Each figure stands beside what the service itself takes (the sum of its latencies over the calls in
flight), and beside a Python that only imports what a day needs: this ratio holds on a busy machine
too.
"""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from command_line import option_parser

from demo import data, surroundings, weather_service
from enrichments.flights import weather

ROOT = Path(__file__).resolve().parents[1]
DAY = "2013-01-10"
IMPORTS = (
    "import aiohttp, sqlalchemy, deltalake, jinja2, pyarrow.parquet, pyarrow.compute, tidegate"
)
RUN = ["-m", "tidegate", "run", "flights_enriched", "--day", DAY, "--engine", "local"]
TRY = ["-m", "tidegate", "try", "flights_enriched", "--day", DAY, "--rows", "6"]
TRIM = 'keys={"origin": "trim(upper(origin))", "moment"'


def measured(arguments, folder, environment):
    """Seconds of wall and of CPU."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, cpu


def main():
    options = option_parser(__doc__, runs=5).parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        data.prepare(folder / "data", [date.fromisoformat(DAY)])
        (folder / "enrichments").mkdir()
        declared = (ROOT / "enrichments" / "flights.py").read_text()
        (folder / "enrichments" / "flights.py").write_text(
            declared.replace('keys={"origin": "origin", "moment"', TRIM)
        )
        with weather_service.running(
            folder / "data" / "demo", folder / "calls.jsonl", faults="none"
        ) as service:
            environment = (
                os.environ | surroundings.environment(service.url) | {"PYTHONPATH": str(ROOT)}
            )
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            figures: dict[str, list[tuple[float, float]]] = {
                "first night": [],
                "all known": [],
                "try, six rows": [],
                "imports alone": [],
            }
            leasts = []
            for number in range(options.runs):
                shutil.rmtree(folder / "data" / "ledger", ignore_errors=True)
                began = time.time()
                own = environment | {
                    "FLIGHTS_TABLE": str(folder / f"published-{number}" / "flights")
                }
                figures["first night"].append(measured(RUN, folder, own))
                calls = [call for call in service.calls() if call.t_start >= began]
                leasts.append(
                    sum(call.t_end - call.t_start for call in calls)
                    / weather.service.max_concurrency
                )
                figures["all known"].append(measured(RUN, folder, own))
                figures["try, six rows"].append(measured(TRY, folder, own))
                figures["imports alone"].append(measured(["-c", IMPORTS], folder, own))
    least, alone = (
        statistics.median(leasts),
        statistics.median(cpu for _, cpu in figures["imports alone"]),
    )
    print(
        f"{'':16}{'wall s':>8}{'- service':>11}{'CPU s':>8}{'/ imports':>11}   medians of "
        f"{options.runs}"
    )
    for name, runs in figures.items():
        wall, cpu = (statistics.median(column) for column in zip(*runs, strict=True))
        own = wall - least if name == "first night" else wall
        print(f"{name:16}{wall:8.2f}{own:11.2f}{cpu:8.2f}{cpu / alone:11.2f}")


if __name__ == "__main__":
    main()
