"""Files of some rows of an input."""

import errno
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import DeclarationError
from jobs.input.day import find_input, of_files
from jobs.input.row_ids import chosen
from jobs.run.engines.stages import ThreadStage
from jobs.storage import durable
from tidegate import AsyncFunctionLookup, Enrichment, Input, Output


class Score:
    async def async_invoke(self, keys):
        return [{"score": len(keys["k"])}]


def test_a_file_of_changed_rows_gets_its_name_after_it_is_on_the_disk(tmp_path, monkeypatch):
    """A later run takes it for whole by its name, also after a power cut."""
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "part-0.parquet")
    day, wanted = of_files([tmp_path / "part-0.parquet"]), np.array([True, False])

    def refused(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as failing:
        failing.setattr(durable, "sync", refused)
        with pytest.raises(
            DeclarationError,
            match=(
                r"its changed rows cannot be copied to .*: "
                r"Input/output error"
            ),
        ):
            chosen(day, wanted, str(tmp_path), ThreadStage().run)
    assert [path.name for path in tmp_path.iterdir()] == ["part-0.parquet"]
    (file,) = chosen(day, wanted, str(tmp_path), ThreadStage().run).files
    assert pq.read_table(file).to_pylist() == [{"id": 1}]


def test_equal_rows_of_a_file_that_is_copied_for_each_use_are_written_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mood = AsyncFunctionLookup(
        name="mood",
        keys={"k": "k"},
        returns="score INT",
        timeout=1.0,
        max_concurrency=1,
        function=Score,
    )
    raw = Input(
        path="raw", partition="part", every=["all"], format="csv", schema="id INT, k STRING"
    )
    moods = Enrichment(name="moods", input=raw, lookups=[mood], output=Output(path="out"))
    source = Path("raw", "part=all", "a.csv")
    source.parent.mkdir(parents=True)

    def written():
        day = find_input(moods, "all")
        (file,) = chosen(day, np.arange(day.rows) == 0, str(tmp_path), ThreadStage().run).files
        return file

    source.write_text("id,k\n1,a\n2,b\n")
    first = written()
    assert written() == first
    source.write_text("id,k\n7,a\n2,b\n3,c\n")
    assert [pq.read_table(file).to_pylist() for file in (first, written())] == [
        [{"id": 1, "k": "a"}],
        [{"id": 7, "k": "a"}],
    ]
