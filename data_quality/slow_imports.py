"""Imports Great Expectations without its messages, and without plotting, statistics, databases and
clouds: two thirds of its import time.
"""

import contextlib
import importlib
import logging
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# 4 s of CPU; no check of Tidegate needs them
OF_GREAT_EXPECTATIONS = ("altair", "scipy.stats", "scipy.sparse")
# the checks read Spark's frames only; a frame of Spark Connect has its module, which is imported by
# then
NOT_FOR_CHECKS = ("sqlalchemy", "boto3", "botocore", "pyspark.sql.connect.dataframe")


def import_when_used(*names: str) -> None:
    """Imports these modules on first use; modules that are already imported stay."""
    for name in names:
        sys.modules.setdefault(name, _WhenUsed(name))


@contextlib.contextmanager
def without(*names: str) -> Iterator[None]:
    """Hides these modules from the body's imports in this thread, unless already imported."""
    hiding = _Hiding(names)
    sys.meta_path.insert(0, hiding)
    try:
        yield
    finally:
        sys.meta_path.remove(hiding)


class _Hiding:
    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._thread = names, threading.get_ident()

    def find_spec(self, name: str, *_: object) -> None:
        if name in self._names and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is not looked for", name=name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences logs and warnings of Great Expectations, which say nothing about the day."""
    logger = logging.getLogger("great_expectations")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


class _WhenUsed(ModuleType):
    """A placeholder for a module until its use; LazyLoader imports at the next `import`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, loader=None)

    def __getattr__(self, name: str) -> Any:
        # the import system reads these, and the path of a submodule
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = importlib.import_module(self.__name__)
        vars(self).update(vars(module))
        return getattr(module, name)
