"""The deliberate faults must fit the source; plant_faults.py, which is long, shows that each is
noticed.
"""

import tomllib
from pathlib import Path

import pytest

import asyncio_core
from tests.asyncio_core.plant_faults import TESTS, fresh_copy, run_tests

SOURCE = Path(asyncio_core.__file__).parent
FAULTS = tomllib.loads((Path(__file__).parent / "faults.toml").read_text())


@pytest.mark.parametrize("name", FAULTS)
def test_each_deliberate_fault_fits_the_source_in_one_place(name):
    fault = FAULTS[name]
    assert (SOURCE / fault["file"]).read_text().count(fault["old"]) == 1
    assert fault["old"] != fault["new"]


@pytest.mark.process
def test_the_copy_in_which_faults_are_planted_can_be_tested(tmp_path):
    collected = run_tests(fresh_copy(tmp_path), "--collect-only", str(TESTS))
    assert collected.returncode == 0, collected.stdout + collected.stderr
