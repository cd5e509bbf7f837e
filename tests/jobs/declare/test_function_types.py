"""Type checkers accept what an AsyncFunctionLookup takes for its function."""

import pytest
from mypy import api

TEXT = """
from functools import partial
from typing import Any

from asyncio_core import AsyncFunction
from tidegate import AsyncFunctionLookup


class Plain:
    def __init__(self, url: str = "") -> None: ...

    async def async_invoke(self, keys: dict[str, str]) -> list[dict[str, int]]:
        return []


class Derived(AsyncFunction[dict[str, Any], dict[str, Any]]):
    async def async_invoke(self, value: dict[str, Any]) -> list[dict[str, Any]]:
        return []


def made() -> Plain:
    return Plain()


AsyncFunctionLookup(
    name="a", keys={"k": "k"}, returns="x INT", timeout=1.0, max_concurrency=1, function=FUNCTION
)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "passes"),
    [
        ("Plain", True),
        ("Derived", True),
        ("made", True),
        ('partial(Plain, "u")', True),
        ("int", False),
    ],
)
def test_a_type_checker_accepts_a_class_and_what_makes_its_object(tmp_path, function, passes):
    path = tmp_path / "declared.py"
    path.write_text(TEXT.replace("FUNCTION", function))
    shown, errors, status = api.run(["--strict", "--cache-dir", ".mypy_cache", str(path)])
    assert (status == 0) is passes, shown + errors
