import importlib
import sys

from data_quality.slow_imports import import_when_used

MODULE = """
from pathlib import Path

Path("imported").touch()
ANSWER = 42
"""


def test_a_lazy_module_is_imported_at_the_first_use_of_an_attribute(tmp_path, monkeypatch):
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


def test_a_lazy_import_keeps_a_module_that_is_already_imported():
    there = importlib.import_module("json")
    import_when_used("json")
    assert sys.modules["json"] is there
