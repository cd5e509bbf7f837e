"""The page of promises, which is made of the names of the tests."""

import pytest

from tests.support.sources import ROOT
from tools.promises import render


def test_the_page_of_promises_is_current():
    assert (ROOT / "docs/promises.md").read_text() == render(), "run `make promises`"


@pytest.mark.proof
def test_each_promise_is_a_line_below_its_file():
    page = render()
    _, _, rest = page.partition("`test_promises.py`")
    assert "\n- Each promise is a line below its file\n" in rest
