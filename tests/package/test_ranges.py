"""The oldest and the newest of what we need, out of the package registry: the first day of a new project on each."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.proof, pytest.mark.ranges, pytest.mark.process, pytest.mark.spark]
UV = str(Path(sys.executable).parent / "uv")
EXTRAS = ("spark", "dagster", "postgres", "team")


def requirements(wheel):
    """What the wheel and its extras ask for, as it says itself: only what is named is taken as old as may be."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = re.findall(r"^Requires-Dist: (.*)$", archive.read(name).decode(), re.MULTILINE)
    for line in lines:
        what, _, condition = line.partition(";")
        extra = re.search(r"extra == ['\"](\w+)", condition)
        if (extra is None or extra[1] in EXTRAS) and not what.startswith("tidegate["):
            yield what.strip()


@pytest.mark.parametrize("end", ["lowest-direct", "highest"])
def test_a_new_project_runs_and_dagster_loads_it_at_both_ends_of_the_ranges(wheel, tmp_path, end):
    home = tmp_path / "environment"
    python = home / "bin" / "python"
    extras = f"{wheel}[{','.join(EXTRAS)}]"
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, home], check=True)
    install = [UV, "pip", "install", "-q", "--python", python, "--resolution", end, extras, *requirements(wheel)]
    subprocess.run(install, check=True)
    variables = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH")}
    steps = (
        ([python, "-m", "tidegate", "init", "shop"], tmp_path),
        (["make", "test", f"PYTHON={python}"], tmp_path / "shop"),
        ([python, "-m", "dagster", "definitions", "validate", "-w", "workspace.yaml"], tmp_path / "shop"),
    )
    for command, folder in steps:
        done = subprocess.run(
            command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=400
        )
        assert done.returncode == 0, done.stdout + done.stderr
