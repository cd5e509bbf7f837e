"""The days of a Delta table are read as Delta shows them, or refused by name."""

import base64
import dataclasses
import datetime as dt
import json
import shutil
import struct
import urllib.parse
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.commands.previewing.preview import first_rows
from jobs.errors import DeclarationError, NoInput, TidegateError
from jobs.input.day import files_in, find_input, last_day
from jobs.input.delta import DeltaInput
from jobs.run.day import run_day
from jobs.tables.delta.delta_log import table_at
from jobs.tables.publishing import publish
from jobs.tables.records import run_records
from tests.support.moods import MOOD, LengthOf
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output

DAY, NEXT = "2026-01-01", "2026-01-02"
PLACE = pa.struct([("lat", pa.float64()), ("of", pa.map_(pa.string(), pa.int32()))])
ZONED, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


MOODS = Enrichment(
    name="moods",
    input=Input(path="lake", format="delta", row_id=["id"]),
    lookups=[MOOD],
    output=Output(path="out"),
)


@pytest.fixture
def lake(tmp_path, monkeypatch):
    """A table of two days, a file each."""
    monkeypatch.chdir(tmp_path)
    days = [dt.date.fromisoformat(day) for day in (DAY, DAY, DAY, NEXT)]
    rows = pa.table({"id": [1, 2, 3, 4], "k": ["a", "bb", "ccc", "d"], "date": days})
    write_deltalake("lake", rows, partition_by=["date"])
    return Path("lake")


def changed(lake):
    """Rows of the first day deleted, updated, appended with other columns, and its files
    compacted.
    """
    table = DeltaTable(lake)
    table.delete("id = 2")
    table.update(predicate="id = 3", updates={"k": "'cc'"})
    more = {
        "id": [5, 6],
        "k": ["e", None],
        "at": pa.array([1, None], ZONED),
        "noon": pa.array([2, 3], LOCAL),
        "tags": [["x", None], None],
        "place": pa.array([{"lat": 1.5, "of": [("a", 1)]}, None], PLACE),
        "date": [dt.date.fromisoformat(DAY)] * 2,
    }  # fmt: skip
    write_deltalake(lake, pa.table(more), mode="append", schema_mode="merge")
    write_deltalake(
        lake,
        pa.table({"id": [7], "date": [dt.date.fromisoformat(DAY)]}),
        mode="append",
        schema_mode="merge",
    )
    DeltaTable(lake).optimize.compact(partition_filters=[("date", "=", NEXT)])
    return DeltaTable(lake)


def shown(table, day):
    """The rows of a day as Delta's own reader has them."""
    rows = table.to_pyarrow_table(filters=[("date", "=", dt.date.fromisoformat(day))]).drop_columns(
        ["date"]
    )
    return sorted(rows.to_pylist(), key=lambda row: row["id"])


@pytest.mark.spark
def test_a_day_of_a_changed_table_is_read_as_delta_shows_it(spark, lake):
    table = changed(lake)
    day = find_input(MOODS, DAY)
    assert (day.rows, day.version) == (5, table.version())
    frame = day.read(spark)
    read = sorted(frame.toArrow().to_pylist(), key=lambda row: row["id"])
    assert read == shown(table, DAY)
    assert sorted(first_rows(day, 9).to_pylist(), key=lambda row: row["id"]) == read
    assert pa.schema([field.remove_metadata() for field in frame.toArrow().schema]) == day.schema


@pytest.mark.proof
@pytest.mark.spark
def test_an_enrichment_reads_the_table_of_another_and_records_the_version(spark, lake):
    changed(lake)
    first = run_day(MOODS, DAY, "r1", checks="data_quality.day:check")
    assert [verdict.sentence for verdict in first.verdicts if verdict.holds_back] == []
    published = publish(first)
    again = AsyncFunctionLookup(
        name="again", keys={"k": "cast(score as string)"}, returns="width INT", timeout=1.0,
        max_concurrency=2, function=LengthOf,
    )  # fmt: skip
    after = Enrichment(
        name="after",
        input=Input(path="out", format="delta", row_id=["id"]),
        lookups=[again],
        output=Output(path="last"),
    )
    second = run_day(after, DAY, "r2", checks="data_quality.day:check")
    assert [verdict.sentence for verdict in second.verdicts if verdict.holds_back] == []
    publish(second)
    (record,) = run_records.load("after")
    assert record.facts.input_version == published.published_version
    rows = DeltaTable("last").to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["score"]) for row in rows) == [
        (1, 1.0),
        (3, 2.0),
        (5, 1.0),
        (6, None),
        (7, None),
    ]
    # the files of `out` hold audit columns too
    assert not [name for name in rows[0] if name.startswith("_")]


def test_a_delta_table_has_the_days_and_files_of_its_last_version(lake):
    assert last_day(MOODS.input) == NEXT
    (old,) = files_in(MOODS.input, DAY)
    table = changed(lake)
    assert old not in files_in(MOODS.input, DAY)
    assert DeltaInput.at("lake", "date", 0).files(DAY) == [old]
    table.delete(f"date = '{NEXT}'")
    assert (last_day(MOODS.input), files_in(MOODS.input, NEXT)) == (DAY, [])
    with pytest.raises(NoInput) as without:
        find_input(MOODS, NEXT)
    version = DeltaTable(lake).version()
    assert str(without.value) == (
        f"moods: input: lake has no rows of {NEXT} in version {version}; nothing can be enriched."
    )
    table.delete()
    assert refusal(last_day, MOODS.input) == "input: lake has no rows of any day."


def test_a_table_that_does_not_exist_yet_is_a_day_without_input(lake):
    after = dataclasses.replace(MOODS, input=Input(path="later", format="delta"))
    with pytest.raises(NoInput) as without:
        find_input(after, DAY)
    assert str(without.value) == (
        "moods: input: there is no Delta table at later; nothing can be enriched."
    )
    assert files_in(after.input, DAY) == []


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "{}"])
def test_a_clone_reads_the_files_of_the_other_table(lake, tmp_path, form):
    added = action(lake, "add")
    day = DAY if DAY in added["path"] else NEXT
    place = urllib.parse.quote(form.format(tmp_path / "lake" / added["path"]), safe="/:")
    commit(lake, {"add": added | {"path": place}}, {
        "remove": {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}
    })  # fmt: skip
    (file,) = files_in(MOODS.input, day)
    assert Path(file.place) == tmp_path / "lake" / added["path"]
    assert find_input(MOODS, day).rows


def test_a_file_that_vanished_after_the_log_was_read_is_named(lake):
    (file,) = files_in(MOODS.input, DAY)
    Path(file.place).unlink()
    assert refusal(find_input, MOODS, DAY).startswith(
        f"moods: input: {file.place} is not a readable Parquet file"
    )


# -- refused by name
# --------------------------------------------------------------------------------------------------
def refusal(function, *arguments):
    with pytest.raises(DeclarationError) as refused:
        function(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def commit(lake, *actions):
    log = lake / "_delta_log"
    (log / f"{len(list(log.glob('*.json'))):020}.json").write_text(
        "\n".join(map(json.dumps, actions))
    )


def needs(*features):
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": list(features),
            "writerFeatures": list(features),
        }
    }


def action(lake, kind):
    lines = (lake / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    return next(json.loads(line)[kind] for line in lines if kind in json.loads(line))


def deletion_vector(*rows):
    """Inline, as Delta's protocol has it: a magic number, one Roaring bitmap with one array of
    16-bit numbers.
    """
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + struct.pack(
        f"<{len(rows)}H", *rows
    )
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    text = (
        base64.b85encode(data + bytes(-len(data) % 4)).decode().translate(str.maketrans(B85, Z85))
    )
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_day_with_a_deletion_vector_is_refused_and_the_days_without_one_are_read(lake, scheme):
    added = action(lake, "add")
    (with_vector,) = [day for day in (DAY, NEXT) if day in added["path"]]
    gone = {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}
    commit(
        lake, needs("deletionVectors"), {"remove": gone},
        {"add": added | {"deletionVector": deletion_vector(0)}}
    )  # fmt: skip
    root = f"{lake.resolve()}" if scheme else "lake"
    moods = dataclasses.replace(MOODS, input=Input(path=scheme + root, format="delta"))
    message = refusal(find_input, moods, with_vector)
    assert message.startswith(f"moods: input: {root}/{added['path']} has a deletion vector")
    assert find_input(moods, NEXT if with_vector == DAY else DAY).rows


def test_a_deletion_vector_that_is_gone_is_refused(lake):
    added = action(lake, "add")
    gone = {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}
    vector = deletion_vector(0) | {
        "storageType": "p",
        "pathOrInlineDv": "file:///gone.bin",
        "offset": 1,
    }
    commit(
        lake, needs("deletionVectors"), {"remove": gone}, {"add": added | {"deletionVector": vector}}
    )  # fmt: skip
    message = refusal(find_input, MOODS, DAY)
    assert message.startswith("moods: a deletion vector of the Delta table ")


def test_a_column_mapping_is_refused(lake):
    metadata = action(lake, "metaData")
    types = json.loads(metadata["schemaString"])
    for number, field in enumerate(types["fields"], 1):
        field["metadata"] = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": f"col-{number}",
        }
    mapped = metadata | {
        "schemaString": json.dumps(types),
        "configuration": {
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": "3",
        },
    }
    added = action(lake, "add")
    by_number = {"path": "a.parquet", "partitionValues": {"col-3": DAY}}
    shutil.rmtree(lake / "_delta_log")
    (lake / "_delta_log").mkdir()
    commit(
        lake,
        needs("columnMapping"),
        {"metaData": mapped},
        {"add": added | by_number | {"stats": None}},
    )
    assert "lake has a column mapping (delta.columnMapping.mode is 'name')" in refusal(
        find_input, MOODS, DAY
    )


@pytest.mark.parametrize("of_list", [False, True])
def test_a_table_that_may_hold_variants_is_refused_only_if_it_holds_them(lake, of_list):
    """delta-rs lets each table with deletion vectors hold them."""
    commit(lake, needs("deletionVectors", "variantType"))
    assert find_input(MOODS, DAY).rows == 3
    metadata = action(lake, "metaData")
    types = json.loads(metadata["schemaString"])
    kind = {"type": "array", "elementType": "variant", "containsNull": True}
    column = {"name": "v", "type": kind if of_list else "variant", "nullable": True}
    types["fields"].append(column | {"metadata": {}})
    commit(lake, {"metaData": metadata | {"schemaString": json.dumps(types)}})
    assert "has the Delta feature variantType" in refusal(find_input, MOODS, DAY)


@pytest.mark.parametrize("feature", ["variantShredding-preview", "fooBar", "catalogManaged"])
def test_an_unknown_table_feature_is_refused_by_name(lake, feature):
    commit(lake, needs(feature))
    message = f"lake has the Delta feature {feature}, which Tidegate does not read"
    assert f"input: {message}; drop the feature, or write" in refusal(find_input, MOODS, DAY)
    if feature != "variantShredding-preview":  # deltalake does not open the table
        with pytest.raises(TidegateError, match=f"^table {message}. Drop the feature, or move"):
            table_at("lake")


@pytest.mark.parametrize(
    ("by", "days", "message"),
    [
        (
            [],
            dt.date(2026, 1, 1),
            "input: other is partitioned by nothing; it must be by date alone",
        ),
        (
            ["date", "k"],
            dt.date(2026, 1, 1),
            "input: other is partitioned by date, k; it must be by date alone",
        ),
        (["date"], 20260101, "input: date in other is long; the column of the day must be a date"),
    ],
)
def test_a_table_of_other_partitions_is_refused(lake, by, days, message):
    write_deltalake(
        "other", pa.table({"id": [1], "k": ["a"], "date": [days]}), partition_by=by or None
    )
    assert message in refusal(
        find_input, dataclasses.replace(MOODS, input=Input(path="other", format="delta")), DAY
    )


def test_a_delta_table_without_partitions_is_read_as_its_only_partition(lake):
    write_deltalake("whole", pa.table({"id": [1, 2], "k": ["a", "bb"]}))
    whole = Input(path="whole", format="delta", partition="part", every=["all"])
    found = find_input(dataclasses.replace(MOODS, input=whole), "all")
    assert (found.rows, found.names, last_day(whole)) == (2, ["id", "k"], "all")
    named = dataclasses.replace(MOODS, input=dataclasses.replace(whole, partition="k"))
    assert "whole is not partitioned, and its column 'k' has the name of the" in refusal(
        find_input, named, "all"
    )
    several = dataclasses.replace(MOODS, input=dataclasses.replace(whole, every=["eu", "us"]))
    assert "whole is partitioned by nothing; it must be by part alone" in refusal(
        find_input, several, "eu"
    )


def test_days_written_as_text_are_read(lake):
    write_deltalake(
        "other", pa.table({"id": [1], "k": ["a"], "date": [DAY]}), partition_by=["date"]
    )
    assert find_input(
        dataclasses.replace(MOODS, input=Input(path="other", format="delta")), DAY
    ).names == ["id", "k"]


def test_a_place_without_a_table_and_a_version_that_is_missing_are_refused(lake):
    Path("folder", f"date={DAY}").mkdir(parents=True)
    assert "folder is not a Delta table" in refusal(DeltaInput.at, "folder", "date")
    assert refusal(DeltaInput.at, "lake", "date", 9).startswith(
        "input: version 9 of lake cannot be read: "
    )
    (lake / "_delta_log" / f"{0:020}.json").write_text("{")
    assert refusal(DeltaInput.at, "lake", "date").startswith("input: lake cannot be read: ")


def test_an_unknown_format_is_refused_and_the_default_keeps_the_fingerprint():
    assert refusal(lambda: Input(path="a", format="orc")) == (
        "input: format is 'orc'; it must be one of: parquet, csv, json, delta, iceberg."
    )
    plain = dataclasses.replace(MOODS, input=Input(path="lake"))
    assert (
        plain.fingerprint
        == dataclasses.replace(MOODS, input=Input(path="lake", format="parquet")).fingerprint
    )
    assert plain.fingerprint != MOODS.fingerprint
