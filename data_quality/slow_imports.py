"""Great Expectations without what it imports for a few of its expectations only, and without its messages: drawing and
statistics are half of its import.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
import warnings
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

OF_GREAT_EXPECTATIONS = ("altair", "scipy.stats", "scipy.sparse")  # 4 s of CPU, which no check of ours needs


def import_when_used(*names: str) -> None:
    """Have modules imported when something of theirs is first asked for; those imported already stay as they are."""
    for name in names:
        sys.modules.setdefault(name, _WhenUsed(name))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Great Expectations logs and warns about its own ways, which tell nobody anything about the day."""
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
    """Stands for a module until then. importlib's own LazyLoader imports at the next `import` statement already."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, loader=None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # the import system asks for those, and for the path of a part
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = importlib.import_module(self.__name__)
        vars(self).update(vars(module))
        return getattr(module, name)
