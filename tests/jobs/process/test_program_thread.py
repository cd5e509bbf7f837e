"""A day in a thread of the command, which Ctrl-C interrupts."""

import threading
from pathlib import Path

import pytest

from jobs.errors import DayTaken
from jobs.process.program_thread import kept_at_work, started_in_thread
from jobs.run import enrich_day
from jobs.storage import objects
from jobs.storage.urls import below, is_url
from jobs.tables.leases.day_leases import FOLDER, leased
from tests.support.places import everywhere, place_of

DAY = "2013-01-10"


@pytest.fixture
def table(request, tmp_path):
    return f"{place_of(request, tmp_path)}/table"


def interrupt(table, log):
    with (
        pytest.raises(KeyboardInterrupt),
        leased(table, DAY, "first") as lease,
        started_in_thread([], log, [lease]) as wait,
    ):
        raise KeyboardInterrupt
    return wait


@everywhere("table")
def test_an_interrupted_command_holds_its_day_until_its_thread_has_ended(
    table, tmp_path, monkeypatch
):
    may_end = threading.Event()
    monkeypatch.setattr(enrich_day, "main", lambda _: may_end.wait(60))
    wait = interrupt(table, tmp_path / "log")
    with pytest.raises(DayTaken), leased(table, DAY, "second", wait=0):
        pass
    may_end.set()
    wait(60)
    if is_url(table):  # there this process holds the day until it ends
        objects.delete(below(table, FOLDER), [f"{DAY}.json"])
    with leased(table, DAY, "second"):
        pass


@everywhere("table")
def test_an_interrupted_command_whose_program_has_ended_releases_its_day(table):
    with (
        pytest.raises(KeyboardInterrupt),
        leased(table, DAY, "first") as lease,
        kept_at_work([lease], lambda _: 1),
    ):
        raise KeyboardInterrupt
    with leased(table, DAY, "second", wait=0):
        pass


def test_a_log_on_a_full_disk_does_not_change_the_exit_status(monkeypatch, capsys):
    monkeypatch.setattr(enrich_day, "load", lambda _: 1 / 0)
    arguments = ["--enrichment", "towns:towns", "--day", DAY, "--run-id", "r1"]
    with started_in_thread(arguments, Path("/dev/full"), []) as wait:
        assert wait(60) == enrich_day.FAILED
    assert capsys.readouterr().err == ""
