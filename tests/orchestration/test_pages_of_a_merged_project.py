"""Enrichments in a project that Dagster has already, in the browser: lineage, checks, a mode for
several days.
"""

import os

import dagster as dg
import pytest
from aiohttp import web

from orchestration.dagster.declared import enrichments_in
from orchestration.dagster.home import dagster_home
from tests.orchestration.test_backfill import ended_runs
from tests.orchestration.test_merged_project import ORDERS, OwnNames
from tests.orchestration.test_pages_of_runs import finished
from tests.support.check_partitions import checks_of_days
from tests.support.pages import keep, materialize, shows, wait_for, web_page
from tests.support.sources import ROOT

pytestmark = pytest.mark.ui

DAYS = ("2026-11-18", "2026-11-19")
TABLE = "/assets/lake/orders_rated"
DEFINITIONS = """
import dagster as dg
from tests.orchestration.test_merged_project import OwnNames, own_definitions
from tidegate.dagster import definitions_for

defs = dg.Definitions.merge(own_definitions(), definitions_for("shop_enrichments", names=OwnNames()))
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory, credit):
    root = tmp_path_factory.mktemp("shop")
    (root / "shop_enrichments").mkdir()
    (root / "shop_enrichments" / "__init__.py").touch()
    (root / "shop_enrichments" / "orders.py").write_text(ORDERS)
    (root / "shop_definitions.py").write_text(DEFINITIONS)
    workspace = root / "shop.yaml"
    workspace.write_text("load_from:\n  - python_module: shop_definitions\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("DAGSTER_HOME", str(dagster_home()))
        patch.setenv("CREDIT_URL", credit.url)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(root), str(ROOT)]))
        patch.syspath_prepend(str(root))
        with web_page("orchestration.dagster.web.ui", root, workspace) as address:
            yield address


@pytest.fixture(scope="module")
def credit():
    from tests.support.scripted_service import ScriptedService

    service = ScriptedService()

    async def grade(_request):
        return web.json_response({"grade": "A"})

    service.answer = grade
    service.start()
    yield service
    service.stop()


class Project:
    """What the helpers ask of a project."""

    def __init__(self, instance):
        self.instance = instance


def test_two_days_run_through_the_projects_asset_and_the_enriched_asset_in_a_chosen_mode(
    page, credit
):
    days = f"[{DAYS[0]}...{DAYS[1]}]"
    with dg.DagsterInstance.get() as instance:
        project = Project(instance)
        page.goto("/assets/lake/orders")
        materialize(page, days)
        wait_for(lambda: len(ended_runs(project)) == 2)
        page.goto("/locations/shop_definitions/jobs/credit_orders_rated")
        materialize(page, days)
        wait_for(lambda: len(ended_runs(project)) == 3)
        calls = list(credit.log)
        page.goto("/locations/shop_definitions/jobs/credit_orders_rated")
        materialize(page, days, "remap", "lake__orders_rated")
        wait_for(lambda: finished(project, "remap"))
        assert [run.is_success for run in ended_runs(project)] == [True] * 4
        (declared,) = enrichments_in("shop_enrichments", OwnNames())
        assert checks_of_days(instance, declared, "SUCCEEDED")["every_row_once"] == set(DAYS)
        assert not checks_of_days(instance, declared, "FAILED")
        (remapped,) = finished(project, "remap")
    assert sorted(calls) == ["/a", "/b"]  # of both days: the ledger has them for the second
    assert credit.log == calls

    page.goto(f"/runs/{remapped.run_id}")
    shows(page, "Success", "credit_orders_rated")
    page.get_by_role("button", name="View tags and config").click()
    shows(page, "tidegate/mode")
    keep(page, "merged_run")
    page.goto(f"{TABLE}?view=lineage&lineageScope=upstream")
    shows(page, "orders_rated", "orders")
    keep(page, "merged_lineage")
    page.goto(f"{TABLE}?view=checks&checkDetail=every_row_once")
    shows(page, "Execution history")
    page.get_by_role("tab", name="Partitions").last.click()
    shows(page, "Passed (2)", "Execution Failed (0)", "Failed (0)")
    keep(page, "merged_checks")
    page.goto(TABLE)
    shows(page, "Row count", "orders_rated")
    keep(page, "merged_table")
