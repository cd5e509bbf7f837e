"""Type checkers accept what an AsyncFunctionLookup takes for its function."""

from pathlib import Path

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


@pytest.mark.proof
@pytest.mark.slow
def test_a_type_checker_accepts_a_class_and_what_makes_its_object(tmp_path):
    functions = ["Plain", "Derived", "made", 'partial(Plain, "u")', "int"]
    for number, function in enumerate(functions):
        (tmp_path / f"declared_{number}.py").write_text(TEXT.replace("FUNCTION", function))
    shown, errors, _ = api.run(["--strict", "--cache-dir", ".mypy_cache", str(tmp_path)])
    (*wrong, _) = shown.splitlines()  # mypy's cache may have them of an equal file elsewhere
    assert [Path(line.split(":")[0]).name for line in wrong] == ["declared_4.py"], shown + errors
