"""Enrichments in a project that Dagster has already: its own commands check and list both."""

import os

import pytest

from tests.orchestration.test_component import PROJECT, checked_and_listed
from tests.orchestration.test_merged_project import ORDERS
from tests.support.sources import ROOT

pytestmark = pytest.mark.process

DEFINITIONS = """
import dagster as dg
from tests.orchestration.test_merged_project import OwnNames, own_definitions
from tidegate.dagster import definitions_for

defs = dg.Definitions.merge(own_definitions(), definitions_for("shop_enrichments", names=OwnNames()))
"""


@pytest.fixture
def merged_project(tmp_path, monkeypatch):
    """The project of test_merged_project as files."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    for package, module, text in (
        ("shop_enrichments", "orders", ORDERS),
        ("shop_defs", "definitions", DEFINITIONS),
    ):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        (tmp_path / package / f"{module}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    return tmp_path


@pytest.mark.proof
def test_dagster_commands_check_and_list_the_merged_project_without_a_warning(merged_project):
    said = checked_and_listed(merged_project)
    names = (
        "lake/orders",
        "lake/orders_rated",
        "lake/orders_rated:every_row_once",
        "credit_orders_rated",
        "alerts",
    )
    assert [name for name in names if f'"{name}"' not in said] == []
