"""Imports Great Expectations without its messages, and without plotting and statistics: a third of
its import time.
"""

import contextlib
import importlib
import logging
import sys
import warnings
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# 1 s of CPU and 80 MB; no check of Tidegate needs them
OF_GREAT_EXPECTATIONS = ("altair", "scipy.stats", "scipy.sparse")


def import_when_used(*names: str) -> None:
    """Import these modules on first use; modules that are already imported stay."""
    for name in names:
        sys.modules.setdefault(name, _WhenUsed(name))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence logs and warnings of Great Expectations, which say nothing about the day."""
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
