"""How many calls one partition has in flight where the tasks of a run divide them, and what it
reports at its end.
"""

import dataclasses
import itertools
import threading
import types

import pyarrow as pa
import pytest

from jobs.task.link.driver_link import DriverLink, with_driver
from jobs.task.link.link_protocol import HEARTBEAT, DriverAddress
from jobs.task.runner import PartitionRun
from tests.jobs.task.test_runner import Function, batches, in_time, lookup, plan
from tests.support.variants import first_of
from tidegate import Cache

pytestmark = pytest.mark.slow

# it is not asked: the test says what it would
DIVIDED = DriverAddress("127.0.0.1", 1, 0, divides=True)


@pytest.mark.parametrize("mode", first_of(["ordered", "unordered"]))
@pytest.mark.parametrize("cache", [None, Cache()])
def test_a_task_uses_calls_that_it_is_given_while_it_runs(wait_for, mode, cache):
    function = Function(seconds=lambda key: 0.005)
    planned = dataclasses.replace(
        plan(lookup(function, cache=cache), mode=mode), shares=((4, 3, 3),), driver=DIVIDED
    )
    run = PartitionRun(planned, 0, 0)
    seen = []

    def give():
        for share, calls in ((4, 200), (10, 500)):
            wait_for(lambda calls=calls: function.calls > calls)
            seen.append(function.highest)
            run.take_limits(0, [share], {})
            wait_for(lambda share=share: function.highest == share)

    def with_the_first_rows():
        run.take_limits(0, [1], {})
        yield from batches(2000)

    giving = threading.Thread(target=give)
    giving.start()
    rows = in_time(lambda: pa.Table.from_batches(list(run.run(with_the_first_rows()))))
    giving.join()
    assert sorted(rows["id"].to_pylist()) == list(range(2000))
    assert (*seen, function.highest) == (1, 4, 10)


@pytest.mark.parametrize("share", [1, 4])
def test_the_share_that_comes_with_the_first_rows_holds_from_the_first_call(share):
    function = Function(seconds=lambda key: 0.005)
    run = PartitionRun(
        dataclasses.replace(plan(lookup(function)), shares=((4, 3),), driver=DIVIDED), 0, 1
    )

    def given():
        run.take_limits(0, [share], {})
        yield from batches(100)

    assert sum(found.num_rows for found in in_time(lambda: list(run.run(given())))) == 100
    assert function.highest == share  # 1: an attempt before it had lent the others


def test_a_task_that_cannot_reach_the_driver_uses_its_first_share():
    function = Function(seconds=lambda key: 0.005)
    run = PartitionRun(
        dataclasses.replace(plan(lookup(function)), shares=((4, 3),), driver=DIVIDED), 0, 0
    )
    task = types.SimpleNamespace(stageId=lambda: 7, partitionId=lambda: 0, taskAttemptId=lambda: 0)
    assert (
        sum(
            found.num_rows
            for found in in_time(lambda: list(with_driver(run, batches(60), DIVIDED, task)))
        )
        == 60
    )
    assert function.highest == 3


class Driver(DriverLink):
    """Answers heartbeats at once, with what the test gives."""

    is_connected = True

    def __init__(self, answer):
        super().__init__()
        self._answer = answer
        self.heartbeats = []

    def send(self, kind, **facts):
        if kind == HEARTBEAT:
            self.heartbeats.append(facts)
            self.run.take_limits(facts["number"], self._answer(facts), {})


def test_a_task_without_a_share_begins_when_each_lookup_has_a_share():
    quick, slow = Function(), Function()
    driver = Driver(lambda facts: [4, 4] if facts["number"] > 2 else [0, 4])
    planned = dataclasses.replace(
        plan(lookup(quick, "a"), lookup(slow, "b")), shares=((4, 4), (4, 4)), driver=DIVIDED
    )
    driver.run = PartitionRun(planned, 0, 0, driver=driver)

    def given():
        driver.run.take_limits(0, [0, 4], {})
        yield from batches(20)

    assert in_time(lambda: sum(found.num_rows for found in driver.run.run(given()))) == 20
    assert [heartbeat["keeps"] for heartbeat in driver.heartbeats[:3]] == [[0, 4], [0, 4], [0, 4]]
    assert quick.highest <= 4


def test_a_task_keeps_only_the_share_that_its_last_rows_need():
    function = Function(seconds=lambda key: 0.01 if key < 30 else 1.0)
    driver = Driver(lambda facts: facts["keeps"])
    planned = dataclasses.replace(plan(lookup(function, "a")), shares=((8, 8),), driver=DIVIDED)
    driver.run = PartitionRun(planned, 0, 0, driver=driver)

    def given():
        driver.run.take_limits(0, [8], {})
        yield from batches(33)

    assert in_time(lambda: sum(found.num_rows for found in driver.run.run(given()))) == 33
    kept = [heartbeat["keeps"] for heartbeat in driver.heartbeats]
    assert [3] in kept
    assert kept[-1] == [0]
    for before, after in itertools.pairwise(driver.heartbeats):
        assert after["keeps"][0] <= before["keeps"][0]
        assert after["at"] > before["at"]
