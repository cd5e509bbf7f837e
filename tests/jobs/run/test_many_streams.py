"""The examples of docs/many-streams.md, block by block, on a real Spark: each gives what the page
says it prints.
"""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).parents[3] / "docs" / "many-streams.md").read_text()
ORDERED = {"Rolling reduce", "min and minBy"}
SECTIONS = {
    text.split("\n", 1)[0]: text for text in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
}


def blocks(text):
    """(kind, content) of each block of code, in turn."""
    return re.findall(r"```(python|text)\n(.*?)```", text, re.DOTALL)


def lines(frame):
    return [",".join(str(value) for value in row) for row in frame.collect()]


@pytest.mark.parametrize("section", SECTIONS)
def test_each_example_prints_what_the_page_says(spark, section, tmp_path):
    names = {"spark": spark}
    before = (
        [text for name, text in SECTIONS.items() if name == "Interval join"]
        if "Around" in section
        else []
    )
    for kind, content in [
        block
        for text in (PAGE.split("\n## ")[0], *before, SECTIONS[section])
        for block in blocks(text)
    ]:
        if kind == "python":
            # Spark's own folder is not the test's
            exec(content.replace('"data/', f'"{tmp_path}/data/'), names)
        else:
            found, printed = lines(names["result"]), content.splitlines()
            assert found == printed if section in ORDERED else sorted(found) == sorted(printed)
    assert "result" in names
