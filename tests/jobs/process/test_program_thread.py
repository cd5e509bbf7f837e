"""A day in a thread of the command, which Ctrl-C interrupts."""

import threading

import pytest

from jobs.errors import DayTaken
from jobs.process.program_thread import started_in_thread
from jobs.run import enrich_day
from jobs.tables.leases.day_leases import leased

DAY = "2013-01-10"


def test_an_interrupted_command_holds_its_day_until_the_thread_has_ended(tmp_path, monkeypatch):
    table, may_end = str(tmp_path / "table"), threading.Event()
    monkeypatch.setattr(enrich_day, "main", lambda _: may_end.wait(60))
    with (
        pytest.raises(KeyboardInterrupt),
        leased(table, DAY, "first") as lease,
        started_in_thread([], tmp_path / "log", [lease]),
    ):
        raise KeyboardInterrupt
    with pytest.raises(DayTaken), leased(table, DAY, "second", wait=0):
        pass
    may_end.set()
    with leased(table, DAY, "second"):
        pass
