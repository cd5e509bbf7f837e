"""Days of CSV and JSON files are read with the declared types, row for row, or refused in one
sentence.
"""

import datetime as dt
import decimal
import gzip
import os
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from jobs.errors import DeclarationError, NoInput
from jobs.input import staged_files
from jobs.input.day import files_in, find_input
from jobs.run.day import run_day
from jobs.storage.stored_files import StoredFile
from jobs.tables.leases.day_leases import leased
from jobs.tables.old_files import vacuum
from jobs.tables.publishing import publish
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output

DAY = "2026-01-01"
FOLDER = Path("raw", f"date={DAY}")
UTC = dt.UTC
COLUMNS = "id BIGINT, k STRING, at TIMESTAMP, day DATE, right BOOLEAN, price DECIMAL(10,2)"
HEADER = "id,k,at,day,right,price,more\n"
FIRST = (
    1,
    "NA",
    dt.datetime(2026, 1, 1, 10, tzinfo=UTC),
    dt.date(2026, 1, 1),
    True,
    decimal.Decimal("1.10"),
)


class LengthOf:
    async def async_invoke(self, keys):
        return [{"score": float(len(keys["k"]))}]


def declared(schema, *, kind="csv", **more):
    mood = AsyncFunctionLookup(
        name="mood",
        keys={"k": "k"},
        returns="score DOUBLE",
        timeout=1.0,
        max_concurrency=2,
        function=LengthOf,
    )
    source = Input(path="raw", format=kind, schema=schema)
    return Enrichment(name="moods", input=source, lookups=[mood], output=Output(path="out"), **more)


@pytest.fixture
def raw(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FOLDER.mkdir(parents=True)
    return FOLDER


def rows_of(enrichment):
    day = find_input(enrichment, DAY)
    return [
        tuple(row.values())
        for file in day.files
        for row in pq.read_table(file, partitioning=None).to_pylist()
    ]


def test_csv_is_read_in_the_order_of_its_rows_with_the_declared_columns_and_types(raw):
    (raw / "b.csv").write_text(
        f'{HEADER}1,NA,2026-01-01 10:00:00,2026-01-01,true,1.10,x\n2,"",,,,,\n\n,"a\nb",,,FALSE,,\n'
    )
    text = (
        "price,id,k,at,right,day\n2,3,c,2026-01-01T10:00:00.5+02:00,True,\n1,4,d,2026-01-01 "
        "10:00Z,,\n"
    )
    (raw / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    (raw / "_c.csv").write_text("not input")
    early = dt.datetime(2026, 1, 1, 8, 0, 0, 500_000, tzinfo=UTC)
    assert rows_of(declared(COLUMNS)) == [
        (3, "c", early, None, True, decimal.Decimal("2.00")),
        (4, "d", FIRST[2], None, None, decimal.Decimal("1.00")),
        FIRST,
        (2, "", None, None, None, None),
        (None, "a\nb", None, None, False, None),
    ]


def test_json_is_read_line_by_line_with_the_declared_columns_and_types(raw):
    first = '"k":"NA","at":"2026-01-01 10:00:00","day":"2026-01-01","right":true,"price":"1.10"'
    place = '"place":{"lat":1.5,"on":"2026-01-02","zip":5},"tags":["a",null]'
    (raw / "a.jsonl").write_text(f'{{"id":1,{first},{place},"more":{{}}}}\n{{"price":2}}\n')
    (raw / "b.json").write_text("")
    nested = f"{COLUMNS}, place STRUCT<lat: DOUBLE, on: DATE>, tags ARRAY<STRING>"
    assert rows_of(declared(nested, kind="json")) == [
        (*FIRST, {"lat": 1.5, "on": dt.date(2026, 1, 2)}, ["a", None]),
        (None, None, None, None, None, decimal.Decimal("2.00"), None, None),
    ]


def test_a_row_larger_than_a_block_and_many_rows_keep_their_order(raw):
    with (raw / "a.csv").open("w") as file:
        file.write("id,k\n")
        file.writelines(f"{number},{'x' * 100}\n" for number in range(100_000))
    found = rows_of(declared("id INT, k STRING"))
    assert [number for number, _ in found] == list(range(100_000))


@pytest.mark.spark
def test_a_day_of_csv_is_enriched_checked_and_published(spark, raw):
    (raw / "a.csv").write_text("id,k\n1,a\n2,bb\n")
    (raw / "b.csv").write_text("id,k\n3,\n")
    record = run_day(declared("id INT, k STRING"), DAY, "r1", checks="data_quality.day:check")
    assert [verdict.sentence for verdict in record.verdicts if verdict.holds_back] == []
    publish(record)
    rows = DeltaTable("out").to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["k"], row["score"]) for row in rows) == [
        (1, "a", 1.0),
        (2, "bb", 2.0),
        (3, None, None),
    ]
    audit = DeltaTable("out__audit").to_pyarrow_table().to_pylist()
    places = sorted(
        (Path(row["_source_file"]).name.partition("-")[0], row["_source_row"]) for row in audit
    )
    assert places == [("a.csv", 0), ("a.csv", 1), ("b.csv", 0)]


def test_an_unchanged_file_is_converted_once_and_a_changed_one_again(raw):
    (raw / "a.csv").write_text("id,k\n1,a\n")
    enrichment = declared("id INT, k STRING")
    (first,) = find_input(enrichment, DAY).files
    written = Path(first).stat().st_ino
    assert (find_input(enrichment, DAY).files, Path(first).stat().st_ino) == ((first,), written)
    (raw / "a.csv").write_text("id,k\n1,a\n2,b\n")
    (second,) = find_input(enrichment, DAY).files
    assert (second != first, find_input(enrichment, DAY).rows) == (True, 2)
    assert {path for path in Path("out").rglob("*") if path.is_file()} == {
        Path(first),
        Path(second),
    }


def test_files_of_a_table_with_the_same_name_size_and_time_are_each_copied(raw):
    """As another program adds them to a Delta table on a store."""
    files = []
    for number, name in enumerate(("x", "y")):
        file = Path(name, "part-0.parquet")
        file.parent.mkdir()
        pq.write_table(pa.table({"id": [number]}), file)
        os.utime(file, (1, 1))
        files.append(StoredFile.at(str(file)))
    assert files[0].version == files[1].version
    copies = staged_files.staged(
        files, Input(path="s3://lake/moods", format="delta"), "copies", hidden=False
    )
    assert [pq.read_table(copy)["id"].to_pylist() for copy in copies] == [[0], [1]]


def test_processes_with_the_same_id_copy_a_file_without_a_conflict(tmp_path):
    target = tmp_path / f"{'x' * 230}-copy.parquet"  # a draft's name is no longer than its file's
    with staged_files.copy_at(str(target)) as killed:
        killed.write_bytes(b"half")  # as a killed process of a container leaves it
        with staged_files.copy_at(str(target)) as other:
            assert not other.exists()
            other.write_bytes(b"whole")
        assert target.read_bytes() == b"whole"


def test_vacuum_removes_old_converted_files_unless_the_day_is_running(
    raw,
):
    (raw / "a.csv").write_text("id,k\n1,a\n")
    (used,) = map(Path, find_input(declared("id INT, k STRING"), DAY).files)
    old = used.with_name("old.parquet")
    old.write_bytes(used.read_bytes())
    ago = time.time() - timedelta(days=8).total_seconds()
    os.utime(old, (ago, ago))
    with leased("out", DAY, "r1"):
        vacuum("out", older_than=timedelta(0))
        assert (used.exists(), old.exists()) == (True, True)
    vacuum("out")
    assert (used.exists(), old.exists()) == (True, False)
    vacuum("out", older_than=timedelta(0))
    assert not used.exists()


# -- refused
# --------------------------------------------------------------------------------------------------
def refusal(function, *arguments):
    with pytest.raises(DeclarationError) as refused:
        function(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("csv", "id,k\n1,a\n2\n", "line 3: the row has 1 value, the header 2."),
        ("csv", "id,k\n1,a\nten,b\n", "line 3, column id: expected INT, found 'ten'."),
        (
            "csv",
            "id;k\n1;a\n",
            "the header has no column id, found 'id;k'. The first line must name the columns, ",
        ),
        ("csv", "", "the file is empty, and needs a header."),
        (
            "json",
            '{"id":1,"k":"a"}\n{"id":"ten"}\n',
            "line 2, column id: expected INT, found 'ten'.",
        ),
        ("json", '{"id":1.5}\n', "line 1, column id: expected INT, found '1.5'."),
        ("json", '{"id":1\n', "line 1: no JSON at character 8: Expecting ',' delimiter."),
        ("json", '[{"id":1}]', "line 1: expected an object, found '[{\"id\": 1}]'."),
    ],
)
def test_a_file_that_does_not_hold_the_declared_columns_is_named_with_the_reason(
    raw, kind, text, reason
):
    (raw / f"a.{kind}").write_text(text)
    message = refusal(find_input, declared("id INT, k STRING", kind=kind), DAY)
    assert message.startswith(f"moods: input: raw/date={DAY}/a.{kind}: {reason}")
    assert not [path for path in Path("out").rglob("*") if path.is_file()]


def test_a_gzip_file_is_read_to_its_end_or_refused(raw):
    first, second = gzip.compress(b"id,k\n1,a\n"), gzip.compress(b"2,b\n")
    (raw / "a.csv.gz").write_bytes(first + second)
    assert rows_of(declared("id INT, k STRING")) == [(1, "a"), (2, "b")]
    for wrong in (first + second[:-9], first + second[:-2]):
        (raw / "a.csv.gz").write_bytes(wrong)
        assert "a.csv.gz is not a whole gzip file. Write it again." in refusal(
            find_input, declared("id INT, k STRING"), DAY
        )


def test_personal_values_stay_out_of_the_message(raw):
    (raw / "a.csv").write_text("id,k\nsecret,a\n")
    assert "secret" in refusal(find_input, declared("id INT, k STRING"), DAY)
    assert "secret" not in refusal(find_input, declared("id INT, k STRING", pii=["id"]), DAY)
    (raw / "a.csv").write_text("id,k\nsecret\n")
    assert "secret" not in refusal(find_input, declared("id INT, k STRING"), DAY)


def test_a_file_that_changes_while_it_is_read_is_refused(raw, monkeypatch):
    (raw / "a.csv").write_text("id,k\n1,a\n")
    write = staged_files._write

    def slowly(file, *more):
        write(file, *more)
        Path(file.place).write_text("id,k\n1,a\n2,b\n")

    monkeypatch.setattr(staged_files, "_write", slowly)
    assert "a.csv changed while it was read" in refusal(
        find_input, declared("id INT, k STRING"), DAY
    )
    assert not [path for path in Path("out").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "csv"}, "CSV and JSON need the columns to read"),
        ({"schema": "id INT"}, "the other formats have their own"),
        ({"format": "csv", "schema": "id INTEGERS"}, "input: schema: "),
        (
            {"format": "csv", "schema": "tags ARRAY<INT>"},
            "input: schema: tags: CSV holds no ARRAY<INT>.",
        ),
        (
            {"format": "csv", "schema": "tags MAP<STRING, INT>"},
            "input: schema: tags: CSV holds no MAP<STRING, INT>.",
        ),
        (
            {"format": "json", "schema": "Date DATE"},
            "'Date' is the column of the day, which the folders name.",
        ),
    ],
)
def test_a_wrong_schema_is_refused_with_the_cure(given, message):
    assert message in refusal(lambda: Input(path="raw", **given))


def test_a_day_with_files_of_another_format_has_no_input(raw):
    (raw / "a.parquet").write_bytes(b"")
    enrichment = declared("id INT, k STRING")
    with pytest.raises(NoInput, match=r"holds no \.csv or \.csv\.gz file"):
        find_input(enrichment, DAY)
    assert files_in(enrichment.input, DAY) == []
