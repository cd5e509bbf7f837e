import importlib
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from data_quality.slow_imports import import_when_used, without

MODULE = """
from pathlib import Path

Path("imported").touch()
ANSWER = 42
"""


def test_a_module_is_imported_when_something_of_it_is_first_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "slow_one.py").write_text(MODULE)
    (tmp_path / "slow_package").mkdir()
    (tmp_path / "slow_package" / "__init__.py").write_text("")
    (tmp_path / "slow_package" / "part.py").write_text("PART = 7")
    try:
        import_when_used("slow_one", "slow_package")
        slow_one = importlib.import_module("slow_one")
        assert not (tmp_path / "imported").exists()
        assert slow_one.ANSWER == 42
        assert (tmp_path / "imported").exists()
        assert importlib.import_module("slow_package.part").PART == 7
        assert sys.modules["slow_one"].ANSWER == 42
    finally:
        for name in ("slow_one", "slow_package", "slow_package.part"):
            sys.modules.pop(name, None)


def test_a_module_that_is_imported_already_stays():
    there = importlib.import_module("json")
    import_when_used("json")
    assert sys.modules["json"] is there


def test_modules_are_hidden_from_the_imports_of_one_thread_only(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("hidden_one", "hidden_two"):
        (tmp_path / f"{name}.py").touch()
    there = importlib.import_module("json")
    try:
        with without("hidden_one", "hidden_two", "json"), ThreadPoolExecutor(1) as other_thread:
            with pytest.raises(ModuleNotFoundError):
                importlib.import_module("hidden_one")
            assert (
                other_thread.submit(importlib.import_module, "hidden_two").result().__name__
                == "hidden_two"
            )
            assert importlib.import_module("json") is there
        assert importlib.import_module("hidden_one").__name__ == "hidden_one"
    finally:
        for name in ("hidden_one", "hidden_two"):
            sys.modules.pop(name, None)
