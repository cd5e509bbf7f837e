"""The import rules of the house, and the rules of naming: what may know what."""

import re
import subprocess
import sys

import pytest

from tests.support.sources import PACKAGES, ROOT, imports, modules

# package -> what it may import of the project; a module's name means that module only
MAY_IMPORT = {
    "asyncio_core": set(),
    "jobs": {"asyncio_core"},
    "data_quality": {"jobs.schema", "jobs.wording", "jobs.arrow_values"}
    # files in a folder or on a store
    | {f"jobs.storage.{name}" for name in ("durable", "new_files", "parquet_files", "urls")},
    "orchestration": {"jobs", "enrichments", "data_quality"},
    "enrichments": {"tidegate", "jobs"},
    "tidegate": {"asyncio_core", "jobs", "data_quality", "orchestration"},
    "demo": {"tidegate", "asyncio_core", "jobs", "orchestration", "enrichments"},
}
# what executors never get, and what loads must not wait for
NEVER_IN_JOBS = {"dagster", "dagster_pipes", "great_expectations", "plotly", "demo"}
DRAWERS = {"util", "utils", "helper", "helpers", "common", "misc", "manager"}


def allowed(name, rules):
    return any(name == rule or name.startswith(f"{rule}.") for rule in rules)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_packages_below_it(package):
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules(package)
        for line, name in imports(path)
        if name.split(".")[0] in PACKAGES
        and name.split(".")[0] != package
        and not allowed(name, MAY_IMPORT[package])
    ]
    assert wrong == []


def test_the_core_imports_the_standard_library_only():
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules("asyncio_core")
        for line, name in imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names | {"asyncio_core"}
    ]
    assert wrong == []


def test_the_jobs_know_nothing_of_dagster_or_great_expectations():
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules("jobs")
        for line, name in imports(path)
        if name.split(".")[0] in NEVER_IN_JOBS
    ]
    assert wrong == []


def test_code_shared_by_orchestrators_imports_neither_dagster_nor_airflow():
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in (ROOT / "orchestration" / "common").glob("*.py")
        for line, name in imports(path)
        if {"dagster", "airflow"} & set(name.split(".")[:2])
    ]
    assert wrong == []


def test_the_airflow_plugin_imports_airflow_and_the_standard_library_only():
    """SQLAlchemy comes with Airflow, whose deadlines are asked with it."""
    files = sorted((ROOT / "orchestration" / "airflow").glob("*.py"))
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in files
        for line, name in imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names | {"airflow", "sqlalchemy"}
    ]
    assert wrong == []
    assert "tidegate_airflow.py" in {path.name for path in files}


def test_the_import_test_finds_a_planted_violation(tmp_path):
    planted = tmp_path / "reaching_up.py"
    planted.write_text("from orchestration.dagster.assets.enriched import build\n")
    assert [name for _, name in imports(planted) if not allowed(name, MAY_IMPORT["jobs"])] == [
        "orchestration.dagster.assets.enriched.build"
    ]


def test_orchestration_does_not_defer_its_annotations():
    """Dagster reads them at run time: a deferred one breaks loading."""
    wrong = [
        str(path)
        for path in modules("orchestration")
        if "from __future__ import annotations" in path.read_text()
    ]
    assert wrong == []


def test_no_file_has_a_vague_name_such_as_util_or_helper():
    wrong = [
        str(path.relative_to(ROOT))
        for package in (*PACKAGES, "tests", "benchmarks")
        for path in (ROOT / package).rglob("*.py")
        if DRAWERS & set(path.stem.split("_"))
    ]
    assert wrong == []


HEAVY = ("pyspark", "great_expectations", "dagster", "pandas", "plotly")


@pytest.mark.process
def test_a_declaration_loads_without_spark_great_expectations_or_dagster():
    code = f"""
import sys
from data_quality import catalogue
from enrichments.flights import flights
catalogue.checks(flights.facts())
sys.exit(str([name for name in {HEAVY} if name in sys.modules]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.stderr.strip() == "[]"


def test_each_use_of_a_private_name_of_a_library_is_listed_in_its_adr():
    table = (ROOT / "docs/adr/0023-insides-of-others.md").read_text()
    reaching = re.compile(
        r"noqa: SLF001|sys\.meta_path|^ *from \w+\._\w|from pyspark import daemon"
        r"|^class \w+\(.*(TCPConnector|DeltaTable|EventLoop)\)"
    )
    ours = ("._value", "._spark = None")  # private names of this project
    found = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in modules(package)
        for line in path.read_text().splitlines()
        if reaching.search(line) and not any(name in line for name in ours)
    }
    assert found, "the pattern finds nothing"
    assert sorted(name for name in found if name not in table) == []
