"""Files of a Delta, Iceberg or Hudi table are refused as input: they hold rows that the table has
deleted.
"""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.errors import DeclarationError
from jobs.input.day import find_input
from jobs.input.table_formats import refuse_table_formats
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output
from tidegate.__main__ import main

DAY = "2013-01-10"
DECLARATION = """
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output


class Never:
    async def async_invoke(self, keys):
        raise AssertionError("nothing is called")


mood = AsyncFunctionLookup(
    name="mood", keys={"k": "origin"}, returns="score INT", timeout=1.0, max_concurrency=1, function=Never
)
moods = Enrichment(name="moods", input=Input(path="data/lake"), lookups=[mood], output=Output(path="data/out"))
"""


class Never:
    async def async_invoke(self, keys):
        raise AssertionError("nothing is called")


def reading(path):
    mood = AsyncFunctionLookup(
        name="mood",
        keys={"k": "k"},
        returns="score INT",
        timeout=1.0,
        max_concurrency=1,
        function=Never,
    )
    return Enrichment(
        name="moods", input=Input(path=str(path)), lookups=[mood], output=Output(path="out")
    )


def with_a_day(folder):
    day = folder / f"date={DAY}"
    day.mkdir(parents=True)
    pa.parquet.write_table(pa.table({"k": ["a"]}), day / "part-0.parquet")
    return day


def with_file(path):
    path.parent.mkdir(parents=True)
    path.touch()


@pytest.mark.parametrize(
    ("log", "below", "kind"),
    [
        ("_delta_log/00000000000000000000.json", "", "a Delta table"),
        ("_delta_log/00000000000000000000.json", "region=eu", "a Delta table"),
        (f"date={DAY}/_delta_log/00000000000000000000.json", "", "a Delta table"),
        ("metadata/v1.metadata.json", "", "an Iceberg table"),
        ("metadata/00001-4f.metadata.json", "data", "an Iceberg table"),
        ("metadata/00001-4f.gz.metadata.json", "data/region=eu", "an Iceberg table"),
        (".hoodie/hoodie.properties", "", "a Hudi table"),
    ],
)
def test_files_of_a_table_are_refused_wherever_the_log_is(tmp_path, monkeypatch, log, below, kind):
    monkeypatch.chdir(tmp_path)
    root = Path("lake", below)
    with_a_day(root)
    with_file(Path("lake", log))
    (tmp_path / "link").symlink_to(tmp_path / root)
    for path in (root, tmp_path / root, "link"):
        with pytest.raises(DeclarationError) as refused:
            find_input(reading(path), DAY)
        message = str(refused.value)
        assert message.startswith("moods: input: ")
        assert f"makes {path} part of {kind}" in message
        assert message.endswith("in a folder of their own, and name that folder in Input.path.")
        assert "\n" not in message


@pytest.mark.parametrize(
    "other",
    [
        "out/_delta_log/0.json",
        "metadata/readme.json",
        "../metadata/v1.metadata.json",
        "../_delta_log/0.json",
    ],
)
def test_a_table_in_a_neighbouring_folder_is_no_reason_to_refuse(tmp_path, other):
    with_a_day(tmp_path / "lake" / "orders")
    with_file(tmp_path / "lake" / "orders" / other)
    assert find_input(reading(tmp_path / "lake" / "orders"), DAY).rows == 1


def test_the_search_for_a_table_log_ends_at_the_root_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with_file(tmp_path / "_delta_log" / "0.json")
    refuse_table_formats("/data/date=2013-01-10", "/data")


@pytest.mark.parametrize(
    "command",
    [
        "check",
        f"check --day {DAY}",
        pytest.param(f"plan moods --day {DAY}", marks=pytest.mark.proof),
        pytest.param(f"run moods --day {DAY}", marks=pytest.mark.proof),
        pytest.param("try moods", marks=pytest.mark.proof),
    ],
)
@pytest.mark.process
def test_a_table_with_deleted_rows_is_refused_by_every_command(
    tmp_path, monkeypatch, capfd, command
):
    monkeypatch.chdir(tmp_path)
    days = [dt.date.fromisoformat(DAY)] * 100
    write_deltalake(
        "data/lake", pa.table({"origin": range(100), "date": days}), partition_by=["date"]
    )
    DeltaTable("data/lake").delete("origin >= 50")
    package = f"lakes_{abs(hash(command))}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "moods.py").write_text(DECLARATION)
    (tmp_path / package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert main([*command.split(), "--package", package]) == 2
    message = "".join(capfd.readouterr())
    assert (
        "data/lake/_delta_log makes data/lake part of a Delta table, whose files also hold "
        "deleted rows"
    ) in message
    assert not Path("data/out").exists() or not list(Path("data/out").rglob("*.parquet"))
