"""What a task sees of the code that it runs."""

import importlib
import shutil
import sys
import zipfile
from pathlib import Path

import asyncio_core
from jobs.task import seen_files


def test_code_in_a_zip_has_the_digest_of_its_folder_unless_a_module_differs(tmp_path, monkeypatch):
    """Spark gives executors the packages as a zip."""
    monkeypatch.setattr(seen_files, "PACKAGES", ("copied_core",))
    monkeypatch.syspath_prepend(tmp_path / "folder")
    folder = tmp_path / "folder" / "copied_core"
    shutil.copytree(Path(asyncio_core.__file__).parent, folder)
    in_folder = seen_files.code_digest()
    with zipfile.ZipFile(tmp_path / "packages.zip", "w") as packages:
        for file in folder.rglob("*.py"):
            packages.write(file, file.relative_to(folder.parent))
    (folder / "calls.py").write_text("")
    assert seen_files.code_digest() != in_folder
    monkeypatch.delitem(sys.modules, "copied_core")
    monkeypatch.syspath_prepend(tmp_path / "packages.zip")
    importlib.invalidate_caches()
    assert seen_files.code_digest() == in_folder
