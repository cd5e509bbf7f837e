"""Enrichments in a project that Dagster has already: its own commands know them, and its pages show a day of both."""

import os

import pytest
from aiohttp import web

from tests.orchestration.test_component import PROJECT, dg
from tests.orchestration.test_merged_project import DAY, ORDERS
from tests.support.pages import keep, materialize, shows, wait_for, web_page
from tests.support.sources import ROOT

TABLE = "/assets/lake/orders_rated"
DEFINITIONS = """
import dagster as dg
from tests.orchestration.test_merged_project import OwnNames, own_definitions
from tidegate.dagster import definitions_for

defs = dg.Definitions.merge(own_definitions(), definitions_for("shop_enrichments", names=OwnNames()))
"""
WORKSPACE = "load_from: [{python_module: {module_name: shop_defs.definitions, location_name: shop}}]\n"


@pytest.fixture
def merged_project(tmp_path, monkeypatch):
    """The project of test_merged_project as files."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "workspace.yaml").write_text(WORKSPACE)
    for package, module, text in (("shop_enrichments", "orders", ORDERS), ("shop_defs", "definitions", DEFINITIONS)):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        (tmp_path / package / f"{module}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    return tmp_path


@pytest.mark.process
def test_dagsters_own_commands_check_and_list_the_merged_project_without_a_warning(merged_project):
    status, said = dg(merged_project, "check", "defs")
    assert status == 0, said
    assert "Warning" not in said
    status, said = dg(merged_project, "list", "defs", "--json")
    assert status == 0, said
    names = ("lake/orders", "lake/orders_rated", "lake/orders_rated:every_row_once", "credit_orders_rated", "alerts")
    assert [name for name in names if f'"{name}"' not in said] == []


@pytest.fixture
def address(merged_project, service, monkeypatch):
    async def grade(_request):
        return web.json_response({"grade": "A"})

    service.answer = grade
    monkeypatch.setenv("CREDIT_URL", service.url)
    with web_page("orchestration.dagster.web.ui", merged_project, merged_project / "workspace.yaml") as address:
        yield address


@pytest.mark.ui
def test_a_day_of_both_assets_is_materialized_at_a_click_with_green_checks_and_lineage(page, merged_project):
    page.goto("/assets/lake/orders?view=partitions")
    materialize(page, DAY)
    wait_for((merged_project / "lake" / "orders" / f"date={DAY}" / "part-0.parquet").exists)
    page.goto(f"{TABLE}?view=partitions")
    materialize(page, DAY)
    page.goto(f"{TABLE}?view=partitions&partition={DAY}")
    shows(page, "Materialized (1)", "published_version")
    keep(page, "merged_partitions")
    page.goto(f"{TABLE}?view=checks&checkDetail=every_row_once")
    page.get_by_role("tab", name="Partitions").last.click()
    shows(page, "Passed (1)", "Failed (0)")
    keep(page, "merged_checks")
    page.goto(f"{TABLE}?view=lineage")
    shows(page, "orders_rated", "orders")
    keep(page, "merged_lineage")
