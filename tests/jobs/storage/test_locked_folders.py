"""Temporary folders are removed by their process, and after a kill by the next process that makes
one.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from jobs.storage.locked_folders import folder_of_process, temporary_folder

HOLD = """
import sys
from jobs.storage.locked_folders import temporary_folder
with temporary_folder() as folder:
    (folder / "answers.arrow").write_text("private")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def system_folder(tmp_path, monkeypatch):
    """In place of /tmp."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def hold() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return process, Path(process.stdout.readline().strip())


@pytest.mark.process
def test_the_next_process_removes_the_folder_of_a_killed_process_and_no_other(
    system_folder,
):
    killed, of_killed = hold()
    living, of_living = hold()
    killed.kill()
    killed.communicate()
    assert (of_killed / "answers.arrow").exists()
    with temporary_folder() as folder:
        assert sorted(folder.parent.iterdir()) == sorted([folder, of_living])
        assert folder.parent.stat().st_mode & 0o077 == 0
    living.communicate("")
    assert list(of_living.parent.iterdir()) == []


def test_a_folder_of_another_user_in_our_place_is_not_used(system_folder):
    with temporary_folder() as folder:
        ours = folder.parent
    ours.chmod(0o777)
    with temporary_folder() as folder:
        assert folder.parent != ours
    ours.rmdir()
    (system_folder / "elsewhere").mkdir(mode=0o700)
    ours.symlink_to(system_folder / "elsewhere")
    with temporary_folder() as folder:
        assert folder.parent.parent == system_folder
        assert folder.parent not in (ours, system_folder / "elsewhere")


def test_a_temporary_folder_stays_until_its_process_ends(system_folder):
    folder = folder_of_process()
    with temporary_folder() as other:
        assert folder.is_dir()
        assert other != folder
