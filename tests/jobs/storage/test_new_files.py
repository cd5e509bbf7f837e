"""A new file is at its place whole or not at all, and what was written on this machine is gone,
even after a kill.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.storage import objects
from jobs.storage.new_files import new_file, written_bytes
from jobs.storage.parquet_files import open_parquet
from jobs.storage.removal import remove_folder, remove_others
from jobs.storage.urls import below

ROWS = pa.table({"n": range(1000)})
KILLED = """
import os, signal, sys
from jobs.storage.new_files import new_file
with new_file(sys.argv[1]) as file:
    (file.open("wb") if hasattr(file, "open") else file).write(b"x" * 100_000)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(params=["disk", pytest.param("store", marks=pytest.mark.process)])
def folder(request, tmp_path):
    """A folder for the file: on this disk, or on a store."""
    return (
        str(tmp_path / "run")
        if request.param == "disk"
        else f"{request.getfixturevalue('s3').bucket}/run"
    )


def names_in(folder):
    if "://" in folder:
        return [listed.name for listed in objects.listed(folder)]
    return sorted(path.name for path in Path(folder).glob("*"))


def test_a_new_file_is_readable_at_its_place(folder):
    place = below(folder, "a.parquet")
    with new_file(place) as file:
        pq.write_table(ROWS, file)
        size = written_bytes(file)
    with open_parquet(place) as written:
        assert written.read() == ROWS
    assert size > 1000


def test_an_error_leaves_no_file(folder):
    def fail(file):
        pq.write_table(ROWS, file)
        raise ValueError("in the middle")

    with (
        pytest.raises(ValueError, match="in the middle"),
        new_file(below(folder, "a.parquet")) as file,
    ):
        fail(file)
    assert names_in(folder) == []


@pytest.mark.process
def test_a_kill_during_an_upload_leaves_no_temporary_file_and_no_object(tmp_path, s3):
    place, temporary = f"{s3.bucket}/run/a.parquet", tmp_path / "temporary"
    temporary.mkdir()
    environment = s3.environment(TMPDIR=str(temporary), PYTHONPATH=str(Path(__file__).parents[3]))
    ended = subprocess.run([sys.executable, "-c", KILLED, place], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert list(temporary.iterdir()) == []
    assert names_in(f"{s3.bucket}/run") == []


def test_files_of_other_attempts_are_removed_and_then_the_folder(folder):
    for name in ("a", "b", "c"):
        with new_file(below(folder, name)) as file:
            pq.write_table(ROWS, file)
    remove_others(folder, kept={below(folder, "b")})
    assert names_in(folder) == ["b"]
    remove_folder(folder)
    assert names_in(folder) == []
    remove_folder(folder)  # which is no error
