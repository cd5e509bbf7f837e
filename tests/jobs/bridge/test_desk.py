"""The driver's desk alone: who may begin, who is to stop, and what each has of the calls in flight."""

import contextlib
import json
import select
import socket

import pytest

from jobs.bridge.desk import Desk, Given
from jobs.bridge.stopping import report_to_desk
from jobs.errors import ComputedBefore
from tests.jobs.bridge.test_stop_watch import Run

WRITE_FIRST = "write it first, then read what was written"


def says_more(line, seconds):
    return bool(select.select([line.socket], [], [], seconds)[0])


@pytest.fixture
def run():
    return Run()


@pytest.fixture
def active():
    return {7}


@pytest.fixture
def desk(active):
    return Desk("127.0.0.1", "127.0.0.1", lambda stage: stage in active)


def test_a_task_that_spark_tries_again_is_let_through_and_another_stage_is_not(desk, run):
    address = desk.register(once=True)
    report_to_desk(address, run, partition=3, stage=7, task=3).close()
    report_to_desk(address, run, partition=3, stage=7, task=3).close()
    with pytest.raises(ComputedBefore, match=WRITE_FIRST):
        report_to_desk(address, run, partition=3, stage=8, task=3)
    report_to_desk(address, run, partition=4, stage=8, task=4).close()


def test_where_every_answer_is_stored_nothing_is_refused(desk, run):
    address = desk.register(once=False)
    for stage in (7, 8):
        report_to_desk(address, run, partition=0, stage=stage, task=0).close()


def test_the_tasks_of_a_stage_that_ended_are_told_to_stop_and_others_are_not(desk, run, active):
    active.add(8)
    address = desk.register(once=True)
    ends, stays = (report_to_desk(address, run, partition=stage, stage=stage, task=0) for stage in (7, 8))
    not_seen_yet = report_to_desk(address, run, partition=9, stage=9, task=0)
    assert not says_more(ends, 0.6)  # time enough for the desk to see them at work
    active.remove(7)
    assert says_more(ends, 30)
    assert ends.words() == [["stop"]]
    assert not says_more(stays, 0.6)
    assert not says_more(not_seen_yet, 0.1)
    for connection in (ends, stays, not_seen_yet):
        connection.close()


def test_what_a_stranger_says_is_not_answered_and_disturbs_nobody(desk, run):
    address = desk.register(once=True)
    for said in (b"GET / HTTP/1.1\r\n\r\n", json.dumps({"frame": "guessed", "stage": 1}).encode() + b"\n", b"x" * 5000):
        with socket.create_connection((address.host, address.port), 30) as stranger:
            stranger.sendall(said)
            stranger.settimeout(30)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(10) == b""
    report_to_desk(address, run, partition=0, stage=7, task=0).close()


def test_a_desk_that_cannot_be_reached_stops_nobody(desk, run, caplog):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = desk.register(once=True)
        gone = type(address)(address.host, nobody.getsockname()[1], address.frame, address.once)
        assert report_to_desk(gone, run, partition=0, stage=1, task=0) is None
    assert "is not reached" in caplog.text


# -- what others leave -------------------------------------------------------------------------------------------------
class Task:
    """One that has reported, and then says what a task says."""

    def __init__(self, address, number, *, waits=False):
        self.run = Run()
        self.line = report_to_desk(address, self.run, partition=number, stage=7, task=number, waits=waits)

    def hears(self):
        assert says_more(self.line, 30)
        ((word, *shares),) = self.line.words()
        self.line.say(since=self.run.widen([*map(int, shares)]))
        return word, [*map(int, shares)]

    def needs(self, calls, at):
        self.line.say(needs=calls, **{"from": at})

    def end(self, at):
        self.line.say(ended=at)
        self.line.close()


@pytest.fixture
def task(desk):
    """Makes tasks of one run, and lets them go at the end."""
    made = []

    def report(address, number, **options):
        made.append(Task(address, number, **options))
        return made[-1]

    yield report
    for one in made:
        one.line.close()


def test_what_a_task_that_ended_had_goes_to_those_that_work_and_it_is_known_since_when(desk, task):
    address = desk.register(once=False, totals=(10, 4), tasks=3)
    first, second = task(address, 0), task(address, 1)
    assert (first.run.shares, second.run.shares) == ([[4, 2]], [[3, 1]])
    task(address, 2).end(500)
    assert first.hears() == ("share", [5, 2])
    assert second.hears() == ("share", [5, 2])
    second.end(600)
    assert first.hears() == ("share", [10, 4])
    first.end(700)
    assert desk.given(address) == [
        Given(0, (4, 2), 101), Given(1, (3, 1), 101), Given(2, (3, 1), 101),
        Given(2, (0, 0), 500), Given(0, (5, 2), 102), Given(1, (5, 2), 102),
        Given(1, (0, 0), 600), Given(0, (10, 4), 103), Given(0, (0, 0), 700),
    ]  # fmt: skip


def test_what_a_task_needs_no_more_goes_to_the_others_before_it_ends(desk, task):
    address = desk.register(once=False, totals=(10, 4), tasks=2)
    first, second = task(address, 0), task(address, 1)
    second.needs([3, 1], at=500)
    assert first.hears() == ("share", [7, 3])
    second.needs([1, 0], at=600)
    assert first.hears() == ("share", [9, 3])
    assert not says_more(second.line, 0.1)
    second.end(700)
    assert first.hears() == ("share", [10, 4])
    first.end(800)
    assert desk.given(address) == [
        Given(0, (5, 2), 101), Given(1, (5, 2), 101), Given(1, (3, 1), 500), Given(0, (7, 3), 102),
        Given(1, (1, 1), 600), Given(0, (9, 3), 103), Given(1, (0, 0), 700), Given(0, (10, 4), 104),
        Given(0, (0, 0), 800),
    ]  # fmt: skip


def test_a_share_that_a_task_hears_of_when_it_needs_no_more_was_for_no_call(desk, task):
    address = desk.register(once=False, totals=(6,), tasks=3)
    first, second, third = (task(address, number) for number in range(3))
    first.end(150)
    assert says_more(second.line, 30)  # not heard yet
    second.needs([1], at=160)
    assert third.hears() == ("share", [3])
    assert third.hears() == ("share", [5])
    assert second.hears() == ("share", [3])
    third.end(200)
    second.end(300)
    assert desk.given(address) == [
        Given(0, (2,), 101), Given(1, (2,), 101), Given(2, (2,), 101), Given(0, (0,), 150), Given(2, (3,), 102),
        Given(1, (1,), 160), Given(2, (5,), 103), Given(2, (0,), 200), Given(1, (0,), 300),
    ]  # fmt: skip


def test_what_a_task_that_died_had_is_kept_for_its_next_attempt(desk, task):
    address = desk.register(once=False, totals=(4,), tasks=2)
    other, dies = task(address, 0), task(address, 1)
    dies.line.close()
    assert task(address, 1).run.shares == [[2]]
    assert not says_more(other.line, 0.1)


def test_a_task_that_had_ended_and_comes_again_waits_until_another_ends(desk, task):
    address = desk.register(once=False, totals=(4,), tasks=2)
    other = task(address, 0)
    task(address, 1).end(500)
    assert other.hears() == ("share", [4])
    again = task(address, 1)
    assert again.run.shares == []
    assert not says_more(again.line, 0.1)
    other.end(600)
    assert again.hears() == ("go", [4])


def test_a_task_that_had_ended_and_comes_again_goes_at_once_where_no_other_works(desk, task):
    address = desk.register(once=False, totals=(4,), tasks=3)
    task(address, 1).end(500)
    assert task(address, 1, waits=True).run.shares == [[1]]


def test_that_a_task_that_may_come_yet_has_less_is_known_before_another_has_more(desk, task):
    address = desk.register(once=False, totals=(4,), tasks=2)
    dies = task(address, 0)
    task(address, 1).end(500)
    assert dies.hears() == ("share", [4])
    dies.line.close()
    again, next_attempt = task(address, 1, waits=True), task(address, 0)
    assert (again.run.shares, next_attempt.run.shares) == ([[1]], [[3]])
    next_attempt.end(600)
    assert again.hears() == ("share", [4])
    again.end(700)
    together, most = {0: 2, 1: 2}, 0
    for one in desk.given(address):
        together[one.task] = one.shares[0]
        most = max(most, sum(together.values()))
    assert most == 4


def test_what_a_task_takes_after_it_has_ended_was_for_no_call(desk, task):
    address = desk.register(once=False, totals=(4,), tasks=2)
    first, second = task(address, 0), task(address, 1)
    second.line.say(ended=101)  # the next share is on its way already
    first.end(150)
    assert second.hears() == ("share", [4])  # from 102 on
    second.line.close()
    assert desk.given(address) == [Given(0, (2,), 101), Given(1, (2,), 101), Given(0, (0,), 150), Given(1, (0,), 101)]
