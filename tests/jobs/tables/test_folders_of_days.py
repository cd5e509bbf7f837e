"""The files of a run lie in a folder with the day in its name, for readers that take the day from
there and not from the table's log.
"""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs.ledger.keys import key_text
from jobs.run.day import run_day
from jobs.run.engines.engine import LOCAL
from jobs.tables.delta.asked_keys import KeysOf, files_of_days, runs_in_table
from jobs.tables.delta.published_files import find_run
from jobs.tables.erasing import without_rows
from jobs.tables.leases.day_leases import leased
from jobs.tables.publishing import publish
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output

pytestmark = pytest.mark.process  # the local engine listens for its tasks

DAYS = ("2026-11-19", "2026-11-20")
HOURS = ("2026-11-19T05Z", "2026-11-19T06Z")
NAMES = ("eu", "us-east.1")


class LengthOf:
    async def async_invoke(self, keys):
        return [{"score": len(keys["k"])}]


def declare(partition, every, table="lake/scored"):
    lookup = AsyncFunctionLookup(
        name="length", keys={"k": "k"}, returns="score INT", timeout=5.0, max_concurrency=2,
        function=LengthOf,
    )  # fmt: skip
    return Enrichment(
        name="scored",
        input=Input(path="raw", partition=partition, every=every, row_id=["id"]),
        lookups=[lookup],
        output=Output(path=table),
    )


def ran(enrichment, day, run_id, *keys):
    """Write an input of these keys; run and publish it."""
    folder = Path("raw", f"{enrichment.input.partition}={day}")
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": range(len(keys)), "k": keys}), folder / "a.parquet")
    return publish(run_day(enrichment, day, run_id, engine=LOCAL))


def forget(enrichment, record, key):
    """Publish the day of a record without the rows of a key."""
    table, day = enrichment.output.path, record.facts.day
    files = [file for of, file in files_of_days(enrichment) if of == day]
    keys = KeysOf("length", ("k",), {key_text((key,), hidden=False)})
    with leased(table, day, "forgetting") as lease:
        assert without_rows(record, files, keys, run_id="forgetting", lease=lease) == 1


@pytest.mark.parametrize(
    ("partition", "every", "days"),
    [("date", "day", DAYS), ("hour", "hour", HOURS), ("region", [*NAMES], NAMES)],
)
def test_polars_finds_each_row_in_its_day(tmp_path, monkeypatch, partition, every, days):
    monkeypatch.chdir(tmp_path)
    enrichment = declare(partition, every)
    first, second = days
    ran(enrichment, first, "r1", "a")
    record = ran(enrichment, second, "r2", "b", "bb", "bbb")
    ran(enrichment, first, "r3", "cccc", "ccccc")
    forget(enrichment, record, "bb")

    table = enrichment.output.path
    rows = pl.scan_delta(table)
    shown = {
        day: rows.filter(pl.col(partition).cast(pl.String) == day).collect().height for day in days
    }
    assert shown == {first: 2, second: 2}
    columns = ["id", "k", "score", partition]
    by_log = DeltaTable(table).to_pyarrow_table().select(columns).sort_by("k").to_pylist()
    assert rows.select(columns).sort("k").collect().to_dicts() == by_log


def test_the_folder_of_a_file_is_named_after_its_run_as_0_1_0_reads_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    enrichment = declare("date", "day")
    ran(enrichment, DAYS[0], "r1", "a")
    (file,) = DeltaTable(enrichment.output.path).file_uris()
    assert Path(file).parent.name == "r1"


@pytest.mark.parametrize(
    ("path", "run"),
    [
        ("runs/r1/date=2026-11-19/r1/part-0.parquet", "r1"),
        ("runs/r1/part-0.parquet", "r1"),  # as version 0.1.0 wrote it
        ("date=2026-11-19/part-0.parquet", ""),
        ("runs/part-0.parquet", ""),
        ("part-0.parquet", ""),
    ],
)
def test_a_file_in_the_folder_of_a_run_is_of_that_run(path, run):
    assert find_run(path) == run


@pytest.mark.parametrize("table", ["runs", "runs/scored", "runs/scored/all"])
def test_a_rewritten_day_has_no_run_wherever_the_table_lies(tmp_path, monkeypatch, table):
    monkeypatch.chdir(tmp_path)
    enrichment = declare("date", "day", table)
    first, second = DAYS
    ran(enrichment, first, "r1", "a", "b")
    ran(enrichment, second, "r2", "c")
    DeltaTable(table).optimize.z_order(["id"], partition_filters=[("date", "=", first)])
    assert runs_in_table(enrichment) == ({(second, "r2")}, {first})
