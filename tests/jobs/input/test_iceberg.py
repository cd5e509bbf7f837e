"""The days of an Iceberg table are read as Iceberg shows them, or refused by name."""

import dataclasses
import datetime as dt
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriterV2,
)
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from jobs.commands.previewing.preview import first_rows
from jobs.declare.finding import extras
from jobs.errors import DeclarationError, NoInput
from jobs.input.day import files_in, find_input, last_day
from jobs.input.iceberg import IcebergInput
from jobs.run.day import run_day
from jobs.tables.publishing import publish
from jobs.tables.records import run_records
from tests.support.lakes import lake_in
from tests.support.moods import MOOD
from tidegate import Enrichment, Input, Output

DAY, NEXT = "2026-01-01", "2026-01-02"
ZONED, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
PLACE = pa.struct([("lat", pa.float64()), ("of", pa.map_(pa.string(), pa.int32()))])
COLUMNS = pa.schema(
    [
        ("id", pa.int64()), ("k", pa.string()), ("at", ZONED), ("noon", LOCAL),
        ("tags", pa.list_(pa.string())), ("place", PLACE), ("price", pa.decimal128(9, 2)),
        ("small", pa.int32()), ("date", pa.date32()),
    ]
)  # fmt: skip
ROW = {
    "k": "a",
    "at": dt.datetime(2026, 1, 1, 23, 59, 59, 999999, dt.UTC),
    "noon": dt.datetime.fromisoformat("2026-01-01T12:00"), "tags": ["x", None],
    "place": {"lat": 1.5, "of": [("a", 1)]}, "price": 1, "small": 7, "date": dt.date(2026, 1, 1),
}  # fmt: skip


MOODS = Enrichment(
    name="moods",
    input=Input(format="iceberg", table="lake.shop.orders", row_id=["id"]),
    lookups=[MOOD],
    output=Output(path="out"),
)


@pytest.fixture
def lake(tmp_path, monkeypatch):
    with lake_in(tmp_path, tmp_path / "warehouse", monkeypatch) as catalog:
        yield catalog


def rows(*ids, columns=COLUMNS, **changed):
    return pa.Table.from_pylist([ROW | {"id": number} | changed for number in ids], schema=columns)


@pytest.fixture
def orders(lake):
    """A table of two days."""
    table = lake.create_table("shop.orders", COLUMNS, properties={"format-version": "2"})
    with table.update_spec() as spec:
        spec.add_identity("date")
    table.append(pa.concat_tables([rows(1, 2, 3), rows(4, date=dt.date(2026, 1, 2))]))
    return table


def read(day):
    """The rows of the files that Spark and the checks read, by id."""
    table = pa.concat_tables([pq.read_table(file, partitioning=None) for file in day.files])
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def shown(table, day):
    """The rows of a day as Iceberg's own reader has them."""
    found = table.scan(f"date = '{day}'").to_arrow().drop_columns(["date"])
    return sorted(found.to_pylist(), key=lambda row: row["id"])


# -- read right
# --------------------------------------------------------------------------------------------------
def changed(table):
    """Rows deleted and overwritten; columns renamed, swapped, widened, dropped and added; a file
    with those.
    """
    table.delete("id = 2")
    table.overwrite(rows(3, k="ccc"), "id = 3")
    with table.update_schema() as schema:
        schema.rename_column("k", "old")
        schema.rename_column("noon", "k_at")
        schema.rename_column("place.lat", "latitude")
        schema.update_column("small", LongType())
        schema.delete_column("price")
    with table.update_schema() as schema:
        schema.rename_column("old", "k")
        schema.add_column("more", LongType())
    now = table.schema().as_arrow()
    row = {"k": "e", "small": 1 << 40, "more": 1, "date": dt.date(2026, 1, 1)}
    table.append(pa.Table.from_pylist([row | {"id": 5}, row | {"id": 6, "k": None}], schema=now))
    return table


@pytest.mark.spark
def test_a_day_of_a_changed_table_is_enriched_as_iceberg_shows_it_and_the_record_names_the_snapshot(
    spark, orders
):
    table = changed(orders)
    day = find_input(MOODS, DAY)
    assert (day.rows, day.version) == (4, table.current_snapshot().snapshot_id)
    frame = day.read(spark)
    in_spark = sorted(frame.toArrow().to_pylist(), key=lambda row: row["id"])
    assert in_spark == shown(table, DAY) == read(day)
    assert sorted(first_rows(day, 9).to_pylist(), key=lambda row: row["id"]) == in_spark
    assert pa.schema([field.remove_metadata() for field in frame.toArrow().schema]) == day.schema
    run = run_day(MOODS, DAY, "r1", checks="data_quality.day:check")
    assert [verdict.sentence for verdict in run.verdicts if verdict.holds_back] == []
    publish(run)
    (record,) = run_records.load("moods")
    assert record.facts.input_version == day.version
    published = pa.concat_tables(
        [
            pq.read_table(file, partitioning=None, columns=["id", "score"])
            for file in Path("out").rglob("r1/*.parquet")
        ]
    )
    assert sorted(published.to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "score": 1.0}, {"id": 3, "score": 3.0}, {"id": 5, "score": 1.0},
        {"id": 6, "score": None},
    ]  # fmt: skip


def test_an_iceberg_table_without_the_partition_column_is_read_as_its_only_partition(orders):
    whole = dataclasses.replace(MOODS.input, partition="part", every=["all"])
    found = find_input(dataclasses.replace(MOODS, input=whole), "all")
    assert [row["id"] for row in read(found)] == [1, 2, 3, 4]
    assert ("date" in found.names, last_day(whole)) == (True, "all")


def test_a_null_list_or_map_of_structs_is_null_and_not_empty(lake):
    item = pa.struct([("a", pa.int32())])
    kinds = {
        "lists": pa.list_(item),
        "maps": pa.map_(pa.string(), item),
        "nested": pa.struct([("deep", pa.list_(pa.list_(item)))]),
    }
    values = [
        {"lists": [{"a": 1}, None], "maps": [("x", {"a": 1})], "nested": {"deep": [None, []]}},
        {"lists": None, "maps": None, "nested": {"deep": None}},
        {"lists": [], "maps": [], "nested": None},
        {"lists": [{"a": 2}], "maps": [("y", None)], "nested": {"deep": [[{"a": 3}], None]}},
    ]
    table = lake.create_table("shop.orders", pa.schema([*COLUMNS, *kinds.items()]))
    table.append(pa.concat_tables([
        rows(number, columns=table.schema().as_arrow(), **row) for number, row in enumerate(values)
    ]))  # fmt: skip
    read_back = read(find_input(MOODS, DAY))
    assert [{name: row[name] for name in kinds} for row in read_back] == values


def test_fields_below_a_list_in_a_list_or_a_map_keep_their_values_when_renamed(lake):
    pair = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    kinds = {"lists": pa.list_(pa.list_(pair)), "maps": pa.map_(pa.string(), pa.list_(pair))}
    table = lake.create_table("shop.orders", pa.schema([*COLUMNS, *kinds.items()]))
    values = [{"a": 1, "b": 2}]
    columns = table.schema().as_arrow()
    table.append(rows(1, columns=columns, lists=[values, None], maps=[("x", values), ("y", None)]))
    for old, new in (("a", "c"), ("b", "a")):
        with table.update_schema() as schema:
            schema.rename_column(f"lists.element.element.{old}", new)
            schema.rename_column(f"maps.value.element.{old}", new)
    (row,) = read(find_input(MOODS, DAY))
    renamed = [{"c": 1, "a": 2}]
    assert (row["lists"], row["maps"]) == ([renamed, None], [("x", renamed), ("y", None)])


def test_two_columns_that_swap_their_names_are_copied_anew(lake):
    columns = pa.schema(
        [("id", pa.int64()), ("a", pa.string()), ("b", pa.string()), ("date", pa.string())]
    )
    table = lake.create_table("shop.orders", columns)
    table.append(pa.Table.from_pylist([{"id": 1, "a": "A", "b": "B", "date": DAY}], schema=columns))
    assert read(find_input(MOODS, DAY)) == [{"id": 1, "a": "A", "b": "B"}]
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        with table.update_schema() as schema:
            schema.rename_column(old, new)
    assert read(find_input(MOODS, DAY)) == [{"id": 1, "b": "A", "a": "B"}]


def test_a_data_file_that_did_not_change_is_copied_once(orders):
    (copy,) = find_input(MOODS, DAY).files
    written = Path(copy).stat().st_ino
    orders.append(rows(9))
    again = find_input(MOODS, DAY)
    assert (len(again.files), Path(copy).stat().st_ino) == (2, written)
    assert copy in again.files


@pytest.mark.parametrize("transform", ["identity", "bucket of id", "none"])
def test_only_the_rows_of_the_day_are_read_whatever_the_table_is_partitioned_by(lake, transform):
    table = lake.create_table("shop.orders", COLUMNS)
    with table.update_spec() as spec:
        if transform == "identity":
            spec.add_identity("date")
        if transform == "bucket of id":
            spec.add_field("id", "bucket[4]", "id_bucket")
    table.append(
        pa.concat_tables([rows(1, 2), rows(3, date=dt.date(2026, 1, 3)), rows(4, date=None)])
    )
    assert [row["id"] for row in read(find_input(MOODS, DAY))] == [1, 2]
    assert last_day(MOODS.input) == "2026-01-03"
    with pytest.raises(NoInput, match=f"has no rows of {NEXT} in snapshot "):
        find_input(MOODS, NEXT)


@pytest.mark.parametrize("column", ["date", "at"])
def test_the_last_day_is_found_without_statistics_of_the_files(lake, column):
    properties = {"write.metadata.metrics.default": "none"}
    table = lake.create_table("shop.orders", COLUMNS, properties=properties)
    table.append(pa.concat_tables([rows(1), rows(2, date=None, at=None)]))
    if column == "at":
        with table.update_spec() as spec:
            spec.add_field("at", "day", "on_day")
    partition = "on_day" if column == "at" else "date"
    assert last_day(dataclasses.replace(MOODS.input, partition=partition)) == DAY


def test_the_last_day_is_found_beside_texts_of_no_day(lake):
    table = lake.create_table("shop.orders", pa.schema([("date", pa.string())]))
    table.append(pa.table({"date": [DAY, NEXT, "unknown", None]}))
    assert last_day(MOODS.input) == NEXT


def test_a_text_that_only_begins_with_a_day_belongs_to_no_day(lake):
    columns = COLUMNS.append(pa.field("day", pa.string()))
    table = lake.create_table("shop.orders", columns)
    with table.update_spec() as spec:
        spec.add_identity("day")
    texts = [DAY, f"{NEXT} 00:00:00", f"{NEXT}T05", "n/a"]
    table.append(
        pa.concat_tables([rows(id_, columns=columns, day=day) for id_, day in enumerate(texts)])
    )
    by_text = dataclasses.replace(MOODS.input, partition="day")
    opened = IcebergInput.at(by_text.table, "day", by_text.every)
    assert opened.rows_of_no_day() == {f"day = {text!r}": 1 for text in texts[1:]}
    assert (opened.last_day, last_day(by_text)) == (DAY, DAY)
    assert opened.files(NEXT) == []


@pytest.mark.parametrize("column", ["at", "noon"])
def test_a_table_partitioned_by_the_day_of_a_time_is_read_by_day(lake, column):
    table = lake.create_table("shop.orders", COLUMNS)
    with table.update_spec() as spec:
        spec.add_field(column, "day", "on_day")
    at = dt.datetime(2026, 1, 2, tzinfo=dt.UTC if column == "at" else None)
    table.append(pa.concat_tables([rows(1, 2), rows(3, **{column: at}), rows(4, **{column: None})]))
    by_time = dataclasses.replace(MOODS, input=dataclasses.replace(MOODS.input, partition="on_day"))
    day = find_input(by_time, DAY)
    assert ([row["id"] for row in read(day)], day.names) == ([1, 2], COLUMNS.names)
    assert [row["id"] for row in read(find_input(by_time, NEXT))] == [3]
    assert last_day(by_time.input) == NEXT
    first, last = (
        dt.datetime.fromisoformat(time).replace(tzinfo=at.tzinfo)
        for time in ("0001-01-01", "9999-12-31T23:59:59.999999")
    )
    table.append(pa.concat_tables([rows(5, **{column: first}), rows(6, **{column: last})]))
    assert [row["id"] for row in read(find_input(by_time, "0001-01-01"))] == [5]
    assert [row["id"] for row in read(find_input(by_time, last_day(by_time.input)))] == [6]


@pytest.mark.parametrize("kind", [StringType(), DateType(), TimestampType(), TimestamptzType()])
def test_rows_older_than_the_column_of_the_day_are_of_the_day_that_is_its_default(lake, kind):
    table = lake.create_table("shop.orders", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2]}))
    is_time = isinstance(kind, (TimestampType, TimestamptzType))
    zone = "+00:00" if isinstance(kind, TimestamptzType) else ""
    with table.update_schema() as schema:
        schema.add_column("on", kind, default_value=f"{DAY}T23:59:59{zone}" if is_time else DAY)
    if is_time:
        with table.update_spec() as spec:
            spec.add_field("on", "day", "on_day")
    by_default = dataclasses.replace(MOODS.input, partition="on_day" if is_time else "on")
    assert last_day(by_default) == DAY
    for id_, day in ((3, DAY), (4, NEXT)):
        text = pa.array([f"{day}T00:00:00Z" if zone else day])
        on = text.cast(table.schema().as_arrow().field("on").type)
        table.append(pa.table({"id": [id_], "on": on}))
    moods = dataclasses.replace(MOODS, input=by_default)
    day, after = find_input(moods, DAY), find_input(moods, NEXT)
    assert [row["id"] for row in read(day)] == [1, 2, 3]
    assert [row["id"] for row in read(after)] == [4]
    assert (day.unread, last_day(by_default)) == ((), NEXT)


@pytest.mark.parametrize("column", ["at", "noon", "hour"])
def test_a_table_partitioned_by_the_hour_of_a_time_or_by_a_text_is_read_by_hour(lake, column):
    columns = COLUMNS.append(pa.field("hour", pa.string()))
    table = lake.create_table("shop.orders", columns)
    if column != "hour":
        with table.update_spec() as spec:
            spec.add_field(column, "hour", "by_hour")
    begin = {"at": "2026-01-01T23:00+00:00", "noon": "2026-01-01T23:00", "hour": "2026-01-01T23Z"}[
        column
    ]
    later = {"at": "2026-01-02T00:00+00:00", "noon": "2026-01-02T00:00", "hour": "2026-01-02T00Z"}[
        column
    ]
    values = [
        text if column == "hour" else dt.datetime.fromisoformat(text) for text in (begin, later)
    ]
    table.append(
        pa.concat_tables(
            [
                rows(1, columns=columns, **{column: values[0]}),
                rows(2, columns=columns, **{column: values[1]}),
            ]
        )
    )
    partition = "hour" if column == "hour" else "by_hour"
    by_hour = dataclasses.replace(
        MOODS, input=dataclasses.replace(MOODS.input, partition=partition, every="hour")
    )
    assert [row["id"] for row in read(find_input(by_hour, "2026-01-01T23Z"))] == [1]
    assert [row["id"] for row in read(find_input(by_hour, "2026-01-02T00Z"))] == [2]
    assert last_day(by_hour.input) == "2026-01-02T00Z"
    with pytest.raises(NoInput):
        find_input(by_hour, "2026-01-01T22Z")


@pytest.mark.proof
def test_a_table_on_an_object_store_is_read_by_the_credentials_of_the_environment(
    s3, tmp_path, monkeypatch
):
    endpoint = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.region": "us-east-1"}
    with lake_in(tmp_path, f"{s3.bucket}/warehouse", monkeypatch, **endpoint) as catalog:
        table = catalog.create_table("shop.orders", COLUMNS)
        with table.update_spec() as spec:
            spec.add_identity("date")
        table.append(pa.concat_tables([rows(1, 2), rows(3, date=dt.date(2026, 1, 2))]))
        table.delete("id = 2")
        assert [row["id"] for row in read(find_input(MOODS, DAY))] == [1]
        before = len(s3.requests())
        assert [row["id"] for row in read(find_input(MOODS, DAY))] == [1]
        # copied already
        assert {method for method, path in s3.requests()[before:] if "/data/" in path} == set()
        (file,) = files_in(MOODS.input, NEXT)
        assert file.place.startswith(f"{s3.bucket}/warehouse/shop/orders/data/")


# -- deletes that only other engines write
# -----------------------------------------------------------------------------
class DeletesWriter(ManifestWriterV2):
    def content(self):
        return ManifestContent.DELETES

    @property
    def _meta(self):
        return super()._meta | {"content": "deletes"}


class AddDeletes(_FastAppendFiles):
    def new_manifest_writer(self, spec):
        schema = self._transaction.table_metadata.schema()
        return DeletesWriter(
            spec, schema, self.new_manifest_output(), self._snapshot_id, self._compression
        )


def delete(table, content, deletes, **facts):
    """Commit a file with deletes of the first day, as Spark and Flink write it."""
    place = Path(table.location(), "data", f"deletes-{content.name}.parquet")
    pq.write_table(deletes, place)
    file = DataFile.from_args(
        content=content, file_path=str(place), file_format=FileFormat.PARQUET,
        record_count=len(deletes),
        partition=Record((dt.date(2026, 1, 1) - dt.date(1970, 1, 1)).days),
        file_size_in_bytes=place.stat().st_size, column_sizes={}, value_counts={},
        null_value_counts={}, nan_value_counts={}, lower_bounds={}, upper_bounds={}, **facts,
    )  # fmt: skip
    file.spec_id = table.spec().spec_id
    with table.transaction() as change, AddDeletes(Operation.APPEND, change, table.io) as producer:
        producer.append_data_file(file)


def test_rows_deleted_by_their_position_are_not_read_and_their_file_counts_as_changed(orders):
    (before,) = files_in(MOODS.input, DAY)
    assert [row["id"] for row in read(find_input(MOODS, DAY))] == [1, 2, 3]
    types = pa.schema(
        [
            pa.field(
                "file_path",
                pa.string(),
                nullable=False,
                metadata={"PARQUET:field_id": "2147483546"},
            ),
            pa.field(
                "pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}
            ),
        ]
    )
    gone = pa.Table.from_pylist([{"file_path": before.place, "pos": 1}], schema=types)
    delete(orders, DataFileContent.POSITION_DELETES, gone)
    (after,) = files_in(MOODS.input, DAY)
    assert (after.place, after.changed_ns > before.changed_ns) == (before.place, True)
    assert after.version != before.version
    # its time is lost when its snapshot expires
    assert dataclasses.replace(after, changed_ns=0).version == after.version
    assert [row["id"] for row in read(find_input(MOODS, DAY))] == [1, 3]
    assert [row["id"] for row in read(find_input(MOODS, NEXT))] == [4]


def test_rows_deleted_by_their_values_are_refused(orders):
    types = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    delete(
        orders,
        DataFileContent.EQUALITY_DELETES,
        pa.table({"id": [2]}, schema=types),
        equality_ids=[1],
    )
    message = refusal(find_input, MOODS, DAY)
    assert message.startswith(
        "moods: input: lake.shop.orders cannot be read: PyIceberg does not yet support equality "
    )
    assert message.endswith("; rewrite its data files, which applies the deletes.")
    assert find_input(MOODS, NEXT).rows == 1


# -- what is not there
# -------------------------------------------------------------------------------------------------
def test_an_iceberg_table_has_the_days_and_files_of_its_last_snapshot(orders):
    assert last_day(MOODS.input) == NEXT
    (old,) = files_in(MOODS.input, DAY)
    written = orders.current_snapshot().timestamp_ms
    assert (Path(old.place).stat().st_size, old.changed_ns) == (old.size, written * 1_000_000)
    orders.delete(f"date = '{NEXT}'")
    assert [file.place for file in files_in(MOODS.input, DAY)] == [old.place]
    # another day's commit
    assert [file.changed_ns for file in files_in(MOODS.input, DAY)] == [old.changed_ns]
    assert (last_day(MOODS.input), files_in(MOODS.input, NEXT)) == (DAY, [])
    orders.delete("id > 0")
    assert refusal(last_day, MOODS.input) == "input: lake.shop.orders has no rows of any day."


def test_a_table_that_does_not_exist_yet_is_a_day_without_input(lake):
    with pytest.raises(NoInput) as without:
        find_input(MOODS, DAY)
    assert str(without.value) == (
        "moods: input: there is no Iceberg table lake.shop.orders; nothing can be enriched."
    )
    lake.create_table("shop.orders", COLUMNS)
    with pytest.raises(NoInput, match="nobody has written a row to"):
        find_input(MOODS, DAY)
    assert files_in(MOODS.input, DAY) == []


def test_a_file_that_vanished_after_the_snapshot_was_read_is_named(orders):
    (file,) = files_in(MOODS.input, DAY)
    Path(file.place).unlink()
    message = refusal(find_input, MOODS, DAY)
    assert message.startswith(f"moods: input: {file.place} of lake.shop.orders cannot be read: ")
    assert not list(Path("out").rglob("*.parquet*"))


# -- refused by name
# --------------------------------------------------------------------------------------------------
def refusal(function, *arguments):
    with pytest.raises(DeclarationError) as refused:
        function(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_catalog_that_is_not_configured_or_does_not_answer_is_refused(
    lake, monkeypatch, tmp_path
):
    other = dataclasses.replace(MOODS, input=Input(format="iceberg", table="other.shop.orders"))
    assert refusal(find_input, other, DAY) == (
        "moods: input: other.shop.orders is in a catalog 'other', which is not configured here; "
        "set PYICEBERG_CATALOG__OTHER__URI in the environment, or name it in .pyiceberg.yaml."
    )
    monkeypatch.setenv("PYICEBERG_CATALOG__OTHER__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__OTHER__URI", f"sqlite:///{tmp_path}/missing/catalog.db")
    assert refusal(find_input, other, DAY).startswith(
        "moods: input: other.shop.orders cannot be read: "
    )


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            None,
            (
                "lake.shop.orders has no column date (Input.partition), but id; the column of the "
                "day must be a date, "
            ),
        ),
        (
            LongType(),
            (
                "date in lake.shop.orders is long; the column of the day must be a date, or a "
                "string such as "
            ),
        ),
    ],
)
def test_a_table_without_a_day_is_refused(lake, kind, message):
    fields = [NestedField(1, "id", LongType()), *([NestedField(2, "date", kind)] if kind else [])]
    table = lake.create_table("shop.orders", Schema(*fields))
    table.append(pa.table({"id": [1]} | ({"date": [20260101]} if kind else {})))
    assert f"moods: input: {message}" in refusal(find_input, MOODS, DAY)


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (pa.array([1], pa.time64("us")), "a time of day, which a Delta table cannot store."),
        (
            pa.array([bytes(16)], pa.uuid()),
            "of Parquet's type UUID, which a Delta table cannot store.",
        ),
    ],
)
def test_a_type_that_cannot_be_published_is_refused_before_a_row_is_copied(lake, odd, message):
    columns = pa.table({"id": [1], "odd": odd, "date": [DAY]})
    lake.create_table("shop.orders", columns.schema).append(columns)
    assert f"moods: input: 'odd' in lake.shop.orders is {message}" in refusal(
        find_input, MOODS, DAY
    )
    assert not Path("out").exists()


def test_a_date_widened_to_a_time_is_refused_with_the_cure(lake):
    """pyiceberg reads no such files, and writes no such table."""
    table = lake.create_table("shop.orders", COLUMNS, properties={"format-version": "2"})
    with table.update_spec() as spec:
        spec.add_field("date", "day", "on_day")
    table.append(rows(1))
    metadata = Path(table.metadata_location.removeprefix("file://"))
    found = json.loads(metadata.read_text())
    (old,) = found["schemas"]
    *others, date = old["fields"]
    new = old | {"schema-id": 1, "fields": [*others, date | {"type": "timestamp"}]}
    facts = {"format-version": 3, "schemas": [old, new], "current-schema-id": 1, "next-row-id": 0}
    metadata.write_text(json.dumps(found | facts))
    by_time = dataclasses.replace(MOODS, input=dataclasses.replace(MOODS.input, partition="on_day"))
    assert refusal(find_input, by_time, DAY).endswith(
        ". pyiceberg reads no file from before date was widened from date to a time; rewrite the "
        "table's data files."
    )


def test_without_pyiceberg_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None)
    assert refusal(files_in, MOODS.input, DAY) == (
        'Input(format="iceberg") needs pyiceberg; it is not installed here: pip install '
        '"tidegate[iceberg]".'
    )


@pytest.mark.parametrize(
    "declared",
    [
        {"format": "iceberg"},
        {"format": "iceberg", "table": "orders"},
        {"format": "iceberg", "table": "lake.shop.orders", "path": "data"},
        {"format": "parquet", "table": "lake.shop.orders"},
    ],
)
def test_an_iceberg_table_is_declared_by_its_name_alone(declared):
    assert "an Iceberg table, and nothing else, is declared by its name alone" in refusal(
        lambda: Input(**declared)
    )
