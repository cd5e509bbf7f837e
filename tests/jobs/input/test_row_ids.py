"""Files of some rows of an input."""

import errno
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import DeclarationError
from jobs.input.day import of_files
from jobs.input.row_ids import chosen
from jobs.storage import durable


def test_a_file_of_changed_rows_has_its_name_when_it_is_on_the_disk(tmp_path, monkeypatch):
    """A later run takes it for whole by its name, also after a power cut."""
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "part-0.parquet")
    day, wanted = of_files([tmp_path / "part-0.parquet"]), np.array([True, False])

    def refused(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as failing:
        failing.setattr(durable, "sync", refused)
        with pytest.raises(DeclarationError, match=r"its changed rows cannot be copied to .*: Input/output error"):
            chosen(day, wanted, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["part-0.parquet"]
    (file,) = chosen(day, wanted, tmp_path).files
    assert pq.read_table(file).to_pylist() == [{"id": 1}]
