"""Nights of the real code, each from one seed: see tests/simulation/__main__.py, which this runs in
its own process.
"""

import fcntl
import os
import re
import subprocess
import sys

import pytest

from jobs.storage.locked_folders import temporary_folder
from tests.simulation.planting import planted_faults
from tests.support.sources import ROOT

SEEDS = ROOT / "tests" / "simulation" / "seeds.txt"


def simulate(*arguments, **variables):
    """Play nights in a process of their own; returns what it printed."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    environment = os.environ | variables
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def digests(printed):
    return re.findall(r"^night (\d+): digest (\w+)", printed, re.MULTILINE)


@pytest.mark.parametrize("name", planted_faults())
def test_each_deliberate_fault_fits_the_source_in_one_place(name):
    fault = planted_faults()[name]
    assert compile(fault.in_source(), fault.file, "exec")
    assert fault.old != fault.new


LENGTHS = [
    pytest.param(("--short",), id="short"),
    pytest.param((), id="all", marks=pytest.mark.proof),
]


@pytest.fixture(scope="module", params=LENGTHS)
def kept_nights(request):
    """What a process printed that played kept nights."""
    return simulate("--kept", "--trace", *request.param)


@pytest.mark.process
def test_nights_that_once_failed_keep_every_promise(kept_nights):
    assert kept_nights.returncode == 0, kept_nights.stdout[-2000:]
    assert re.search(
        (
            r"^[1-9]\d* nights, 0 failed; faults: .*; \d+ calls; "
            r"digest"
        ),
        kept_nights.stdout,
        re.MULTILINE,
    )


@pytest.mark.process
def test_a_night_gives_the_same_result_in_two_processes(kept_nights, tmp_path):
    last = tmp_path / "night.json"
    last.write_text(SEEDS.read_text().splitlines()[-1])
    alone = simulate("--night", str(last), "--trace")
    assert digests(alone.stdout) == digests(kept_nights.stdout)[-1:] != []


@pytest.mark.proof
@pytest.mark.process
def test_a_night_waits_for_no_other_program_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with temporary_folder() as folder:
        other = os.open(folder.parent, os.O_RDONLY)
        try:
            fcntl.flock(other, fcntl.LOCK_EX)
            played = simulate("--seed", "26", TMPDIR=str(tmp_path))
        finally:
            os.close(other)
    assert played.returncode == 0, played.stdout[-2000:]


@pytest.mark.process
def test_nights_find_a_deliberate_fault():
    found = simulate("--plant", "no_mark_is_stored", "--seeds", "2000:2001")
    assert found.returncode == 1
    assert "asked without a mark" in found.stdout


@pytest.mark.process
@pytest.mark.parametrize("length", LENGTHS)
def test_nights_of_publishing_that_once_failed_keep_every_promise(length):
    played = simulate("--publishing", "--kept", *length)
    assert played.returncode == 0, played.stdout
    assert re.search(
        (
            r"^[1-9]\d* nights, 0 failed; .*; [1-9]\d* publications; "
            r"digest"
        ),
        played.stdout,
        re.MULTILINE,
    )


@pytest.mark.proof
@pytest.mark.process
@pytest.mark.parametrize(
    "kind", [(), ("--publishing",), ("--jobs",)], ids=["calls", "publishing", "jobs"]
)
def test_nights_of_publishing_give_the_same_result_in_two_processes(kind):
    nights, last = (simulate(*kind, "--seeds", seeds, "--trace") for seeds in ("20:60", "50:60"))
    assert nights.returncode == 0, nights.stdout[-2000:]
    assert digests(nights.stdout)[30:] == digests(last.stdout) != []


def play_stores(first, last):
    command = [sys.executable, "-m", "tests.simulation.store_nights", str(first), str(last)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.process
@pytest.mark.parametrize("last", [15, pytest.param(500, marks=pytest.mark.proof)])
def test_a_lock_and_records_on_a_store_keep_each_promise_in_nights_of_kills(last):
    played = play_stores(0, last)
    assert played.returncode == 0, played.stdout + played.stderr
    holders = r"[1-9]\d* holders; faults: .*\d+ kill at a file"
    assert re.fullmatch(rf"{last} nights, 0 failed; {holders}.*\n", played.stdout)


@pytest.mark.process
def test_a_night_uses_no_real_thread_clock_or_socket():
    checked = subprocess.run(
        [sys.executable, "-m", "tests.simulation.leftovers"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert int(checked.stdout) > 100
