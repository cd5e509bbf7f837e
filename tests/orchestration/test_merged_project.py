"""Enrichments merged into a project that Dagster has already: its names, resources and executor
stay its own.
"""

import datetime as dt
import importlib
import sys
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from dagster._core.workspace.autodiscovery import loadable_targets_from_loaded_module

from jobs.run.engines.engine import ENGINE, LOCAL
from orchestration.dagster.declared import enrichments_in
from orchestration.dagster.home import dagster_home
from orchestration.dagster.resources import spark_program
from tests.support.check_partitions import checks_of_days
from tests.support.documents import blocks
from tidegate.dagster import Names, SparkProgram, definitions_for

# of what Dagster itself uses here
pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
DAY = "2026-11-19"
ORDERS = """
from tidegate import Enrichment, Env, HttpLookup, Input, Output, Service

rating = HttpLookup(
    name="rating", service=Service(name="credit", url=Env("CREDIT_URL"), max_concurrency=5),
    request="GET /{customer}", keys={"customer": "customer_id"}, returns="grade STRING", timeout=5.0,
)
orders = Enrichment(
    name="orders_rated", input=Input(path="lake/orders", row_id=["order_id"], asset_key=["lake", "orders"]),
    lookups=[rating], output=Output(path="lake/orders_rated"), start="2026-11-01", publish_by="06:30",
)
"""
OWN_NAMES = (
    "alerts",
    "starts_days",
    "reports_days",
    "refresh_answers",
    "maintenance",
    "plan",
    "mark_answers",
)


class OwnNames(Names):
    """As a project of several teams would have them."""

    def table(self, enrichment):
        return dg.AssetKey(["lake", enrichment.name])

    def beside(self, enrichment, name):
        return dg.AssetKey(["lake", name])

    def group(self, enrichment):
        return "credit"

    def job(self, enrichment):
        return f"credit_{enrichment.name}"


@dg.asset(key=["lake", "orders"], partitions_def=dg.DailyPartitionsDefinition("2026-10-01"))
def orders(context: dg.AssetExecutionContext) -> None:
    folder = Path("lake/orders") / f"date={context.partition_key}"
    folder.mkdir(parents=True)
    pq.write_table(
        pa.table({"order_id": [1, 2, 3], "customer_id": ["a", "b", "a"]}), folder / "part-0.parquet"
    )


def own_definitions():
    """Jobs, ops and sensors with names that Tidegate could have had, a resource `spark`, an
    executor.
    """

    def job(name):
        @dg.op(name=f"{name}_op", required_resource_keys={"spark"})
        def op(context) -> None:
            assert context.resources.spark == "the project's own"

        @dg.job(name=name)
        def own() -> None:
            op()

        return own

    jobs = [job(name) for name in (*OWN_NAMES, "orders_rated_nightly")]
    sensors = [dg.SensorDefinition(name=name, evaluation_fn=lambda _: None) for name in OWN_NAMES]
    return dg.Definitions(
        assets=[orders], jobs=jobs, sensors=sensors, resources={"spark": "the project's own"},
        executor=dg.in_process_executor,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("merged")
    (root / "shop_enrichments").mkdir()
    (root / "shop_enrichments" / "__init__.py").touch()
    (root / "shop_enrichments" / "orders.py").write_text(ORDERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("DAGSTER_HOME", str(dagster_home()))
        patch.syspath_prepend(str(root))
        yield root
    for name in (
        "shop_enrichments.orders",
        "shop_enrichments",
        "our_enrichments.orders",
        "our_enrichments",
        "my_enrichments.orders",
        "my_enrichments",
        "my_definitions",
    ):
        sys.modules.pop(name, None)


@pytest.fixture
def merged(folder):
    return dg.Definitions.merge(
        own_definitions(), definitions_for("shop_enrichments", names=OwnNames())
    )


def test_the_project_keeps_its_executor_resource_jobs_and_sensors(merged):
    dg.Definitions.validate_loadable(merged)
    repository = merged.get_repository_def()
    assert merged.executor is dg.in_process_executor
    assert repository.get_job("plan").execute_in_process().success
    ours = {job.name for job in repository.get_all_jobs()} - {
        *OWN_NAMES,
        "orders_rated_nightly",
        "__ASSET_JOB",
    }
    assert ours == {
        *(
            "credit_orders_rated",
            "tidegate_plan",
            "tidegate_refresh_answers",
            "tidegate_maintenance",
            "tidegate_stream",
        ),
    }
    sensors = {sensor.name for sensor in repository.sensor_defs} - {
        *OWN_NAMES,
        "default_automation_condition_sensor",
    }
    assert all(name.startswith("tidegate_") for name in sensors)


def test_the_enriched_table_follows_the_projects_asset_with_its_keys_and_group(merged):
    graph = merged.get_repository_def().asset_graph
    table = graph.get(dg.AssetKey(["lake", "orders_rated"]))
    assert table.parent_keys == {dg.AssetKey(["lake", "orders"])}
    assert (table.group_name, graph.get(dg.AssetKey(["lake", "orders"])).is_materializable) == (
        "credit",
        True,
    )
    assert table.code_version
    lineage = table.metadata["dagster/column_lineage"].deps_by_column["grade"]
    assert [(source.asset_key.path, source.column_name) for source in lineage] == [
        (["lake", "orders"], "customer_id")
    ]


def test_a_day_is_requested_only_after_the_projects_asset_was_updated(merged):
    instance, table = dg.DagsterInstance.ephemeral(), dg.AssetKey(["lake", "orders_rated"])
    now = dt.datetime(2026, 11, 20, 3, tzinfo=dt.UTC)
    first = dg.evaluate_automation_conditions(merged, instance, evaluation_time=now)
    assert first.get_requested_partitions(table) == set()
    instance.report_runless_asset_event(dg.AssetMaterialization(["lake", "orders"], partition=DAY))
    second = dg.evaluate_automation_conditions(
        merged, instance, cursor=first.cursor, evaluation_time=now
    )
    assert second.get_requested_partitions(table) == {DAY}


@pytest.mark.proof
@pytest.mark.process
def test_a_day_runs_through_both_assets_with_green_checks(merged, folder, service, monkeypatch):
    async def grade(request):
        return web.json_response({"grade": "A"})

    service.answer = grade
    monkeypatch.setenv("CREDIT_URL", service.url)
    monkeypatch.setenv(ENGINE, LOCAL)
    table = dg.AssetKey(["lake", "orders_rated"])
    with dg.DagsterInstance.get() as instance:
        assert dg.materialize([orders], instance=instance, partition_key=DAY).success
        job = merged.resolve_job_def("credit_orders_rated")
        done = job.execute_in_process(instance=instance, partition_key=DAY)
        assert done.success
        (found,) = instance.fetch_materializations(
            dg.AssetRecordsFilter(table, asset_partitions=[DAY]), limit=1
        ).records
        assert found.asset_materialization.tags["dagster/data_version"].endswith("-0")
        (declared,) = enrichments_in("shop_enrichments", OwnNames())
        assert checks_of_days(instance, declared, "SUCCEEDED")["every_row_once"] == {DAY}
        assert not checks_of_days(instance, declared, "FAILED")


class Elsewhere(SparkProgram):
    """Starts the Spark program in another place."""

    def submit(self):
        raise NotImplementedError


def test_runs_of_dagster_use_the_engine_of_the_environment_or_project(
    monkeypatch,
):
    monkeypatch.setenv(ENGINE, LOCAL)
    for program in (spark_program(), SparkProgram(engine=LOCAL)):
        assert program.submit().engine == LOCAL


def test_the_command_that_starts_spark_can_be_replaced(folder):
    ours = definitions_for("shop_enrichments", spark=Elsewhere())
    assert isinstance(ours.resources["tidegate_spark"], Elsewhere)


def test_the_merge_of_the_page_loads_as_printed(folder, monkeypatch):
    (block,) = blocks("docs/dagster.md", "python")
    (folder / "our_enrichments").mkdir()
    (folder / "our_enrichments" / "__init__.py").touch()
    (folder / "our_enrichments" / "orders.py").write_text(ORDERS)
    (folder / "merged_as_printed.py").write_text(block)
    module = importlib.import_module("merged_as_printed")
    (target,) = loadable_targets_from_loaded_module(module)
    defs = target.target_definition
    dg.Definitions.validate_loadable(defs)
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert keys == {"lake/orders", "lake/orders_rated", "lake/orders_rated__dead_letters"}


def test_the_definitions_of_the_page_load_as_printed(folder):
    (block,) = blocks("docs/deploying.md", "python", "Enrichments in a repository of your own")
    (folder / "my_enrichments").mkdir()
    (folder / "my_enrichments" / "__init__.py").touch()
    (folder / "my_enrichments" / "orders.py").write_text(ORDERS)
    (folder / "my_definitions.py").write_text(block)
    defs = importlib.import_module("my_definitions").defs
    dg.Definitions.validate_loadable(defs)
    assert "orders_rated_nightly" in {job.name for job in defs.resolve_all_job_defs()}
