"""The tables of windows in Dagster: an asset each, behind the enriched days, made by their runs or
by itself.
"""

import dataclasses
import datetime as dt
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs.schema.columns import WINDOW_START
from jobs.schema.records import WrittenWindows
from orchestration.dagster.assets.enriched import window_asset
from orchestration.dagster.declared import Declared
from orchestration.dagster.definitions import build_definitions
from orchestration.dagster.resources import SparkProgram
from orchestration.dagster.sensors.reports_days import reports_days
from tests.jobs.commands.conftest import towns_in
from tidegate import EventTime, Output, Tumbling, Window

DAY, NEXT, LAST = "2013-01-10", "2013-01-11", "2013-01-12"
BY_HOUR = Window("by_hour", of=Tumbling(dt.timedelta(hours=1)), key=["town"], sql="count(*) AS n")
START = dt.datetime(2013, 1, 10, 7, tzinfo=dt.UTC)


@pytest.fixture
def towns(tmp_path, monkeypatch):
    return towns_in(tmp_path, monkeypatch)


@pytest.fixture
def declared(towns):
    event_time = EventTime("at", max_out_of_orderness=dt.timedelta(0))
    windowed = dataclasses.replace(
        towns.enrichment, start=DAY, event_time=event_time, windows=[BY_HOUR]
    )
    return Declared("declared.towns:towns", windowed)


def made_by_a_run():
    """The windows of a run, in its files."""
    folder = Path("data/published/towns/runs/windows").resolve()
    folder.mkdir(parents=True)
    times = pa.array([START], pa.timestamp("us", "UTC"))
    pq.write_table(
        pa.table({WINDOW_START: times, "town": ["a"], "n": [3], "date": [START.date()]}),
        folder / "a.parquet",
    )
    return WrittenWindows("by_hour", (str(folder / "a.parquet"),), (), 1, 3, 0, 0)


def test_the_windows_are_an_asset_after_the_days_in_the_nightly_job(declared):
    repository = build_definitions([declared], SparkProgram()).get_repository_def()
    windows = repository.asset_graph.get(dg.AssetKey("by_hour"))
    assert windows.parent_keys == {declared.key}
    assert (
        dg.AssetKey("by_hour")
        in repository.get_job("towns_nightly").asset_layer.executable_asset_keys
    )
    assert windows.metadata["path"].endswith("data/published/by_hour")
    assert windows.metadata["rows_in_no_window"].endswith("data/published/by_hour__dropped")


def test_an_empty_window_day_published_by_a_command_is_materialized(towns, declared):
    none = WrittenWindows("by_hour", (), (), 0, 0, 0, 0)
    towns.publish(DAY, range(0), windows=(none,))
    towns.publish(NEXT, range(3), windows=(made_by_a_run(),))  # killed before it wrote them
    towns.publish(LAST, range(0), files=())  # as without rows on a store
    with dg.DagsterInstance.ephemeral() as instance:
        reports_days([declared])(dg.build_sensor_context(instance=instance))
        assert instance.get_materialized_partitions(dg.AssetKey("by_hour")) == {DAY, LAST}


def test_windows_of_a_day_of_an_earlier_table_are_not_materialized(towns, declared):
    towns.publish(DAY, range(3), windows=(made_by_a_run(),))
    moved = dataclasses.replace(declared.enrichment, output=Output(path="data/moved/towns"))
    asset = window_asset(Declared("declared.towns:towns", moved), BY_HOUR)
    with dg.DagsterInstance.ephemeral() as instance:
        made = dg.materialize([asset], partition_key=DAY, instance=instance, raise_on_error=False)
    (failed,) = (event for event in made.all_events if event.is_step_failure)
    assert "no run has published 2013-01-10 here" in str(failed.step_failure_data.error)
    assert not Path("data/moved").exists()


def test_windows_are_materialized_alone_from_the_published_run_or_the_missing_run_is_named(
    towns, declared
):
    towns.publish(DAY, range(3), windows=(made_by_a_run(),))
    asset = window_asset(declared, BY_HOUR)
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize([asset], partition_key=DAY, instance=instance)
        assert done.success
        (row,) = DeltaTable("data/published/by_hour").to_pyarrow_table().to_pylist()
        assert (row["town"], row["n"], row["input_day"]) == ("a", 3, START.date())
        missing = dg.materialize(
            [asset], partition_key=NEXT, instance=instance, raise_on_error=False
        )
        assert not missing.success
        (failed,) = (event for event in missing.all_events if event.is_step_failure)
        assert "towns: no run has published 2013-01-11 here; run the day first." in str(
            failed.step_failure_data.error
        )
