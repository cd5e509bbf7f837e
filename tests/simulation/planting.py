"""Puts a deliberate fault into the product's source as it is loaded; the files stay as they are."""

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import tomllib
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAULTS_FILES = {  # by the kind of the nights that find them
    "calls": Path(__file__).with_name("faults.toml"),
    "publishing": Path(__file__).parent / "publishing" / "faults.toml",
    "jobs": Path(__file__).parent / "vendor_jobs" / "faults.toml",
}


@dataclass(frozen=True)
class PlantedFault:
    """In `file`, `old`, which occurs once, becomes `new`. mechanism: what it breaks. unfound: why
    no night finds it.
    """

    mechanism: str
    file: str
    old: str
    new: str
    kind: str
    unfound: str = ""

    def in_source(self) -> str:
        """The source with the fault in it."""
        text = (ROOT / self.file).read_text()
        if text.count(self.old) != 1:
            raise SystemExit(
                f"{self.file} holds {text.count(self.old)} times, not once:\n{self.old}"
            )
        return text.replace(self.old, self.new)


@functools.cache
def planted_faults() -> dict[str, PlantedFault]:
    return {
        name: PlantedFault(**fields, kind=kind)
        for kind, file in FAULTS_FILES.items()
        for name, fields in tomllib.loads(file.read_text()).items()
    }


def plant(name: str) -> None:
    """Have the fault's module loaded with the fault. Call it before anything of the product is
    imported.
    """
    fault = planted_faults()[name]
    module = fault.file.removesuffix(".py").replace("/", ".")
    assert module not in sys.modules
    sys.meta_path.insert(0, _Finder(module, fault))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, module: str, fault: PlantedFault) -> None:
        self._module, self._fault = module, fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=self._fault.file)

    def exec_module(self, module: types.ModuleType) -> None:
        exec(
            compile(self._fault.in_source(), str(ROOT / self._fault.file), "exec"), module.__dict__
        )
