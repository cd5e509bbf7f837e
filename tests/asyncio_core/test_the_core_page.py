"""The examples on the page about the core run as they stand."""

import pytest

from tests.support.documents import blocks

EXAMPLES = blocks("docs/core.md", "python")


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_each_example_on_the_page_about_the_core_runs(example):
    exec(example, {"__name__": "example"})


def test_the_page_about_the_core_has_examples():
    assert len(EXAMPLES) == 3
