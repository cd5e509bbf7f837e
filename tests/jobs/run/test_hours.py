"""An enrichment by hours: each is enriched, checked, published and replaced by itself, in all
tables and the report.
"""

import dataclasses
import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from data_quality.history import earlier_days
from data_quality.report.pages import render
from jobs.commands.replaying.remap import published_days
from jobs.errors import DeclarationError, NoInput
from jobs.input.day import find_input, last_day
from jobs.run.day import run_day
from jobs.tables import dead_letters
from jobs.tables.delta.type_check import check_types
from jobs.tables.derived.summaries import summarize
from jobs.tables.publishing import publish
from jobs.tables.records import run_records
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output, Summary, Tolerance

FIRST, SECOND = "2026-10-25T00Z", "2026-10-25T01Z"


class LengthOf:
    async def async_invoke(self, keys):
        if keys["k"] == "bad":
            raise ValueError("no answer")
        return [{"score": len(keys["k"])}]


MOOD = AsyncFunctionLookup(
    name="mood", keys={"k": "k"}, returns="score INT", timeout=1.0, max_concurrency=2,
    function=LengthOf, on_error="dead_letter",
)  # fmt: skip
MOODS = Enrichment(
    name="moods",
    input=Input(path="raw", partition="hour", every="hour", row_id=["id"]),
    lookups=[MOOD],
    output=Output(path="out"),
    zone="Europe/Berlin",
    tolerance=Tolerance(error=1.0),
    summaries=[
        Summary(
            name="by_score",
            sql="SELECT score, count(*) AS n, hour FROM moods GROUP BY score, hour",
        )
    ],
)


@pytest.fixture(autouse=True)
def at_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(hour, *keys):
    folder = Path("raw", f"hour={hour}")
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": range(len(keys)), "k": keys}), folder / "a.parquet")


def ran(hour, run_id, enrichment=MOODS):
    """Run, check, publish and summarize an hour."""
    record = run_day(enrichment, hour, run_id, checks="data_quality.day:check")
    assert [verdict.sentence for verdict in record.verdicts if verdict.status == "failed"] == []
    publish(record)
    for summary in enrichment.summaries:
        summarize(enrichment, summary, hour)


def table(name):
    return DeltaTable(name).to_pyarrow_table().sort_by("hour").to_pylist()


@pytest.mark.proof
@pytest.mark.spark
def test_each_hour_is_enriched_checked_published_and_replaced_alone(spark):
    write(FIRST, "a", "bad")
    write(SECOND, "bb")
    ran(FIRST, "r1")
    ran(SECOND, "r2")
    shown = [(row["hour"], row["k"], row["score"]) for row in table("out")]
    assert shown == [(FIRST, "a", 1), (FIRST, "bad", None), (SECOND, "bb", 2)]
    assert dead_letters.of_day("out", "hour", FIRST).num_rows == 1
    assert dead_letters.of_day("out", "hour", SECOND).num_rows == 0
    write(FIRST, "cccc")
    ran(FIRST, "r3")
    shown = [(row["hour"], row["k"], row["score"]) for row in table("out")]
    assert shown == [(FIRST, "cccc", 4), (SECOND, "bb", 2)]
    assert [(row["hour"], row["score"], row["n"]) for row in table("by_score")] == [
        (FIRST, 4, 1),
        (SECOND, 2, 1),
    ]
    assert {(row["hour"], row["run_id"]) for row in table("out__audit")} == {
        (FIRST, "r3"),
        (SECOND, "r2"),
    }
    assert dead_letters.of_day("out", "hour", FIRST).num_rows == 0
    assert published_days(MOODS, "2026-10-25") == [FIRST, SECOND]
    assert published_days(MOODS, "2026-10-25", "2026-10-25") == [FIRST, SECOND]
    assert published_days(MOODS, SECOND, SECOND) == [SECOND]
    assert published_days(MOODS, "2026-10-26") == []
    after = dataclasses.replace(
        MOODS, name="after",
        input=Input(path="out", format="delta", partition="hour", every="hour", row_id=["id"]),
        lookups=[dataclasses.replace(MOOD, name="again", returns="score_again INT")],
        output=Output(path="last"), summaries=[],
    )  # fmt: skip
    assert (find_input(after, FIRST).rows, last_day(after.input)) == (1, SECOND)
    records = run_records.load("moods")
    assert {record.facts.day for record in records} == {FIRST, SECOND}
    render("moods", records, Path("reports"))
    page = Path("reports", "index.html").read_text()
    assert '<th class="month" colspan="2"><span>25</span></th>' in page
    assert f'<th class="day" title="{SECOND}">01</th>' in page
    assert Path("reports", SECOND, "index.html").is_file()
    # the same hour of days before
    assert earlier_days("moods", "2026-10-26T01Z", Path("data/runs")).keys() == {SECOND}


def test_hours_of_a_table_of_days_are_refused_and_a_misnamed_folder_is_reported(tmp_path):
    write(FIRST, "a")
    write_deltalake(
        "out", pa.table({"id": [1], "hour": [dt.date(2026, 10, 25)]}), partition_by=["hour"]
    )
    with pytest.raises(
        DeclarationError, match="the partitions of out, hour, are date there, and string here"
    ):
        check_types(MOODS, find_input(MOODS, FIRST))
    Path("raw", "hour=2026-10-25-02").mkdir()
    with pytest.raises(
        NoInput,
        match="There is raw/hour=2026-10-25-02; the folder of an hour is named hour=YYYY-MM-DDT",
    ):
        find_input(MOODS, "2026-10-25T02Z")
    assert last_day(MOODS.input) == FIRST
