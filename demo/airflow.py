"""Serves Airflow on the demo's data, with the weather service and the reports, until Ctrl-C.

Run `make airflow` or `python -m demo.airflow`; TIDEGATE_AIRFLOW_PORT, TIDEGATE_REPORTS_PORT and
TIDEGATE_WEATHER_PORT set the ports.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from demo.surroundings import DATA, prepare, weather_program
from demo.surroundings import environment as services
from demo.ui import WEATHER_PORT
from jobs.declare.finding.discovery import discover
from orchestration.airflow import copy_plugin
from orchestration.common import report_server
from orchestration.common.manifest import manifest
from orchestration.common.report_server import REPORTS_PORT, REPORTS_URL
from orchestration.common.serving import serve_together

AIRFLOW_PORT = "TIDEGATE_AIRFLOW_PORT"
BIN = Path(__file__).resolve().parents[1] / ".venv-airflow" / "bin"
SPARKS = "1"  # that run at once
GRACE = 20.0  # s; an ended task ends its Spark
DAG_FILE = '''"""The demo's enrichments, as Airflow DAGs."""

from tidegate_airflow import dags_of

globals().update(dags_of({manifest!r}))
'''


def main() -> int:
    weather, reports, port = (
        os.environ.get(name, default)
        for name, default in (
            (WEATHER_PORT, "8088"),
            (REPORTS_PORT, "3070"),
            (AIRFLOW_PORT, "8080"),
        )
    )
    print(prepare(None), flush=True)  # the whole year, so that any day can be run
    settings = {
        **services(f"http://127.0.0.1:{weather}"),
        **airflow_environment(DATA / "airflow", port),
        REPORTS_PORT: reports,
        REPORTS_URL: f"http://127.0.0.1:{reports}",
    }
    prepare_airflow(settings)
    commands = [
        [sys.executable, "-m", report_server.PROGRAM],
        weather_program(weather),
        [str(BIN / "airflow"), "standalone"],
    ]
    return serve_together(
        commands,
        settings,
        ports={AIRFLOW_PORT: port, REPORTS_PORT: reports, WEATHER_PORT: weather},
        called="make airflow",
        grace=GRACE,
        greeting=(
            f"Airflow: http://127.0.0.1:{port}   reports: http://127.0.0.1:{reports}   Ctrl-C "
            "ends both.\nA day: the DAG flights_enriched, its switch, Trigger, day 2013-01-13."
        ),
    )


def airflow_environment(home: Path, port: str) -> dict[str, str]:
    """Return the environment of an Airflow for a single person on this machine: its page on
    loopback, without a login.
    """
    return {
        "AIRFLOW_HOME": str(home.resolve()),
        # its commands start `airflow` by name
        "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": port,
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


def prepare_airflow(settings: Mapping[str, str], package: str = "enrichments") -> None:
    home = Path(settings["AIRFLOW_HOME"])
    written = home / "manifest.json"
    copy_plugin(home / "plugins")
    written.write_text(json.dumps(manifest(package, discover(package)), indent=2), encoding="utf-8")
    (home / "dags").mkdir(exist_ok=True)
    (home / "dags" / "enrichments.py").write_text(
        DAG_FILE.format(manifest=str(written)), encoding="utf-8"
    )
    environment = {**os.environ, **settings}
    for command in (["db", "migrate"], ["pools", "set", "spark", SPARKS, "Sparks at once"]):
        subprocess.run(  # noqa: S603
            [BIN / "airflow", *command], env=environment, check=True, stdout=subprocess.DEVNULL
        )


if __name__ == "__main__":
    sys.exit(main())
