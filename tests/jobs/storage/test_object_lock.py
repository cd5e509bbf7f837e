"""A lock that is an object of a store has one holder, whatever is killed, paused or answers too
late.
"""

import json
import threading

import pytest

from jobs.storage import object_lock, objects
from jobs.storage.object_lock import BEAT, EXPIRES, LockLost, LockTaken, ObjectLock, held


class Time:
    """Seconds that pass when somebody sleeps. meanwhile: called before each sleep."""

    def __init__(self, meanwhile=lambda: None):
        self.now = 1000.0
        self.meanwhile = meanwhile

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.meanwhile()
        self.now += seconds


@pytest.fixture
def place(s3):
    return f"{s3.bucket}/table/_leases/2013-01-10.json"


def lock(place, name):
    return ObjectLock(place, {"run_id": name}, token=name)


def take(one, wait=0.0, time=None):
    time = time or Time()
    one.take(wait, clock=time.clock, sleep=time.sleep)
    return time.now - 1000.0


def test_one_of_twenty_processes_gets_the_lock_and_the_others_learn_its_holder(place):
    locks, ended = [lock(place, f"r{number}") for number in range(20)], {}
    barrier = threading.Barrier(len(locks))

    def contend(one):
        barrier.wait(30)
        try:
            one.take(0)
            ended[one] = "taken"
        except LockTaken as taken:
            ended[one] = taken.holder.get("run_id")

    threads = [threading.Thread(target=contend, args=(lock,)) for lock in locks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    (winner,) = [lock for lock, end in ended.items() if end == "taken"]
    holder = json.loads(objects.read(place).data)["run_id"]
    assert lock(place, holder)._about == winner._about
    assert {end for lock, end in ended.items() if lock is not winner} <= {holder, None}


def test_a_killed_holder_is_replaced_after_its_object_has_not_changed_for_the_lease(place):
    first, second = lock(place, "first"), lock(place, "second")
    take(first)
    with pytest.raises(LockTaken):
        take(second, wait=EXPIRES - 2)
    assert EXPIRES <= take(second, wait=60) <= EXPIRES + object_lock.LOOK_EVERY
    assert second.before["run_id"] == "first"


def test_a_working_holder_keeps_the_lock_however_long_another_process_waits(place):
    first, second = lock(place, "first"), lock(place, "second")
    take(first)
    beats = []

    def beat():
        if time.now >= 1000.0 + BEAT * (len(beats) + 1):
            beats.append(first.confirm())

    time = Time(beat)
    with pytest.raises(LockTaken, match=r"has held .*01-10\.json for 120 s") as refused:
        take(second, wait=120, time=time)
    assert refused.value.holder["run_id"] == "first"
    first.confirm()


def test_a_holder_paused_beyond_its_lease_may_not_write_and_does_not_free_the_lock(place):
    first, second = lock(place, "first"), lock(place, "second")
    take(first)
    take(second, wait=60)
    with pytest.raises(LockLost) as lost:
        first.confirm()
    assert lost.value.holder["run_id"] == "second"
    first.release()
    second.confirm()


def test_a_released_lock_is_taken_at_once(place):
    first, second = lock(place, "first"), lock(place, "second")
    take(first)
    first.release()
    assert take(second) == 0.0


def test_a_lock_write_with_a_lost_response_counts(place, monkeypatch):
    """The store has it, and refuses the same again."""
    first, usual = lock(place, "first"), objects.replace

    def twice(*arguments):
        usual(*arguments)
        return usual(*arguments)

    take(first)
    monkeypatch.setattr(objects, "replace", twice)
    first.confirm()
    monkeypatch.undo()
    first.confirm()
    assert json.loads(objects.read(place).data)["beat"] > 2


def test_a_held_lock_is_renewed_while_its_holder_works(place, monkeypatch, wait_for):
    monkeypatch.setattr(object_lock, "BEAT", 0.01)
    with held(place, {"run_id": "first"}, wait=0):
        wait_for(lambda: json.loads(objects.read(place).data)["beat"] > 5)
    assert object_lock.ENDED in json.loads(objects.read(place).data)
