"""Airflow in an environment of its own, with a project beside it whose days it runs."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.airflow import BIN, airflow_environment
from jobs.process.process_guard import command_under_guard
from orchestration.airflow import copy_plugin
from tests.support.free_ports import free_port
from tests.support.sources import ROOT

DAG_FILE = """
from tidegate_airflow import dags_of  # Airflow's word, so that it looks in here

globals().update(dags_of({manifest!r}, env={env!r}{arguments}))
"""


def skip_without_airflow() -> None:
    if not (BIN / "airflow").exists():
        pytest.skip(
            "there is no .venv-airflow here: make airflow, make test and make proof set it up"
        )


def printed_by(script: str, home: Path, beginnings: str | tuple[str, ...]) -> list[str]:
    """The lines with these beginnings that a script prints in Airflow's environment."""
    skip_without_airflow()
    path = os.pathsep.join([str(ROOT / "orchestration" / "airflow"), str(home)])
    done = subprocess.run(
        [BIN / "python", "-c", script],
        env={**os.environ, "AIRFLOW_HOME": str(home), "PYTHONPATH": path}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    return [line for line in done.stdout.splitlines() if line.startswith(beginnings)]


class AirflowHome:
    """A folder of Airflow with the plugin, a manifest and a DAG file; SQLite."""

    def __init__(
        self, folder: Path, manifest: dict, env: dict[str, str], more: str = "", arguments: str = ""
    ) -> None:
        """more: of the DAG file, after its DAGs. arguments: of `dags_of`, as `, on_late=...`."""
        skip_without_airflow()
        self.folder = folder
        folder.mkdir()
        self.port = str(free_port())
        self.environment = {**os.environ, **airflow_environment(folder, self.port)}
        copy_plugin(folder / "plugins")
        (folder / "dags").mkdir()
        (folder / "manifest.json").write_text(json.dumps(manifest))
        text = DAG_FILE.format(manifest=str(folder / "manifest.json"), env=env, arguments=arguments)
        (folder / "dags" / "enrichments.py").write_text(text + more)
        self.airflow("db", "migrate")

    def airflow(self, *arguments: str) -> str:
        """What a command of Airflow prints."""
        return self._run(BIN / "airflow", *arguments)

    def python(self, script: Path, *arguments: str) -> str:
        """What a script of Airflow's Python prints."""
        return self._run(BIN / "python", script, *arguments)

    def _run(self, *command: str | Path) -> str:
        done = subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout

    @contextlib.contextmanager
    def standalone(self) -> Iterator[subprocess.Popen]:
        """Scheduler, API server, processor of DAG files and triggerer while the body runs."""
        command = command_under_guard([str(BIN / "airflow"), "standalone"], grace=20)
        with (self.folder / "standalone.log").open("wb") as log:
            server = subprocess.Popen(
                command,
                env=self.environment,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        try:
            yield server
        finally:
            server.terminate()
            server.wait(60)

    def rows(self, query: str, *values: str) -> list[tuple]:
        """Rows of Airflow's database."""
        with contextlib.closing(
            sqlite3.connect(self.folder / "airflow.db", timeout=60)
        ) as database:
            return database.execute(query, values).fetchall()


def manifest_of(folder: Path, package: str = "declared") -> dict:
    """As `tidegate manifest` prints it there."""
    command = [sys.executable, "-m", "tidegate", "manifest", "--package", package]
    return json.loads(
        subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    )
