"""What lies beside a day's files, or in no day of a table, is read, refused or named; nothing is
left out silently.
"""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.types import StringType

from jobs.commands.check import Finding, check_package
from jobs.errors import DeclarationError, NoInput
from jobs.input.day import files_in, find_input, last_day
from jobs.input.day_folder import DayFolder
from jobs.storage.stored_files import StoredFile
from tests.support.lakes import lake_in
from tests.support.moods import MOOD
from tidegate import Enrichment, Input, Output

DAY = "2026-11-19"
FOLDER = Path("raw", f"date={DAY}")


def declared(**source):
    return Enrichment(
        name="moods",
        input=Input(**{"path": "raw"} | source),
        lookups=[MOOD],
        output=Output(path="out"),
    )


@pytest.fixture
def raw(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(FOLDER / "a.parquet", 10)
    return FOLDER


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": range(rows), "k": ["x"] * rows}), path)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("parquet", ["D.PARQUET", "e.Parquet"]),
        ("csv", ["b.CSV", "c.csv.GZ"]),
        ("json", ["b.JSON", "c.JsonL", "d.jsonl.GZ"]),
    ],
)
def test_endings_are_matched_without_regard_to_case(raw, kind, names):
    for name in names:
        (raw / name).touch()
    source = declared() if kind == "parquet" else declared(format=kind, schema="id INT")
    assert {file.name for file in files_in(source.input, DAY)} >= set(names)


@pytest.mark.parametrize(
    "below", ["hour=01/b.parquet", "late.parquet/part-0.PARQUET", "late/more/c.parquet"]
)
def test_files_in_a_folder_below_a_day_are_refused_by_name(raw, below):
    write(raw / below, 10)
    folder, _, name = below.partition("/")
    message = (
        f"moods: input: raw/date={DAY}/{folder} holds {name}, and a run reads the files in "
        f"raw/date={DAY}/ alone. "
        "Move the files there, or let the folder's name begin with _ to leave them out."
    )
    with pytest.raises(DeclarationError, match=re.escape(message)):
        find_input(declared(), DAY)
    (raw / folder).rename(raw / f"_{folder}")
    assert find_input(declared(), DAY).rows == 10


def test_unread_files_and_folders_of_a_day_are_named(raw):
    for name in ("e.parq", "f.parquet.snappy", "_SUCCESS", ".a.parquet.crc", "a.parquet.crc"):
        (raw / name).touch()
    for name in ("empty", "_temporary", ".hidden"):
        (raw / name).mkdir()
    for name in ("date=__HIVE_DEFAULT_PARTITION__", "date= 2026-11-19", "date=2026-11-18", "other"):
        Path("raw", name).mkdir()
    day = find_input(declared(), DAY)
    assert (day.rows, list(day.unread)) == (
        10,
        [
            "e.parq",
            "f.parquet.snappy",
            "empty/",
            "date= 2026-11-19/",
            "date=__HIVE_DEFAULT_PARTITION__/",
        ],
    )


@pytest.mark.parametrize("name", ["b.parquet", "C.PARQUET", "."])
def test_a_link_to_a_file_or_folder_that_is_not_there_is_refused_by_name(raw, name):
    if name == ".":
        raw.rename("elsewhere")
    link = raw / name
    link.symlink_to("not_fetched")
    message = f"moods: input: {link} is a link to not_fetched, which is not there. Fetch that, or remove the link."
    with pytest.raises(DeclarationError, match=re.escape(message)):
        find_input(declared(), DAY)


def test_a_dangling_link_with_a_hidden_name_or_another_ending_is_ignored(raw):
    for name in (".#a.parquet", "_b.parquet", "c.csv"):
        (raw / name).symlink_to("not_fetched")
    assert find_input(declared(), DAY).rows == 10


def test_check_names_unread_files(raw, monkeypatch):
    (raw / "e.parq").touch()
    Path("mine").mkdir()
    Path("mine/__init__.py").touch()
    Path("mine/moods.py").write_text(
        "from tests.support.moods import MOOD\nfrom tidegate import *\n"
        'moods = Enrichment(name="moods", input=Input(path="raw"), lookups=[MOOD], '
        'output=Output(path="out"))\n'
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))
    assert list(check_package("mine")) == [
        ("moods", f"{DAY}: 10 rows in 1 file; not read: e.parq; lookups mood", Finding.RIGHT)
    ]


def test_a_day_without_a_file_of_its_format_names_the_files_that_it_has(raw):
    (raw / "a.parquet").rename(raw / "a.parq")
    message = f"raw/date={DAY} holds no .parquet file. It holds a.parq."
    with pytest.raises(NoInput, match=re.escape(message)):
        find_input(declared(), DAY)


@pytest.mark.parametrize("in_log", [True, False])
def test_rows_of_a_delta_table_in_no_day_are_counted_and_named(tmp_path, monkeypatch, in_log):
    """in_log: whether the writer counted the rows of its files there."""
    monkeypatch.chdir(tmp_path)
    days = [DAY, None, None, f" {DAY}", "zz"]
    write_deltalake(
        "lake",
        pa.table({"k": ["a"] * 5, "date": pa.array(days, pa.string())}),
        partition_by=["date"],
    )
    if not in_log:
        log = Path("lake/_delta_log/00000000000000000000.json")
        log.write_text(re.sub(r',"stats":"(\\.|[^"\\])*"', "", log.read_text()))
        assert "numRecords" not in log.read_text()
    source = declared(path="lake", format="delta")
    day = find_input(source, DAY)
    assert day.rows == 1
    assert sorted(day.unread) == [
        f"1 row with date = ' {DAY}'",
        "1 row with date = 'zz'",
        "2 rows with date = null",
    ]
    assert last_day(source.input) == DAY


@pytest.mark.parametrize("partitioned", [True, False])
def test_rows_of_an_iceberg_table_in_no_day_are_counted_and_named(
    tmp_path, monkeypatch, partitioned
):
    monkeypatch.chdir(tmp_path)
    with lake_in(tmp_path, tmp_path / "warehouse", monkeypatch) as catalog:
        rows = pa.table(
            {"k": ["a"] * 4, "date": pa.array([DAY, None, None, f" {DAY}"], pa.string())}
        )
        table = catalog.create_table("shop.orders", rows.schema)
        if partitioned:
            with table.update_spec() as spec:
                spec.add_identity("date")
        table.append(rows)
        day = find_input(declared(path="", format="iceberg", table="lake.shop.orders"), DAY)
        other = [f"1 row with date = ' {DAY}'"] if partitioned else []
        assert (day.rows, sorted(day.unread)) == (1, [*other, "2 rows with date = null"])


@pytest.mark.parametrize(("default", "value"), [(None, "null"), ("unknown", "'unknown'")])
def test_rows_older_than_the_column_of_the_day_of_an_iceberg_table_are_counted(
    tmp_path, monkeypatch, default, value
):
    monkeypatch.chdir(tmp_path)
    with lake_in(tmp_path, tmp_path / "warehouse", monkeypatch) as catalog:
        rows = pa.table({"k": ["a"] * 3})
        table = catalog.create_table("shop.orders", rows.schema)
        table.append(rows)
        with table.update_schema() as schema:
            schema.add_column("date", StringType(), default_value=default)
        table.append(pa.table({"k": ["b"], "date": [DAY]}))
        day = find_input(declared(path="", format="iceberg", table="lake.shop.orders"), DAY)
        assert (day.rows, day.unread) == (1, (f"3 rows with date = {value}",))


def test_listing_a_day_compares_no_file_with_another_file(raw, monkeypatch):
    """A day may have tens of thousands."""
    compared = []

    def equals(one, other):
        compared.append(one)
        return one is other

    monkeypatch.setattr(StoredFile, "__eq__", equals)
    for number in range(100):
        (raw / f"{number}.parquet").touch()
    (raw / "notes.txt").touch()
    found = DayFolder.of(declared().input, DAY)
    assert (len(found.files), found.others) == (101, ("notes.txt",))
    assert not compared
