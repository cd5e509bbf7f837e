"""Everything in Dagster follows from the declarations."""

import dataclasses
import datetime as dt
import json
import subprocess
import sys

import dagster as dg
import pytest
import yaml
from dagster._core.asset_graph_view.asset_graph_view import AssetGraphView
from dagster._core.definitions.events import AssetKeyPartitionKey

from data_quality import catalogue
from enrichments.flights import flights
from jobs.errors import DeclarationError
from orchestration.dagster.assets.columns import lineage
from orchestration.dagster.assets.enriched import enriched_asset
from orchestration.dagster.declared import Declared, enrichments_in
from orchestration.dagster.definitions import build_definitions
from orchestration.dagster.names import Names
from orchestration.dagster.next_steps import run_again
from orchestration.dagster.resources import SparkProgram
from orchestration.dagster.schedules import PUBLISHED_IN_TIME
from orchestration.dagster.sensors.freshness import freshness_check
from orchestration.definitions import defs
from tests.support.documents import blocks
from tidegate import Input, Summary

HEAVY = ("pyspark", "great_expectations", "plotly", "pandas", "deltalake")
REPOSITORY = defs.get_repository_def()


@pytest.mark.process
def test_loading_imports_no_spark_no_great_expectations_no_plotting_and_opens_no_connection():
    program = f"""
import sys
def offline(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"): raise SystemExit(f"a connection to {{arguments}}")
sys.addaudithook(offline)
from orchestration.definitions import defs
defs.get_repository_def().get_all_jobs()
sys.exit(", ".join(name for name in {HEAVY} if name in sys.modules) or 0)
"""
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (loaded.returncode, loaded.stderr.strip()) == (0, "")


LEFT_OUT = {
    "publish_by": None,
    "schedule": None,
    "ledger": None,
    "event_time": None,
    "summaries": (),
    "owners": (),
}


@pytest.mark.parametrize("field", LEFT_OUT)
def test_dagster_loads_an_enrichment_without_any_optional_field(field):
    missing = dataclasses.replace(flights, **{field: LEFT_OUT[field]})
    repository = build_definitions(
        [Declared("a:lacking", missing)], SparkProgram()
    ).get_repository_def()
    assert repository.get_job("flights_enriched_nightly")
    repository.load_all_definitions()


def test_assets_jobs_and_schedules_of_the_flights_are_as_expected():
    graph = REPOSITORY.asset_graph
    assets = {
        key.to_user_string(): (
            sorted(parent.to_user_string() for parent in graph.get(key).parent_keys),
            graph.get(key).group_name,
            sorted(graph.get(key).owners),
            sorted(graph.get(key).kinds),
            graph.get(key).is_materializable,
        )
        for key in graph.get_all_asset_keys()
    }
    ours = ["team:data-eng"]
    assert assets == {
        "raw/flights": ([], "flights_enriched", ours, ["parquet"], False),
        "flights_enriched": (["raw/flights"], "flights_enriched", ours, ["delta", "spark"], True),
        "flights_enriched__dead_letters": (
            ["flights_enriched"],
            "flights_enriched",
            ours,
            ["delta"],
            False,
        ),
        "delays_by_weather": (["flights_enriched"], "flights_enriched", ours, ["delta"], True),
    }
    jobs = {
        job.name: sorted(key.to_user_string() for key in job.asset_layer.selected_asset_keys)
        for job in REPOSITORY.get_all_jobs()
        if not job.name.startswith("__")  # Dagster's own
    }
    without_day = (
        "tidegate_stream",
        "tidegate_plan",
        "tidegate_refresh_answers",
        "tidegate_maintenance",
    )
    assert jobs == {"flights_enriched_nightly": ["delays_by_weather", "flights_enriched"]} | {
        name: [] for name in without_day
    }
    schedules = [
        (s.name, s.cron_schedule, s.execution_timezone, s.job_name)
        for s in REPOSITORY.schedule_defs
    ]
    assert schedules == [
        ("flights_enriched_nightly_schedule", "15 2 * * *", "UTC", "flights_enriched_nightly")
    ]


def test_each_check_is_a_check_of_the_asset_and_checks_of_severity_error_block():
    graph = REPOSITORY.asset_graph
    specs = [graph.get_check_spec(key) for key in graph.asset_check_keys]
    declared = {
        spec.name: (spec.description, spec.blocking)
        for spec in specs
        if spec.name != PUBLISHED_IN_TIME
    }
    assert declared == {
        check.name: (check.description, check.severity == "error")
        for check in catalogue.checks(flights.facts())
    }
    assert len(declared) > 10


def test_the_nightly_job_runs_the_checks_of_the_files_and_leaves_the_deadline_to_its_sensor():
    nightly = {
        key.name
        for key in REPOSITORY.get_job(
            "flights_enriched_nightly"
        ).asset_layer.asset_graph.asset_check_keys
    }
    assert nightly == {check.name for check in catalogue.checks(flights.facts())}
    sensors = {sensor.name: sensor.default_status for sensor in REPOSITORY.sensor_defs}
    names = ("tidegate_starts_days", "tidegate_reports_days", "tidegate_alerts")
    assert sensors == dict.fromkeys(names, dg.DefaultSensorStatus.RUNNING)


def test_a_freshness_policy_has_the_deadline_of_a_table_without_a_last_day():
    goes_on = dataclasses.replace(flights, end=None)
    for enrichment, cron in ((flights, None), (goes_on, "30 6 * * *")):
        (spec,) = enriched_asset(Declared("a:flights", enrichment)).specs
        assert (spec.freshness_policy and spec.freshness_policy.deadline_cron) == cron


def test_the_description_links_the_reports_at_the_address_that_is_set(monkeypatch):
    with_runbook = dataclasses.replace(flights, runbook="https://wiki.example/flights")
    for port in ("3070", "4070"):
        monkeypatch.setenv("TIDEGATE_REPORTS_PORT", port)
        (spec,) = enriched_asset(Declared("a:flights", with_runbook)).specs
        assert f"(http://127.0.0.1:{port}/reports/flights_enriched/index.html)" in spec.description
        assert "[runbook](https://wiki.example/flights)" in spec.description


def test_the_page_of_a_job_shows_a_config_that_the_job_accepts():
    (config,) = blocks("docs/dagster.md", "yaml", "Jobs, modes and sensors")
    job = REPOSITORY.get_job("flights_enriched_nightly")
    assert dg.validate_run_config(job, yaml.safe_load(config))
    wrong = yaml.safe_load(config.replace("replay", "reply"))
    with pytest.raises(dg.DagsterInvalidConfigError):
        dg.validate_run_config(job, wrong)
    description = REPOSITORY.get_job("flights_enriched_nightly").description
    assert f"`{config.strip()}`" in description


def test_lineage_names_the_input_columns_of_each_column():
    table = REPOSITORY.asset_graph.get(dg.AssetKey("flights_enriched")).metadata
    described = {column.name: column for column in table["dagster/column_schema"].columns}
    assert (described["temp_c"].type, described["temp_c"].description) == (
        "DOUBLE",
        "weather_api, through the lookup weather.",
    )
    declared = Declared("enrichments.flights:flights", flights)
    read = ["carrier", "origin", "Scheduled_Departure", "tail_number"]  # Spark does not mind case
    traced = {
        column: [(source.asset_key.to_user_string(), source.column_name) for source in sources]
        for column, sources in lineage(declared, read).deps_by_column.items()
    }
    weather = [("raw/flights", "Scheduled_Departure"), ("raw/flights", "origin")]
    assert traced["carrier"] == [("raw/flights", "carrier")]
    assert traced["temp_c"] == traced["weather_status"] == traced["weather_answered_at"] == weather
    assert traced["seats"] == [("raw/flights", "tail_number")]
    assert set(table["dagster/column_lineage"].deps_by_column) == set(traced) - set(read)
    assert set(described) == set(traced) - set(read)


def test_the_days_are_those_of_the_declaration():
    days = REPOSITORY.asset_graph.get(dg.AssetKey("flights_enriched")).partitions_def
    assert (days.get_first_partition_key(), days.get_last_partition_key()) == (
        "2013-01-01",
        "2013-12-31",
    )
    for key in ("raw/flights", "delays_by_weather"):
        assert REPOSITORY.asset_graph.get(dg.AssetKey.from_user_string(key)).partitions_def == days


@pytest.mark.parametrize(
    ("tick", "wanted"),
    [
        ("2013-01-11T02:15:00+00:00", "2013-01-10"),
        ("2013-03-01T02:15:00+00:00", "2013-02-28"),
        # days are UTC days, whatever the clock that ticks
        ("2013-01-11T01:15:00-05:00", "2013-01-10"),
        ("2013-01-10T22:30:00-05:00", "2013-01-10"),
    ],
)
def test_a_tick_of_the_schedule_asks_for_yesterday_once(tick, wanted):
    tick_result = evaluate(REPOSITORY, tick)
    assert [(r.partition_key, r.run_key) for r in tick_result.run_requests] == [(wanted, wanted)]


def test_a_tick_after_the_last_day_says_why_no_run_is_requested():
    tick_result = evaluate(REPOSITORY, "2026-11-20T02:15:00+00:00")
    assert tick_result.run_requests == []
    assert tick_result.skip_message == (
        "flights_enriched has the days from 2013-01-01 until before 2014-01-01, and not 2026-11-19."
    )


def evaluate(repository, tick):
    schedule = repository.get_schedule_def("flights_enriched_nightly_schedule")
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_schedule_context(
            instance=instance,
            scheduled_execution_time=dt.datetime.fromisoformat(tick),
            repository_def=repository,
        )
        return schedule.evaluate_tick(context)


def test_two_enrichments_of_one_input_share_its_raw_asset():
    other = dataclasses.replace(
        flights,
        name="flights_again",
        output=dataclasses.replace(flights.output, path="data/published/flights_again"),
        summaries=(),
        schedule=None,
    )
    both = [Declared("a:flights", flights), Declared("b:other", other)]
    repository = build_definitions(both, SparkProgram()).get_repository_def()
    keys = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    of_both = {
        f"{name}{suffix}"
        for name in ("flights_enriched", "flights_again")
        for suffix in ("", "__dead_letters")
    }
    assert keys == {"raw/flights", "delays_by_weather"} | of_both
    assert [schedule.name for schedule in repository.schedule_defs] == [
        "flights_enriched_nightly_schedule"
    ]


@pytest.mark.parametrize(
    "changes",
    [{"start": "2013-06-01"}, {"end": "2013-02-01"}, {"zone": "Asia/Tokyo"}, {"zone": "Etc/GMT+9"}],
)
def test_an_input_has_the_days_of_all_its_readers(changes):
    """Dagster refuses a backfill of a day whose input has no such day, or has it in another zone."""
    other = reading("flights_of_others", flights.input.path)
    other = dataclasses.replace(other, enrichment=dataclasses.replace(other.enrichment, **changes))
    both = [Declared("a:flights", flights), other]
    assert days_of_input(both, "flights_enriched", "2013-05-31") == (["2013-05-31"], [])


def test_a_table_may_read_the_table_of_an_enrichment_in_another_zone():
    reader = reading("flights_in_tokyo", flights.output.path)
    reader = dataclasses.replace(
        reader, enrichment=dataclasses.replace(reader.enrichment, zone="Asia/Tokyo")
    )
    both = [Declared("a:flights", flights), reader]
    assert days_of_input(both, "flights_in_tokyo", "2013-05-31") == (["2013-05-31"], [])


def days_of_input(all_declared, table: str, day: str) -> tuple[list[str], list[str]]:
    """The days of its input that Dagster names for a day of the table; and those that are none."""
    definitions = build_definitions(all_declared, SparkProgram())
    with dg.DagsterInstance.ephemeral() as instance:
        view = AssetGraphView.for_test(definitions, instance)
        key = dg.AssetKey(table)
        (source,) = view.asset_graph.get(key).parent_keys
        asked = view.get_asset_subset_from_asset_partitions(key, {AssetKeyPartitionKey(key, day)})
        found = view.compute_parent_subset_and_required_but_nonexistent_subset(source, asked)
    return tuple([*subset.expensively_compute_partition_keys()] for subset in found)


def reading(name: str, path: str) -> Declared:
    """The flights under another name, from another input."""
    output = dataclasses.replace(flights.output, path=f"data/published/{name}")
    source = dataclasses.replace(flights.input, path=path)
    return Declared(
        f"a:{name}",
        dataclasses.replace(flights, name=name, input=source, output=output, summaries=()),
    )


@pytest.mark.parametrize(
    ("paths", "keys"),
    [
        (["data/orders", "data/customers"], ["raw/orders", "raw/customers"]),
        (["team_a/orders", "team_b/orders"], ["raw/team_a/orders", "raw/team_b/orders"]),
        (["team_a/orders/", "./team_a/orders"], ["raw/orders", "raw/orders"]),
        (["a/raw/orders", "b/raw/orders"], ["raw/a/raw/orders", "raw/b/raw/orders"]),
        (["team-a/orders", "team_a/orders"], ["raw/team-a/orders", "raw/team_a/orders"]),
        (["data/größe", "data/of the shop"], ["raw/gr__e", "raw/of_the_shop"]),
        (["data/a b", "data/a_b"], ["raw/a_20b", "raw/a_b"]),
        (["x/a b/raw", "y/a+b/raw"], ["raw/a_20b/raw", "raw/a_2bb/raw"]),
    ],
)
def test_inputs_with_different_paths_are_different_assets(paths, keys):
    both = [reading(f"enriched_{place}", path) for place, path in enumerate(paths)]
    repository = build_definitions(both, SparkProgram()).get_repository_def()
    graph = repository.asset_graph
    found = [
        next(iter(graph.get(dg.AssetKey(declared.name)).parent_keys)).to_user_string()
        for declared in both
    ]
    assert found == keys


def test_iceberg_tables_of_one_name_are_distinguished_by_their_namespace():
    tables = [
        Input(format="iceberg", table=f"lake.{namespace}.orders") for namespace in ("shop", "web")
    ]
    both = [reading(f"of_{table.table.split('.')[1]}", "replaced") for table in tables]
    both = [
        dataclasses.replace(
            declared, enrichment=dataclasses.replace(declared.enrichment, input=table)
        )
        for declared, table in zip(both, tables, strict=True)
    ]
    graph = build_definitions(both, SparkProgram()).get_repository_def().asset_graph
    for declared, key in zip(both, ("raw/shop/orders", "raw/web/orders"), strict=True):
        (parent,) = graph.get(dg.AssetKey(declared.name)).parent_keys
        assert (parent.to_user_string(), graph.get(parent).kinds) == (key, {"iceberg"})


def test_an_enrichment_that_reads_another_table_follows_it_without_a_sensor():
    after = reading("after", "./data/published/flights_enriched/")
    both = [Declared("a:flights", flights), after]
    repository = build_definitions(both, SparkProgram()).get_repository_def()
    asset = repository.asset_graph.get(dg.AssetKey("after"))
    assert {key.to_user_string() for key in asset.parent_keys} == {"flights_enriched"}
    assert asset.automation_condition is not None
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance=instance, repository_def=repository)
        looked = repository.get_sensor_def("tidegate_starts_days")(context)
    assert set(json.loads(looked.cursor)) == {"refreshed", "waited", "raw/flights"}
    assert (
        dg.AssetKey(["raw", "flights_enriched"]) not in repository.asset_graph.get_all_asset_keys()
    )


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_a_day_that_dagster_starts_after_its_input_has_its_summaries():
    after = reading("after", "data/published/flights_enriched")
    summary = Summary(name="by_carrier", sql="SELECT carrier FROM after")
    after = dataclasses.replace(
        after, enrichment=dataclasses.replace(after.enrichment, summaries=[summary])
    )
    definitions = build_definitions([Declared("a:flights", flights), after], SparkProgram())
    now, day = dt.datetime(2013, 5, 3, 3, tzinfo=dt.UTC), "2013-05-02"
    keys = [dg.AssetKey(name) for name in ("flights_enriched", "after", "by_carrier")]
    requested = []
    with dg.DagsterInstance.ephemeral() as instance:
        cursor = None
        for updated in ([], keys[:1], keys[1:], []):
            for key in updated:
                instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=day))
            found = dg.evaluate_automation_conditions(
                definitions, instance, cursor=cursor, evaluation_time=now
            )
            cursor = found.cursor
            requested.append([found.get_requested_partitions(key) for key in keys[1:]])
    assert requested == [[set(), set()], [{day}, {day}], [set(), set()], [set(), set()]]


@pytest.mark.parametrize(
    "source",
    [Input(format="iceberg", table="lake.shop.flights"), Input(path="./data/plain/flights/")],
)
def test_an_enrichment_that_reads_a_shown_table_follows_its_publisher(source):
    after = reading("after", "data")
    after = dataclasses.replace(
        after, enrichment=dataclasses.replace(after.enrichment, input=source)
    )
    shown = dataclasses.replace(
        flights.output, iceberg="lake.shop.flights", parquet="data/plain/flights"
    )
    both = [Declared("a:flights", dataclasses.replace(flights, output=shown)), after]
    graph = build_definitions(both, SparkProgram()).get_repository_def().asset_graph
    (parent,) = graph.get(dg.AssetKey("after")).parent_keys
    assert parent.to_user_string() == "flights_enriched"
    assert graph.get(parent).kinds == {"spark", "delta", "iceberg"}
    assert {name: graph.get(parent).metadata[name] for name in ("iceberg", "parquet")} == {
        "iceberg": "lake.shop.flights", "parquet": "data/plain/flights",
    }  # fmt: skip


def test_a_new_file_is_a_new_enrichment(tmp_path, monkeypatch):
    package = write_package(tmp_path, monkeypatch, later=("later", "data/published/later"))
    assert [(found.reference, found.name) for found in enrichments_in(package)] == [
        ("more_enrichments.flights:flights", "flights_enriched"),
        ("more_enrichments.later:later", "later"),
    ]


@pytest.mark.parametrize(
    ("name", "path", "message"),
    [
        (
            "flights_enriched",
            "data/published/other",
            "are both named 'flights_enriched'; rename one",
        ),
        (
            "later",
            "data/published/flights_enriched",
            "both write data/published/flights_enriched; move one",
        ),
        (
            "later",
            "data/published/flights_enriched__audit",
            "table and audit table at once; move one",
        ),
        (
            "delays_by_weather",
            "data/published/later",
            "both have the asset delays_by_weather; rename the summary",
        ),
    ],
)
def test_two_enrichments_of_one_name_or_one_table_are_refused(
    tmp_path, monkeypatch, name, path, message
):
    package = write_package(tmp_path, monkeypatch, later=(name, path))
    with pytest.raises(DeclarationError, match=message):
        enrichments_in(package)


def write_package(folder, monkeypatch, *, later):
    """A package beside `enrichments` with its flights and one more, declared in a file of
    its own.
    """
    package = folder / "more_enrichments"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "flights.py").write_text("from enrichments.flights import flights\n")
    name, path = later
    (package / "later.py").write_text(
        "from dataclasses import replace\nfrom enrichments.flights import flights\n"
        f"later = replace(flights, name={name!r}, output=replace(flights.output, path={path!r}), "
        "summaries=())\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    for module in [module for module in sys.modules if module.startswith("more_enrichments")]:
        monkeypatch.delitem(sys.modules, module)
    return "more_enrichments"


def test_the_package_enrichments_declares_only_the_flights():
    assert [found.reference for found in enrichments_in("enrichments")] == [
        "enrichments.flights:flights"
    ]


class Lake(Names):
    def table(self, enrichment):
        return dg.AssetKey(["lake", f"{enrichment.name}_v2"])


def test_companion_assets_of_a_renamed_table_are_renamed():
    declared = Declared("enrichments.flights:flights", flights, names=Lake())
    assert declared.dead_letters_key.path == ["lake", "flights_enriched_v2__dead_letters"]
    assert declared.beside("delays").path == ["lake", "delays"]


class Renamed(Names):
    def job(self, enrichment):
        return f"credit_{enrichment.name}"

    def shared(self, name):
        return f"credit_{name}"


def test_next_steps_and_checks_name_the_jobs_and_sensors_of_the_project():
    due = dataclasses.replace(flights, publish_by="06:30")
    declared = Declared("enrichments.flights:flights", due, names=Renamed())
    assert "by the job credit_flights_enriched, with its summaries" in run_again(declared)
    (spec,) = freshness_check(declared).check_specs
    assert "by the sensor credit_reports_days, and again" in spec.description
