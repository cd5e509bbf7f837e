"""The files of a day of input are read together with the types that Spark gives them, or refused
before it starts.
"""

import base64
import datetime as dt
import decimal
import uuid
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from deltalake import DeltaTable, Schema

from jobs.errors import DeclarationError
from jobs.input.day import BYTES_PER_BATCH, UNBOUNDED, of_files
from jobs.run.day import run_day
from jobs.run.engines.stages import SparkStage
from jobs.storage.urls import path_from_spark
from jobs.tables.publishing import publish
from jobs.task.output_files import TaskFiles
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output

AT = dt.datetime(2013, 1, 10, 5)  # noqa: DTZ001  # of a column without a zone
NOON = dt.time(12)
CARRIED = {
    "tiny": pa.array([1], pa.int8()),
    "tiny_u": pa.array([255], pa.uint8()),
    "small_u": pa.array([1], pa.uint16()),
    "int_u": pa.array([2**32 - 1], pa.uint32()),
    "big_u": pa.array([2**64 - 1], pa.uint64()),
    "single": pa.array([0.5], pa.float32()),
    "truth": pa.array([True]),
    "day": pa.array([AT.date()], pa.date64()),
    "at": pa.array([AT], pa.timestamp("us")),
    "at_utc": pa.array([AT], pa.timestamp("ms", "UTC")),
    "at_berlin": pa.array([AT], pa.timestamp("us", "Europe/Berlin")),
    "lasted": pa.array([dt.timedelta(seconds=1)], pa.duration("us")),
    "text": pa.array(["a"], pa.large_string()),
    "word": pa.array(["a"]).dictionary_encode(),
    "json": pa.array(["{}"], pa.json_()),
    "bytes": pa.array([b"abcd"], pa.binary(4)),
    "price": pa.array([decimal.Decimal("1.10")], pa.decimal128(7, 2)),
    "pair": pa.array([[1, 2]], pa.list_(pa.uint8(), 2)),
    "counts": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.uint16())),
    "place": pa.array(
        [{"lat": 1, "tags": ["a"]}],
        pa.struct([("lat", pa.uint32()), ("tags", pa.list_(pa.string()))]),
    ),
    "nothing": pa.array([None], pa.null()),
}


class LengthOf:
    async def async_invoke(self, keys):
        return [{"score": float(len(keys["k"]))}]


def day_of(folder, *tables, **options):
    """Of a file each."""
    folder.mkdir(exist_ok=True)
    files = [folder / f"part-{number}.parquet" for number in range(len(tables))]
    for file, columns in zip(files, tables, strict=True):
        pq.write_table(pa.table(columns), file, **options)
    return of_files(files)


def refusal(folder, *tables):
    with pytest.raises(DeclarationError) as refused:
        day_of(folder, *tables)
    return str(refused.value).replace(str(folder), "")


@pytest.mark.spark
@pytest.mark.parametrize(
    "options", [{}, {"use_deprecated_int96_timestamps": True}, {"version": "1.0"}], ids=str
)
def test_spark_gets_the_types_that_its_own_inference_finds(spark, tmp_path, options):
    # of files alike Spark finds those of nested columns
    day = day_of(tmp_path, CARRIED, {"other": [1]}, **options)
    found = spark.read.parquet(str(day.files[0]))
    read = day.read(spark).where("other IS NULL").drop("other")
    assert read.schema == found.schema
    assert read.collect() == found.collect()


def test_the_types_of_nested_columns_are_known_without_spark(tmp_path):
    assert day_of(tmp_path, {"tags": [["a"]]}, {"tags": [["b"]]}).spark_types() is not None


@pytest.mark.spark
def test_spark_gets_the_types_of_files_that_spark_wrote(spark, tmp_path):
    wide = (
        "struct(id, array(id, null) AS ids, map('a', named_struct('b', id)) AS map, "
        "current_timestamp() AS at) AS s"
    )
    flat = ("date '2013-01-10' AS day", "id / 2.0 AS half", "CAST('a' AS BINARY) AS bytes")
    rows = spark.range(3).selectExpr(
        "*", wide, "parse_json('{\"a\": 1}') AS variant", "interval 1 day AS lasted", *flat
    )
    rows.write.parquet(str(tmp_path / "rows"))
    day, found = (
        of_files(sorted(tmp_path.glob("rows/*.parquet"))),
        spark.read.parquet(str(tmp_path / "rows")),
    )
    assert day.read(spark).schema == found.schema
    assert day.read(spark).orderBy("id").toArrow() == found.orderBy("id").toArrow()


@pytest.mark.spark
@pytest.mark.parametrize(
    "options", [{}, {"use_deprecated_int96_timestamps": True}, {"version": "1.0"}], ids=str
)
def test_the_types_that_a_day_publishes_are_reported_without_spark(spark, tmp_path, options):
    day = day_of(tmp_path, CARRIED, **options)
    read = day.read(spark)
    files = TaskFiles.of(str(tmp_path / "run"), read.schema, ())

    def task(batches, _facts):
        return files.write(batches, 0)

    (written,) = SparkStage(spark).run(task, read)
    assert (
        Schema.from_arrow(day.schema).fields
        == Schema.from_arrow(pq.read_schema(written.file.place)).fields
    )


@pytest.mark.spark
def test_spark_reads_the_file_of_a_name_that_is_also_a_pattern(spark, tmp_path):
    names = ["orders[1].parquet", "orders1.parquet", "a{b,c}.parquet"]
    for number, name in enumerate(names):
        pq.write_table(pa.table({"n": [number]}), tmp_path / name)
    for number, name in enumerate(names):
        day = of_files([tmp_path / name])
        (row,) = day.read(spark).select("n", "_metadata.file_path").collect()
        assert row.n == number
        assert path_from_spark(row.file_path) == str(tmp_path / name)


@pytest.mark.spark
def test_spark_bounds_the_bytes_of_a_batch_where_rows_are_wide(spark, tmp_path):
    texts = ["".join(chr(33 + (row * place) % 89) for place in range(10_000)) for row in range(20)]
    narrow, wide = (
        day_of(tmp_path / "narrow", {"id": [1]}),
        day_of(tmp_path / "wide", {"id": [1]}, {"text": texts}),
    )
    spark.conf.unset(BYTES_PER_BATCH)
    usual = spark.conf.get(BYTES_PER_BATCH)
    for day, bound in ((narrow, str(UNBOUNDED)), (wide, usual), (narrow, str(UNBOUNDED))):
        assert day.read(spark).mapInArrow(lambda rows: rows, day.spark_types()).count() == day.rows
        assert spark.conf.get(BYTES_PER_BATCH) == bound
    spark.conf.unset(BYTES_PER_BATCH)


@pytest.mark.spark
def test_a_column_that_some_files_lack_is_null_in_their_rows(spark, tmp_path):
    day = day_of(tmp_path, {"id": [1], "old": ["a"]}, {"new": [0.5], "ID": [2]})
    assert day.names == ["id", "old", "new"]
    rows = sorted(day.read(spark).collect())
    assert [row.asDict() for row in rows] == [
        {"id": 1, "old": "a", "new": None},
        {"id": 2, "old": None, "new": 0.5},
    ]


D = decimal.Decimal
PAIRS = [  # of two files: in the first, in the second, read as
    (pa.array([1], pa.int32()), pa.array([2**40]), pa.int64()),
    (pa.array([1], pa.int8()), pa.array([2**20], pa.int32()), pa.int32()),
    (pa.array([255], pa.uint8()), pa.array([2**40]), pa.int64()),
    (pa.array([2**64 - 1], pa.uint64()), pa.array([1]), pa.decimal128(20, 0)),
    (pa.array([1], pa.int32()), pa.array([0.5]), pa.float64()),
    (pa.array([1], pa.int32()), pa.array([D("0.50")], pa.decimal128(12, 2)), pa.decimal128(12, 2)),
    (pa.array([0.5], pa.float32()), pa.array([0.1]), pa.float64()),
    (pa.array([D("1.1")], pa.decimal128(5, 1)), pa.array([D("0.001")], pa.decimal128(12, 3)), pa.decimal128(12, 3)),
    (pa.array([AT.date()]), pa.array([AT], pa.timestamp("us")), pa.timestamp("us")),
    (pa.array([AT], pa.timestamp("us")), pa.array([AT], pa.timestamp("us", "UTC")), pa.timestamp("us", "UTC")),
    (pa.array([b"a"]), pa.array(["b"]), pa.string()),
    (pa.nulls(1), pa.array([5], pa.int64()), pa.int64()),
    (pa.nulls(1), pa.array([5], pa.int8()), pa.int8()),
    (pa.array([[]], pa.list_(pa.null())), pa.array([[2**40]]), pa.list_(pa.int64())),
    (pa.array([[1]], pa.list_(pa.int32())), pa.array([[2**40]]), pa.list_(pa.int64())),
    (pa.array([{"x": 1}]), pa.array([{"y": "b", "X": 2}]), pa.struct([("x", pa.int64()), ("y", pa.string())])),
    (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())), pa.array([[("b", 2)]], pa.map_(pa.string(), pa.int64())),
     pa.map_(pa.string(), pa.int64())),
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_types_are_read_as_the_type_that_holds_both(spark, tmp_path, order):
    files = [
        {f"c{number}": pair[place] for number, pair in enumerate(PAIRS)} | {"file": [place]}
        for place in order
    ]
    day = day_of(tmp_path, *files)
    assert not any(column.untyped for column in day.columns if not pa.types.is_nested(column.kind))
    read = day.read(spark).orderBy("file").toArrow()
    for number, (first, second, kind) in enumerate(PAIRS):
        column = day.schema.field(f"c{number}").type
        if pa.types.is_struct(kind):  # its fields stand in the order in which they came
            assert {field.name.lower(): field.type for field in column} == {
                field.name: field.type for field in kind
            }
            values = [
                {name.lower(): value for name, value in row.items()}
                for row in read[f"c{number}"].to_pylist()
            ]
            assert values == [{"x": 1, "y": None}, {"x": 2, "y": "b"}]
            continue
        assert column == kind
        wanted = [*first.cast(kind).to_pylist(), *second.cast(kind).to_pylist()]
        assert read[f"c{number}"].to_pylist() == wanted, kind


@pytest.mark.spark
def test_columns_of_later_files_are_read_also_if_their_types_are_equal(spark, tmp_path):
    day = day_of(
        tmp_path,
        {"id": [1], "tags": [["a"]]},
        {"id": [2], "labels": [["b"]]},
        {"id": [3], "tags": [["c"]]},
    )
    rows = sorted(day.read(spark).collect())
    assert [tuple(row) for row in rows] == [(1, ["a"], None), (2, None, ["b"]), (3, ["c"], None)]


@pytest.mark.parametrize("names", [("ID", "id"), ("id", "ID"), ("id", "id")])
def test_two_columns_whose_names_differ_only_in_case_are_refused(tmp_path, names):
    pq.write_table(pa.table([[1], ["a"]], names=names), tmp_path / "part.parquet")
    message = (
        f"{names[0]!r} and {names[1]!r} in .*part.parquet differ only in case, which Spark "
        "ignores. Rename one."
    )
    with pytest.raises(DeclarationError, match=message):
        of_files([tmp_path / "part.parquet"])


@pytest.mark.proof
@pytest.mark.spark
def test_a_column_of_a_later_file_is_enriched_checked_and_published(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("raw/date=2013-01-10").mkdir(parents=True)
    day_of(
        Path("raw/date=2013-01-10"),
        {"id": [1, 2]},
        {"id": pa.array([3], pa.int32()), "k": ["x"], "more": [0.5]},
    )
    mood = AsyncFunctionLookup(
        name="mood",
        keys={"k": "k"},
        returns="score DOUBLE",
        timeout=1.0,
        max_concurrency=2,
        function=LengthOf,
    )
    declared = Enrichment(
        name="things",
        input=Input(path="raw", row_id=["k"]),
        lookups=[mood],
        output=Output(path="published"),
    )
    record = run_day(declared, "2013-01-10", "r1", checks="data_quality.day:check")
    assert [verdict.sentence for verdict in record.verdicts if verdict.holds_back] == []
    publish(record)
    rows = sorted(DeltaTable("published").to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["k"], row["more"], row["score"]) for row in rows] == [
        (1, None, None, None),
        (2, None, None, None),
        (3, "x", 0.5, 1.0),
    ]


@pytest.mark.spark
def test_a_file_without_rows_does_not_decide_types_unless_all_files_are_empty(spark, tmp_path):
    empty = {"k": pa.nulls(0), "n": ["a"][:0], "s": pa.nulls(0)}
    day = day_of(
        tmp_path, empty, {"k": ["x"], "n": [1], "s": [{"y": 2}]}, {"k": pa.array([], pa.int8())}
    )
    assert [tuple(row) for row in day.read(spark).collect()] == [("x", 1, (2,))]
    assert day.names == ["k", "n", "s"]
    without = day_of(tmp_path, {"k": pa.array([], pa.string())}, {"k": pa.array([], pa.int64())})
    assert (without.names, without.rows) == (["k"], 0)


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ([1], ["1"], "int64 in /part-0.parquet, but string in /part-1.parquet"),
        ([1], [1.0], "int64 in /part-0.parquet, but double in /part-1.parquet"),
        (
            pa.array([AT.date()]),
            pa.array([AT], pa.timestamp("us", "UTC")),
            "date32[day] in /part-0.parquet, but timestamp[us, tz=UTC] in /part-1.parquet",
        ),
    ],
)
def test_a_column_of_two_types_is_named_with_both_files(tmp_path, one, other, message):
    assert refusal(tmp_path, {"c": one}, {"c": other}) == (
        f"input: 'c' is {message}. A column has one type in all files of a day: write one of them "
        "again with the other's type."
    )


def test_a_column_that_is_all_null_in_one_file_needs_the_type_of_the_others(tmp_path):
    message = (
        "input: 'c' has no type in /part-{}.parquet, as all of it is null there. Write it with its "
        "type, string in "
    )
    assert (
        refusal(tmp_path, {"c": pa.nulls(1)}, {"c": ["a"]})
        == message.format(0) + "/part-1.parquet."
    )
    assert (
        refusal(tmp_path, {"c": ["a"]}, {"c": pa.nulls(1)})
        == message.format(1) + "/part-0.parquet."
    )


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            pa.array([NOON], pa.time64("us")),
            "a time of day, which a Delta table cannot store. Write it as text.",
        ),
        (
            pa.array([NOON], pa.time32("ms")),
            "a time of day, which a Delta table cannot store. Write it as text.",
        ),
        (pa.array([[NOON]]), "a time of day, which a Delta table cannot store. Write it as text."),
        (
            pa.array([AT], pa.timestamp("ns")),
            "a timestamp in nanoseconds, which Spark does not read. Write it in microseconds.",
        ),
        (
            pa.array([decimal.Decimal(1)], pa.decimal256(50, 2)),
            "a decimal of more than 38 digits, which Spark does not read. Write it with fewer.",
        ),
        (
            pa.array([uuid.UUID(int=1).bytes], pa.uuid()),
            "of Parquet's type UUID, which a Delta table cannot store. Write it as another type.",
        ),
        (
            pa.array([np.float16(1)], pa.float16()),
            (
                "of Parquet's type FLOAT16, which a Delta table cannot store. Write it as another "
                "type."
            ),
        ),
        (
            pa.array([[{"x": 1, "X": 2}]]),
            (
                "a struct with fields that differ only in case, which Spark ignores, or has such "
                "a struct. Rename a field."
            ),
        ),
    ],
)
def test_a_column_that_cannot_be_published_is_named_with_a_cure(tmp_path, column, message):
    assert refusal(tmp_path, {"id": [1], "c": column}) == (
        f"input: 'c' in /part-0.parquet is {message}"
    )


def test_an_interval_of_another_program_is_refused_and_not_published_as_bytes(tmp_path):
    file = tmp_path / "part-0.parquet"
    duckdb.sql(f"COPY (SELECT 1 AS id, INTERVAL 3 days AS c) TO '{file}'")
    with pytest.raises(DeclarationError, match=r"'c' .* is of Parquet's type INTERVAL"):
        of_files([file])


def test_a_variant_of_another_program_is_refused_and_not_published_as_bytes(tmp_path):
    file = tmp_path / "part-0.parquet"
    duckdb.sql(f"COPY (SELECT 1 AS id, {{'a': 7}}::VARIANT AS c) TO '{file}'")
    with pytest.raises(DeclarationError, match=r"'c' in .* is a variant"):
        of_files([file])


class Keys(pe.KmsClient):
    def wrap_key(self, key, _name):
        return base64.b64encode(key)


def test_a_file_with_an_encrypted_column_is_refused_before_a_task_reads_it(tmp_path):
    file = tmp_path / "part-0.parquet"
    rows = pa.table({"id": [1], "name": ["a"]})
    secret = pe.CryptoFactory(lambda _: Keys()).file_encryption_properties(
        pe.KmsConnectionConfig(),
        pe.EncryptionConfiguration("f", column_keys={"c": ["name"]}, plaintext_footer=True),
    )
    with pq.ParquetWriter(file, rows.schema, encryption_properties=secret) as writer:
        writer.write_table(rows)
    with pytest.raises(DeclarationError) as refused:
        of_files([file])
    assert str(refused.value) == (
        f"input: {file} is not a readable Parquet file: columns are encrypted. Write it again, "
        "or remove it."
    )


@pytest.mark.parametrize(
    ("name", "values"), [("c\0d", [1]), ("c", pa.array([{"a\0b": 1}])), ("\0", [[1]])]
)
def test_a_column_with_a_nul_in_a_name_is_refused(tmp_path, name, values):
    assert refusal(tmp_path, {"id": [1], name: values}) == (
        f"input: {name!r} in /part-0.parquet is named with the character NUL, or has such a "
        "field, and is published without its values. Rename it."
    )


@pytest.mark.spark
def test_odd_names_of_columns_days_and_folders_are_published_as_they_are(
    spark, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    odd = ["a b", "a=b", "a%20b", "a#b", "a?b", "día", "a,b", "a;b", "a{b}", "a(b)", "a\tb", "a'b", 'a"b', "a:b", "a/b",
           "a\\b", "", " ", "_key", "_at", "_position", "run_id", "a[0]", "a-b", "1a", "select",
           "rows"]  # fmt: skip
    folder = Path("my raw's #1% día", "日付=2013-01-10")
    folder.mkdir(parents=True)
    day_of(folder, {"k": ["x"]} | {name: [name] for name in odd})
    mood = AsyncFunctionLookup(
        name="mood",
        keys={"k": "`a b`"},
        returns="score DOUBLE",
        timeout=1.0,
        max_concurrency=2,
        function=LengthOf,
    )
    row_id = [name for name in odd if name not in ("_key", "_at", "run_id")]
    declared = Enrichment(
        name="things",
        input=Input(path=str(folder.parent), partition="日付", row_id=row_id),
        lookups=[mood],
        output=Output(path="my out's #1% día"),
    )
    record = run_day(declared, "2013-01-10", "r1", checks="data_quality.day:check")
    assert [verdict.sentence for verdict in record.verdicts if verdict.holds_back] == []
    publish(record)
    (row,) = DeltaTable(declared.output.path).to_pyarrow_table().to_pylist()
    assert {name: row[name] for name in odd} == {name: name for name in odd}
    assert (row["score"], row["日付"]) == (3.0, dt.date(2013, 1, 10))
    (audit,) = DeltaTable(f"{declared.output.path}__audit").to_pyarrow_table().to_pylist()
    assert {name: audit[name] for name in row_id} == {name: name for name in row_id}
