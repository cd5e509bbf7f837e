"""The site of the documents, built and looked at in a browser."""

import subprocess

import pytest

from tests.support.readable import assert_readable
from tests.support.sources import ROOT

MKDOCS = ROOT / ".venv-docs/bin/mkdocs"
PAGES = ("index", "notebook", "commands")


@pytest.mark.ui
def test_pages_are_read_on_a_telephone_and_axe_finds_nothing_serious(tmp_path):
    site = tmp_path / "site"
    build = [MKDOCS, "build", "-q", "--strict", "-d", site]
    subprocess.run(build, cwd=ROOT, env={"NO_MKDOCS_2_WARNING": "1"}, check=True)
    assert_readable(*(site / f"{page}.html" for page in PAGES))
