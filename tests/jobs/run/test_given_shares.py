"""How many calls one partition has in flight where the tasks of a run divide them, and what it says at its end."""

import dataclasses
import itertools
import threading
import types

import pyarrow as pa
import pytest

from jobs.task.driver_link import PARTITION_OF_FRAME, DriverAddress, ToDriver, with_driver
from jobs.task.runner import PartitionRun
from tests.jobs.task.test_runner import Function, batches, in_time, lookup, plan
from tidegate import Cache

pytestmark = pytest.mark.slow

DIVIDED = DriverAddress("127.0.0.1", 1, 0, once=False, divides=True)  # it is not asked: the test says what it would


@pytest.mark.parametrize("mode", ["ordered", "unordered"])
@pytest.mark.parametrize("cache", [None, Cache()])
def test_a_task_has_as_many_calls_in_flight_as_it_is_given_meanwhile(wait_for, mode, cache):
    function = Function(seconds=lambda key: 0.005)
    planned = dataclasses.replace(plan(lookup(function, cache=cache), mode=mode), shares=((4, 3, 3),), driver=DIVIDED)
    run = PartitionRun(planned, 0, 0)
    seen = []

    def give():
        for share, calls in ((4, 200), (10, 500)):
            wait_for(lambda calls=calls: function.calls > calls)
            seen.append(function.highest)
            run.grow([share])
            wait_for(lambda share=share: function.highest == share)

    giving = threading.Thread(target=give)
    giving.start()
    rows = in_time(lambda: pa.Table.from_batches(list(run.run(iter(batches(2000))))))
    giving.join()
    assert sorted(rows["id"].to_pylist()) == list(range(2000))
    assert (*seen, function.highest) == (1, 4, 10)


@pytest.mark.parametrize("share", [1, 4])
def test_the_share_that_comes_with_the_first_rows_holds_from_the_first_call(share):
    function = Function(seconds=lambda key: 0.005)
    run = PartitionRun(dataclasses.replace(plan(lookup(function)), shares=((4, 3),), driver=DIVIDED), 0, 1)

    def given():
        run.grow([share])
        yield from batches(100)

    assert sum(found.num_rows for found in in_time(lambda: list(run.run(given())))) == 100
    assert function.highest == share  # 1: an attempt before it had lent the others


def test_a_task_that_does_not_reach_the_driver_has_what_each_has_at_first():
    function = Function(seconds=lambda key: 0.005)
    run = PartitionRun(dataclasses.replace(plan(lookup(function)), shares=((4, 3),), driver=DIVIDED), 0, 0)
    task = types.SimpleNamespace(stageId=lambda: 7, partitionId=lambda: 0)
    given = (one.append_column(PARTITION_OF_FRAME, pa.array([0] * one.num_rows, pa.int32())) for one in batches(60))
    assert sum(found.num_rows for found in in_time(lambda: list(with_driver(run, given, DIVIDED, task)))) == 60
    assert function.highest == 3


def test_a_share_on_its_way_when_a_task_says_what_it_needs_is_not_beyond_what_it_said():
    quick, slow = Function(), Function(seconds=lambda key: 0.02)
    planned = plan(lookup(quick, "a"), lookup(slow, "b"))
    message = []

    def given():
        run.grow([4, 4])
        yield from batches(150)

    class Hears(ToDriver):
        def say_needs(self, calls):
            if not message:
                run.grow([8, 8])  # the driver gave it before it heard this, and keeps the lesser of the two
            message.append(calls)

    planned = dataclasses.replace(planned, shares=((4, 4), (4, 4)), driver=DIVIDED)
    run = PartitionRun(planned, 0, 0, driver=Hears())
    rows = in_time(lambda: sum(found.num_rows for found in run.run(given())))
    assert rows == 150
    assert message[0][0] <= 2
    assert slow.highest <= min(8, message[0][1])
    for before, after in itertools.pairwise(message):
        assert all(now <= then for now, then in zip(after, before, strict=True))
