"""Many runs of many tasks in virtual time: the service counts what is in flight, whatever dies,
stops or is lost.
"""

import asyncio
import random

import pytest

from asyncio_core.testing import run_virtual
from tests.jobs.limits.fleet import MemoryStore, fleet
from tests.support.variants import first_of


def run(seed=1, **options):
    draw = random.Random(seed)
    store = MemoryStore(draw, as_json=options.pop("as_json", False))
    return run_virtual(lambda: fleet(draw=draw, store=store, **options), seed=seed)


def test_three_runs_share_a_limit_fairly_and_use_it():
    service, store, use, jain = run(runs=3, tasks=4, limit=16, seconds=60, as_json=True)
    assert service.peak == 16
    assert use >= 0.99
    assert jain >= 0.95
    assert store.steps / 60 < 4


@pytest.mark.proof
@pytest.mark.slow
def test_a_thousand_tasks_in_twenty_runs_cost_the_store_twenty_steps_a_second():
    service, store, use, jain = run(runs=20, tasks=50, limit=40, seconds=15)
    assert service.peak == 40
    assert use >= 0.95
    assert jain >= 0.95
    assert store.steps / 15 < 25


@pytest.mark.proof
def test_ten_thousand_tasks_in_two_hundred_runs_cost_the_store_230_steps_a_second_at_most():
    service, store, use, jain = run(runs=200, tasks=50, limit=1000, seconds=15)
    assert service.peak == 1000
    assert use >= 0.95
    assert jain >= 0.95
    assert store.steps / 15 < 230


async def trouble(runs, store, service):
    loop, draw = asyncio.get_running_loop(), store.draw
    store.loses = 0.05
    for number in range(9):
        await asyncio.sleep(5)
        victim = draw.choice([run for run in runs if run.alive])
        if number % 3 == 0 and number < 6:
            victim.kill()
        elif number % 3 == 1:
            victim.frozen_until = loop.time() + 30
        else:
            store.down = True
            await asyncio.sleep(draw.choice([2.0, 20.0, 40.0]))
            store.down = False


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_of(range(5), 2))
def test_kills_stops_and_store_outages_never_exceed_the_limit(seed):
    service, _, _, _ = run(seed, runs=6, tasks=4, limit=16, seconds=120, meanwhile=trouble)
    assert service.peak == 16
    assert len(service.starts) > 1000


def test_the_share_of_a_killed_run_is_used_again_after_its_time_to_live():
    killed = 20.0

    async def kill(runs, store, service):
        await asyncio.sleep(killed)
        runs[0].kill()

    service, _, _, _ = run(runs=2, tasks=4, limit=16, seconds=60, meanwhile=kill)
    ttl = 12.0  # the longest call, 2 s, and 10 s
    rates = [
        sum(start <= began < start + 5 for began in service.starts) / 5
        for start in (10.0, killed, killed + ttl + 2)
    ]
    assert service.peak == 16
    assert rates[1] < 0.8 * rates[0]
    assert rates[2] > 0.95 * rates[0]


@pytest.mark.slow
def test_without_the_store_calls_stay_within_the_lease_and_go_on_when_the_store_is_back():
    async def down(runs, store, service):
        await asyncio.sleep(20)
        store.down = True
        await asyncio.sleep(40)
        store.down = False

    service, _, _, _ = run(runs=3, tasks=4, limit=16, seconds=80, meanwhile=down)
    assert service.peak == 16
    assert [start for start in service.starts if 20 < start < 29], "a short outage is not felt"
    assert not [start for start in service.starts if 31.1 < start < 60]
    assert [start for start in service.starts if start > 62]


def test_a_pause_reaches_all_tasks_of_all_runs_within_a_second_and_ends_with_one_probe():
    seconds = 5.0

    async def throttle(runs, store, service):
        await asyncio.sleep(20)
        runs[1].keeper.close_gate(seconds, "429")

    service, _, _, _ = run(runs=3, tasks=4, limit=16, seconds=30, meanwhile=throttle)
    after = sorted(start for start in service.starts if start > 21)
    assert after[0] >= 20 + seconds
    assert after[1] - after[0] >= 0.05, "the probe is answered before the next call starts"
    assert sum(start < after[0] + 2 for start in after) > 16, "then all go on"
    assert sum(20.1 < start < 21 for start in service.starts) == 0
