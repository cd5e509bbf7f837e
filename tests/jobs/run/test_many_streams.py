"""The examples of docs/many-streams.md, block by block, on a real Spark: each gives what the page
says it prints.
"""

import re

import pytest

from tests.support.documents import all_blocks
from tests.support.sources import ROOT
from tests.support.variants import first_of

pytestmark = pytest.mark.spark

PAGE = (ROOT / "docs" / "many-streams.md").read_text()
SECTIONS = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
ORDERED = {"Rolling reduce", "min and minBy"}
BLOCKS = {section: all_blocks("docs/many-streams.md", section) for section in SECTIONS}
# those before the first section
COMMON = all_blocks("docs/many-streams.md")[: -sum(map(len, BLOCKS.values()))]


def lines(frame):
    return [",".join(str(value) for value in row) for row in frame.collect()]


@pytest.mark.parametrize("section", first_of(SECTIONS))
def test_each_example_prints_what_the_page_says(spark, section, tmp_path):
    names = {"spark": spark}
    before = BLOCKS["Interval join"] if "Around" in section else []
    for kind, content in [*COMMON, *before, *BLOCKS[section]]:
        if kind == "python":
            # Spark's own folder is not the test's
            exec(content.replace('"data/', f'"{tmp_path}/data/'), names)
        else:
            found, printed = lines(names["result"]), content.splitlines()
            assert found == printed if section in ORDERED else sorted(found) == sorted(printed)
    assert "result" in names
