"""`tidegate init`: the project runs and tests itself where nothing but the wheel is installed."""

import os
import subprocess

import pytest

from tests.support.sources import TEMPLATE

pytestmark = pytest.mark.process


def run(*command, folder):
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYSPARK_PYTHON", "PYTHONPATH", "TIDEGATE_LIMITS_URL")  # ours
    }
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=variables
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "engine", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.proof])]
)
def test_a_new_project_publishes_its_first_day_with_any_module_name(
    environments, tmp_path, monkeypatch, engine
):
    monkeypatch.setenv("TIDEGATE_ENGINE", engine)
    python = environments("spark").python
    status, said, _ = run(python, "-m", "tidegate", "init", "shop", folder=tmp_path)
    assert (status, said) == (
        0,
        (
            "shop is a project with one enrichment, enrichments/orders.py. Next: cd shop && make "
            "demo\n"
        ),
    )
    for name in ("data_quality", "orchestration", "commands", "tools"):
        (tmp_path / "shop" / f"{name}.py").write_text(
            "raise SystemExit('the package took a module of the project')\n"
        )
    (tmp_path / "shop" / "jobs.py").write_text("RETURNS = 'score INT, grade STRING'\n")
    orders = tmp_path / "shop" / "enrichments" / "orders.py"
    orders.write_text(
        orders.read_text()
        .replace('"score INT, grade STRING"', "jobs.RETURNS")
        .replace("from t", "import jobs\nfrom t", 1)
    )
    status, said, why = run("make", "demo", f"PYTHON={python}", folder=tmp_path / "shop")
    assert status == 0, why
    assert "published   200 rows, 40 calls" in said
    reports = tmp_path / "shop" / "data" / "reports" / "orders_rated"
    assert (reports / "index.html").exists()
    (day,) = reports.glob("*-*/index.html")
    assert "Log of the run" in day.read_text()
    assert "Dagster" not in day.read_text()  # which is not installed there


@pytest.mark.proof
@pytest.mark.spark
@pytest.mark.parametrize("kind", [(), ("--with", "model")])
def test_the_tests_of_a_new_project_pass_and_dagster_loads_it(environments, tmp_path, kind):
    python = environments("dagster").python
    run(python, "-m", "tidegate", "init", *kind, "shop", folder=tmp_path)
    status, _, why = run("make", "test", f"PYTHON={python}", folder=tmp_path / "shop")
    assert status == 0, why
    status, _, why = run(
        python,
        "-m",
        "dagster",
        "definitions",
        "validate",
        "-w",
        "workspace.yaml",
        folder=tmp_path / "shop",
    )
    assert status == 0, why


@pytest.mark.proof
def test_a_folder_with_files_is_left_alone(environments, tmp_path):
    (tmp_path / "mine").write_text("kept")
    status, _, why = run(environments().python, "-m", "tidegate", "init", ".", folder=tmp_path)
    assert (status, why) == (
        2,
        ". is not empty; name an empty folder, or a path that does not exist.\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_make_reports_a_missing_tidegate(tmp_path):
    subprocess.run(["cp", "-r", f"{TEMPLATE}/.", tmp_path], check=True)
    python = tmp_path / "no-python"
    status, _, why = run("make", "demo", f"PYTHON={python}", folder=tmp_path)
    assert status != 0
    assert (
        f"{python} has no tidegate: activate the environment that has, or pip install -r "
        "requirements.txt"
    ) in why


def test_the_readme_of_a_new_project_has_at_most_twenty_lines_and_real_targets():
    lines = (TEMPLATE / "README.md").read_text().splitlines()
    assert len([line for line in lines if line]) <= 20
    makefile = (TEMPLATE / "Makefile").read_text()
    assert all(f"\n{target}: ready ##" in makefile for target in ("demo", "test", "ui"))
    assert not (TEMPLATE / ".gitignore").exists()
