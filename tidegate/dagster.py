"""For Dagster: the definitions of a package's enrichments. Needs `pip install "tidegate[dagster]"`."""

from orchestration.dagster.definitions import definitions_for
from orchestration.dagster.home import dagster_home

__all__ = ["dagster_home", "definitions_for"]
