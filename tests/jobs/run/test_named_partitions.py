"""An enrichment by named partitions: each is enriched, checked, published and replaced by
itself.
"""

import argparse
import dataclasses
import datetime as dt
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from data_quality.report.pages import render
from jobs.commands.replaying.remap import published_days
from jobs.errors import DeclarationError, NoInput
from jobs.input.day import find_input, last_day
from jobs.run.day import run_day
from jobs.tables.derived.summaries import summarize
from jobs.tables.publishing import publish
from jobs.tables.records import run_records
from orchestration.dagster.declared import Declared
from orchestration.dagster.definitions import build_definitions
from orchestration.dagster.resources import SparkProgram
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output, Summary
from tidegate.commands.command import given_days


class LengthOf:
    async def async_invoke(self, keys):
        return [{"score": len(keys["k"])}]


MOOD = AsyncFunctionLookup(
    name="mood",
    keys={"k": "k"},
    returns="score INT",
    timeout=1.0,
    max_concurrency=2,
    function=LengthOf,
)
MOODS = Enrichment(
    name="moods",
    input=Input(path="raw", partition="region", every=["eu", "us"], row_id=["id"]),
    lookups=[MOOD],
    output=Output(path="out"),
    schedule="15 2 * * *",
    summaries=[
        Summary(name="by_score", sql="SELECT score, count(*) AS n FROM moods GROUP BY score")
    ],
)


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(region, *keys):
    folder = Path("raw", f"region={region}")
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": range(len(keys)), "k": keys}), folder / "a.parquet")


def ran(region, run_id):
    record = run_day(MOODS, region, run_id, checks="data_quality.day:check")
    assert [verdict.sentence for verdict in record.verdicts if verdict.status == "failed"] == []
    publish(record)
    summarize(MOODS, MOODS.summaries[0], region)


def table(name, *columns):
    rows = DeltaTable(name).to_pyarrow_table().sort_by("region").to_pylist()
    return [tuple(row[column] for column in columns) for row in rows]


@pytest.mark.proof
@pytest.mark.spark
def test_named_partitions_are_enriched_checked_published_and_replaced_one_by_one(spark):
    write("eu", "a", "aa")
    write("us", "bbb")
    ran("eu", "r1")
    ran("us", "r2")
    write("eu", "cccc")
    ran("eu", "r3")
    assert table("out", "region", "k", "score") == [("eu", "cccc", 4), ("us", "bbb", 3)]
    assert table("by_score", "region", "score", "n") == [("eu", 4, 1), ("us", 3, 1)]
    assert table("out__audit", "region", "run_id") == [("eu", "r3"), ("us", "r2")]
    assert (last_day(MOODS.input), published_days(MOODS, "us"), published_days(MOODS, "eu")) == (
        "us",
        ["us"],
        ["eu"],
    )
    render("moods", run_records.load("moods"), Path("reports"))
    assert '<th class="day" title="eu">eu</th>' in Path("reports", "index.html").read_text()
    assert Path("reports", "us", "index.html").is_file()


def test_a_partition_without_a_folder_is_reported_with_the_folders_that_exist():
    write("asia", "a")
    with pytest.raises(
        NoInput, match="There is raw/region=asia; the folder of a partition is named region=NAME"
    ):
        find_input(MOODS, "eu")


def test_the_command_runs_all_partitions_or_the_named_partition():
    def days(**options):
        return given_days(
            argparse.Namespace(**{"day": None, "first": None, "last": None} | options), MOODS
        )

    assert days() == ["eu", "us"]
    assert days(day="us") == ["us"]
    with pytest.raises(DeclarationError, match="--day is 'asia'; it must be one of: eu, us"):
        days(day="asia")
    with pytest.raises(
        DeclarationError,
        match="--from and --to differ, and partitions with names have no order; give",
    ):
        days(first="eu", last="us")


def test_each_tick_of_the_schedule_asks_for_all_names_again():
    repository = build_definitions(
        [Declared("a:moods", MOODS)], SparkProgram()
    ).get_repository_def()
    schedule = repository.get_schedule_def("moods_nightly_schedule")
    keys = set()
    for day in (1, 2):
        at = dt.datetime(2026, 1, day, 2, 15, tzinfo=dt.UTC)
        with dg.DagsterInstance.ephemeral() as instance:
            context = dg.build_schedule_context(
                instance, scheduled_execution_time=at, repository_def=repository
            )
            requests = schedule.evaluate_tick(context).run_requests
        assert [request.partition_key for request in requests] == ["eu", "us"]
        keys |= {request.run_key for request in requests}
    assert len(keys) == 4


@pytest.mark.parametrize("every", [[], ["EU", "eu"], ["frame"], ["2026-01-01"], ["a/b"], "week"])
def test_undeclared_partition_names_are_refused(every):
    with pytest.raises(DeclarationError, match="it must be day, hour, or names of partitions"):
        Input(path="raw", every=every)


@pytest.mark.parametrize("fields", [{"publish_by": "06:30"}, {"windows": [object()]}])
def test_a_declaration_that_needs_days_is_refused_with_named_partitions(fields):
    with pytest.raises(DeclarationError):
        dataclasses.replace(MOODS, **fields)
