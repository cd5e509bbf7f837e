"""The examples on the page about the core run as they stand."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "core.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_each_example_on_the_page_about_the_core_runs(example):
    exec(example, {"__name__": "example"})


def test_the_page_about_the_core_has_examples():
    assert len(EXAMPLES) == 3
