import sys
from pathlib import Path

import pytest

from data_quality.rows import run_output

# honest_day and planted_faults stand beside the tests that use them
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    """Days of few rows too are read in several parts of a task."""
    monkeypatch.setattr(run_output, "ROWS_AT_ONCE", 40)


@pytest.fixture
def here(tmp_path, monkeypatch, spark):
    """A project of this test's own, whose input is read by several tasks."""
    monkeypatch.chdir(tmp_path)
    # else all of these small files fit into one task
    spark.conf.set("spark.sql.files.openCostInBytes", "1k")
    yield Path()
    spark.conf.unset("spark.sql.files.openCostInBytes")
