"""A small day on the local engine: 932 flights by `tidegate run`, and six rows by `tidegate try`.

python benchmarks/local_day.py --runs 5

Each figure stands beside what the service itself takes (the sum of its latencies over the calls in
flight), and beside a Python that only imports what a day needs: this ratio holds on a busy machine
too.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from command_line import option_parser
from usage import medians, run_measured

from demo import data, surroundings, weather_service
from enrichments.flights import weather

ROOT = Path(__file__).resolve().parents[1]
DAY = "2013-01-10"
IMPORTS = [
    sys.executable, "-c",
    "import aiohttp, sqlalchemy, deltalake, jinja2, pyarrow.parquet, pyarrow.compute, tidegate",
]  # fmt: skip
TIDEGATE = [sys.executable, "-m", "tidegate"]
RUN = [*TIDEGATE, "run", "flights_enriched", "--day", DAY, "--engine", "local"]
TRY = [*TIDEGATE, "try", "flights_enriched", "--day", DAY, "--rows", "6"]
TRIM = 'keys={"origin": "trim(upper(origin))", "moment"'


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
                figures["first night"].append(run_measured(RUN, cwd=folder, env=own)[:2])
                calls = [call for call in service.calls() if call.t_start >= began]
                leasts.append(
                    sum(call.t_end - call.t_start for call in calls)
                    / weather.service.max_concurrency
                )
                figures["all known"].append(run_measured(RUN, cwd=folder, env=own)[:2])
                figures["try, six rows"].append(run_measured(TRY, cwd=folder, env=own)[:2])
                figures["imports alone"].append(run_measured(IMPORTS, cwd=folder, env=own)[:2])
    least, alone = statistics.median(leasts), medians(figures["imports alone"])[1]
    print(
        f"{'':16}{'wall s':>8}{'- service':>11}{'CPU s':>8}{'/ imports':>11}   medians of "
        f"{options.runs}"
    )
    for name, runs in figures.items():
        wall, cpu = medians(runs)
        spent = wall - least if name == "first night" else wall
        print(f"{name:16}{wall:8.2f}{spent:11.2f}{cpu:8.2f}{cpu / alone:11.2f}")


if __name__ == "__main__":
    main()
