"""The notebook runs, and its outputs are those that it shows."""

import json
import re

import pytest

from jobs.limits.store_url import LIMITS_URL, STATE_HOME
from tools.notebook import NOTEBOOK, run

DOCS = NOTEBOOK.parent


@pytest.mark.process
def test_each_cell_of_the_notebook_runs_and_shows_its_stored_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(STATE_HOME, str(tmp_path))
    monkeypatch.delenv(LIMITS_URL, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    written = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    found = run(written)
    assert [cell.get("outputs") for cell in found["cells"]] == [
        cell.get("outputs") for cell in written["cells"]
    ]
    assert found == written, "run `make notebook`"


def test_the_notebook_links_to_pages_that_exist():
    text = "".join("".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"])
    targets = re.findall(r"\]\(([^)#]+)", text)
    assert targets
    assert [target for target in targets if not (DOCS / target).exists()] == []
