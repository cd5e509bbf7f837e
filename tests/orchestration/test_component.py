"""An enrichment in `defs.yaml`: scaffolded, checked and listed by Dagster's own commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dagster import load_from_defs_folder
from dagster.components.core.component_tree import ComponentTreeException

from jobs.declare.finding.loading import load
from jobs.errors import DeclarationError
from tests.support.documents import blocks
from tests.support.sources import ROOT

DG = str(Path(sys.executable).parent / "dg")
PROJECT = """
[project]
name = "shop"
version = "0.1.0"
[tool.dg]
directory_type = "project"
[tool.dg.project]
root_module = "shop_defs"
code_location_target_module = "shop_defs.definitions"
"""
DEFINITIONS = """
from pathlib import Path
from dagster import definitions, load_from_defs_folder

@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
(ORDERS,) = blocks("docs/dagster.md", "yaml", "Declared in YAML")


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "shop_defs" / "defs").mkdir(parents=True)
    (tmp_path / "shop_defs" / "__init__.py").touch()
    (tmp_path / "shop_defs" / "definitions.py").write_text(DEFINITIONS)
    return tmp_path


def dg(project, *arguments):
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(project), str(ROOT)])}
    done = subprocess.run(
        [DG, *arguments], cwd=project, env=variables, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def checked_and_listed(project):
    """The listing of a project that Dagster's check finds nothing to say about."""
    status, said = dg(project, "check", "defs")
    assert status == 0, said
    assert "Warning" not in said
    status, said = dg(project, "list", "defs", "--json")
    assert status == 0, said
    return said


@pytest.mark.proof
@pytest.mark.process
def test_a_scaffolded_enrichment_passes_the_check_of_dagster_and_is_listed(project):
    status, said = dg(project, "scaffold", "defs", "tidegate.dagster.Enrichment", "orders_rated")
    assert status == 0, said
    said = checked_and_listed(project)
    names = (
        "orders_rated",
        "raw/orders",
        "orders_rated:every_row_once",
        "orders_rated_nightly",
        "tidegate_plan",
    )
    assert [name for name in names if f'"{name}"' not in said] == []


def build(project, monkeypatch, **files):
    """The definitions of a project with these `defs.yaml` files, in this process."""
    monkeypatch.syspath_prepend(str(project))
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop_defs"]:
        monkeypatch.delitem(sys.modules, name)
    for name, text in files.items():
        file = project / "shop_defs" / "defs" / name / "defs.yaml"
        file.parent.mkdir()
        file.write_text(text)
    return load_from_defs_folder(path_within_project=project / "shop_defs").get_repository_def()


def table(name):
    service = "{name: credit, url: 'http://x', max_concurrency: 5}"
    return ORDERS.replace("service: credit", f"service: {service} ").replace("orders_rated", name)


def test_a_component_type_in_quotes_or_with_a_comment_is_accepted(project, monkeypatch):
    files = {
        "a": table("a").replace("tidegate.dagster.Enrichment", '"tidegate.dagster.Enrichment"'),
        "b": table("b").replace("dagster.Enrichment", "dagster.Enrichment  # every night"),
    }
    assert {"a_nightly", "b_nightly"} < set(build(project, monkeypatch, **files).job_names)


def test_post_processing_of_a_component_is_refused(project, monkeypatch):
    post = "\npost_processing: {assets: [{attributes: {tags: {team: shop}}}]}\n"
    with pytest.raises(ComponentTreeException) as refused:
        build(project, monkeypatch, a=table("a") + post)
    assert "a/defs.yaml: post_processing cannot be used: " in str(refused.value.__cause__)


def test_two_files_with_a_summary_of_one_name_are_refused_in_a_sentence(project, monkeypatch):
    summary = "\n  summaries: [{name: daily, sql: SELECT count(*) AS n FROM day}]\n"
    other = table("b").replace("data/published", "data/elsewhere")
    with pytest.raises(ComponentTreeException) as refused:
        build(project, monkeypatch, a=table("a") + summary, b=other + summary)
    assert "both have the asset daily; rename the summary" in str(refused.value.__cause__)


def test_the_spark_program_loads_yaml_declarations_with_a_shared_service_file(
    project,
):
    file = project / "shop_defs" / "defs" / "orders" / "defs.yaml"
    file.parent.mkdir()
    file.write_text(ORDERS)
    with pytest.raises(
        DeclarationError,
        match=(
            r"services/credit\.yaml cannot be read: No such "
            r"file"
        ),
    ):
        load("shop_defs/defs/orders/defs.yaml:attributes")
    (project / "services").mkdir()
    (project / "services" / "credit.yaml").write_text(
        "url: {env: CREDIT_URL}\nmax_concurrency: 5\n"
    )
    (lookup,) = load("shop_defs/defs/orders/defs.yaml:attributes").lookups
    assert (lookup.service.name, lookup.timeout, lookup.concurrency) == ("credit", 5.0, 5)
    file.write_text(ORDERS.replace("timeout", "time_out"))
    with pytest.raises(
        DeclarationError,
        match=(
            r"defs.yaml: lookups\[0\].time_out: HttpLookup has "
            r"no such field"
        ),
    ):
        load("shop_defs/defs/orders/defs.yaml:attributes")
