"""Answers on their way to the ledger: stored when the writer says so."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jobs.errors import LedgerError
from jobs.ledger.answers import StoredAnswer, as_answers
from jobs.ledger.keys import key_text
from jobs.ledger.writing.writer import LedgerWriter
from tests.support.places import everywhere

NEVER = 3600.0  # s: what is stored is stored for another reason


def given(number):
    return (number,), "ok", b"%d" % number, number


def answer(number):
    """The same, as it is stored."""
    return StoredAnswer(f"[{number}]", "ok", b"%d" % number, number, "run-1")


@pytest.fixture
def writer(folder):
    made = []

    def make(**rule):
        made.append(LedgerWriter(folder, "run-1", "3-0", **rule))
        return made[-1]

    yield make
    for writer in made:
        writer.close()


def in_store(folder):
    return as_answers(folder.read(folder.parts()))


@everywhere("folder")
def test_wait_returns_when_the_answer_and_all_answers_before_are_stored(folder, writer):
    one = writer(flush_seconds=NEVER)
    tickets = [one.put(*given(number)) for number in range(10)]
    assert tickets == list(range(1, 11))
    one.wait(tickets[4])
    assert in_store(folder)[:5] == [answer(number) for number in range(5)]
    assert one.stored >= 5


def test_a_writer_without_answers_sleeps_until_the_first_comes(folder, writer, wait_for):
    looks = []

    def clock():
        looks.append(threading.current_thread().name)
        return time.monotonic()

    one = writer(flush_seconds=0.01, clock=clock)
    wait_for(lambda: looks)
    time.sleep(0.2)  # ten times the pause between two looks
    assert len(looks) <= 2
    one.put(*given(1))
    wait_for(lambda: in_store(folder) == [answer(1)])


@everywhere("folder")
def test_a_part_is_stored_at_its_maximum_of_rows_without_a_waiting_caller(
    folder, writer, wait_for, monkeypatch
):
    # else a slow disk is given a rest of 99 times as long
    monkeypatch.setattr("jobs.ledger.writing.writer.LARGEST_SHARE", 1.0)
    one = writer(flush_rows=5, flush_seconds=NEVER)
    for start in (0, 5, 10):
        for number in range(start, start + 5):
            one.put(*given(number))
        wait_for(lambda wanted=start + 5: one.stored == wanted)
    assert sorted(in_store(folder), key=lambda stored: stored.answered_at) == [
        answer(number) for number in range(15)
    ]


@everywhere("folder")
def test_a_part_is_stored_after_its_maximum_time_whatever_its_size(folder, writer, wait_for):
    one = writer(flush_rows=1_000_000, flush_seconds=0.05)
    one.put(*given(1))
    wait_for(lambda: one.stored == 1)
    assert in_store(folder) == [answer(1)]


@everywhere("folder")
def test_close_stores_the_rest_ends_the_thread_and_may_be_called_twice(folder, writer):
    one = writer(flush_seconds=NEVER)
    one.put(*given(1))
    one.close()
    one.close()
    assert in_store(folder) == [answer(1)]
    assert not [thread for thread in threading.enumerate() if thread.name == "ledger writer"]


def test_a_writer_without_answers_makes_no_file(folder, writer, tmp_path):
    writer().close()
    assert list(tmp_path.iterdir()) == []


@everywhere("folder")
def test_answers_put_by_many_threads_are_all_stored_once(folder, writer):
    one = writer(flush_rows=7, flush_seconds=0.001)

    def put(start):
        for number in range(start, start + 500):
            one.wait(one.put(*given(number))) if number % 100 == 0 else one.put(*given(number))

    threads = [threading.Thread(target=put, args=(start,)) for start in range(0, 4000, 500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    one.close()
    assert sorted(in_store(folder), key=lambda stored: stored.answered_at) == [
        answer(number) for number in range(4000)
    ]


@everywhere("folder")
def test_two_writers_with_the_same_name_overwrite_no_part(folder, writer):
    for number in range(3):
        one = writer()
        one.put(*given(number))
        one.close()
    assert sorted(in_store(folder)) == [answer(number) for number in range(3)]
    assert len(folder.parts("run-1", "3-0-")) == 3


def test_a_broken_store_fails_every_wait_put_and_close(remote, objects):
    one = LedgerWriter(remote, "run-1", "3-0", flush_seconds=NEVER)
    one.wait(one.put(*given(1)))
    objects.changes_left = 0
    ticket = one.put(*given(2))
    message = (
        r"^ledger 'bucket': answers cannot be stored: .*the store is gone.* what was stored before "
        r"is kept and used\.$"
    )
    with pytest.raises(LedgerError, match=message):
        one.wait(ticket)
    with pytest.raises(LedgerError, match=message):
        one.put(*given(3))
    with pytest.raises(LedgerError, match=message):
        one.close()
    one.wait(1)  # that one is stored, and stays so
    objects.changes_left = None
    assert in_store(remote) == [answer(1)]


@everywhere("folder")
@pytest.mark.process
def test_an_answer_whose_wait_returned_survives_a_kill_of_the_process(folder):
    code = f"""
import os, signal
from jobs.ledger.store import LedgerFolder
from jobs.ledger.writing.writer import LedgerWriter
one = LedgerWriter({folder!r}, "run-1", "0-0", flush_seconds=3600.0)
for number in range(1000):
    ticket = one.put((number,), "ok", b"%d" % number, number)
one.wait(ticket)
one.put((1000,), "ok", b"1", 1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[4])
    assert done.returncode == -9
    assert in_store(folder)[:1000] == [answer(number) for number in range(1000)]


@everywhere("folder")
def test_each_kind_of_record_is_stored_unchanged(folder, writer):
    records = [
        (("Z\u00fcrich",), "ok", '{"\u00e9":"\U0001d4b3"}'.encode(), 2**60),
        (("",), "miss", None, -1),
        (("a",), "error", b'"500"', 0),
        (("a", 1), "timeout", None, 1),
        (("a",), "asked", None, 1),
        (("a",), "expired", b"", 1),
    ]
    one = writer()
    for record in records:
        one.put(*record)
    one.close()
    assert in_store(folder) == [
        StoredAnswer(key_text(key), *rest, "run-1") for key, *rest in records
    ]


def test_a_hidden_key_is_stored_as_a_digest(folder, writer):
    one = writer(hidden=True)
    one.put(*given(1))
    one.close()
    assert in_store(folder) == [answer(1)._replace(key=key_text((1,), hidden=True))]


@everywhere("folder")
def test_a_key_that_has_no_text_is_reported_and_not_stored(folder):
    one = LedgerWriter(folder, "run-1", "3-0", flush_seconds=NEVER)
    one.put(*given(1))
    ticket = one.put((1j,), *given(2)[1:])
    with pytest.raises(LedgerError, match=r"cannot be stored: .*a key cannot hold a complex"):
        one.wait(ticket)
    with pytest.raises(LedgerError, match="a key cannot hold a complex"):
        one.put(*given(3))
    with pytest.raises(LedgerError, match="a key cannot hold a complex"):
        one.close()
    assert folder.parts() == []


@everywhere("folder")
def test_an_answer_that_is_not_text_is_reported_and_not_stored(folder):
    one = LedgerWriter(folder, "run-1", "3-0", flush_seconds=NEVER)
    one.put((1,), "ok", b"\xff", 1)
    with pytest.raises(LedgerError, match=r"cannot be stored: .*utf8"):
        one.close()
    assert folder.parts() == []
