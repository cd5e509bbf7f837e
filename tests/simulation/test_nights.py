"""Nights of the real code, each from one seed: see tests/simulation/__main__.py, which this runs in its own process."""

import re
import subprocess
import sys

import pytest

from tests.support.sources import ROOT

pytestmark = pytest.mark.process


def simulate(*arguments):
    """Play nights in a process of their own; returns what it printed."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def digests(printed):
    return re.findall(r"^night (\d+): digest (\w+)", printed, re.MULTILINE)


def test_a_seed_gives_the_same_night_in_two_processes_whatever_ran_before():
    alone = simulate("--seeds", "4:5", "--trace")
    after_others = simulate("--seeds", "3:5", "--trace")
    assert digests(alone.stdout) == digests(after_others.stdout)[1:]
    assert len(digests(alone.stdout)) == 1
