"""A process that waits for the lock of a file says so, and does not wait for ever."""

import logging

import pytest

from jobs.storage.file_lock import SAY_EVERY, lock_file
from tests.jobs.storage.test_object_lock import Time


def test_a_wait_for_a_lock_is_logged_each_minute_and_ends_in_an_error(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    path, time = tmp_path / "lock", Time()
    with path.open("w") as held, path.open() as wanted:
        lock_file(held.fileno(), path)
        with pytest.raises(TimeoutError, match=f"has held {path} for 150 s; `fuser {path}`"):
            lock_file(wanted.fileno(), path, wait=150, clock=time.clock, sleep=time.sleep)
    assert time.now == pytest.approx(1150, abs=0.1)
    assert caplog.messages == [f"waits for another process, which holds {path}"] * int(
        150 // SAY_EVERY
    )


def test_a_lock_is_free_when_its_file_is_closed(tmp_path):
    path = tmp_path / "lock"
    held = path.open("w")
    lock_file(held.fileno(), path)
    time = Time(held.close)
    with path.open() as wanted:
        lock_file(wanted.fileno(), path, clock=time.clock, sleep=time.sleep)
