"""A run that waits for its first part of a limit says why."""

import asyncio
import logging
import math

from jobs.limits.file_store import FileStore
from jobs.limits.lease_book import Claim, Limit
from jobs.limits.lease_keeper import LeaseKeeper
from jobs.limits.limits_plan import CALLS, ServiceLimits

LONGEST_CALL = 90.0  # s
SAID = (
    "service geo: for 10 s no call could start, because other runs hold all of its 4 calls in "
    "flight. What a killed run held is free 100 s after its end; `tidegate limits` lists the runs."
)


async def beats(path, caplog):
    """By second, how many warnings there were and the part of a run that began when another one was
    killed.
    """
    now, found = 0.0, []
    limits = ServiceLimits("geo", {CALLS: Limit(4)}, LONGEST_CALL)
    store = FileStore(str(path), patience=5.0, clock=lambda: now)
    killed, run = (
        LeaseKeeper(limits, owner, owner, store, lambda: now) for owner in ("killed", "run")
    )
    killed.heartbeat("task", {CALLS: Claim(Limit(4), 0, 4)})
    await killed.beat()
    for _ in range(120):
        run.heartbeat("task", {CALLS: Claim(Limit(4), 0, 4)})
        await run.beat()
        found.append((len(caplog.messages), run.holder.shares[CALLS].has, run.waits))
        now += 1.0
    await store.close()
    return found


def test_a_run_that_waits_for_the_share_of_a_killed_run_says_so(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "tidegate"):
        found = asyncio.run(beats(tmp_path / "limits.sqlite", caplog))
    assert caplog.messages[0] == SAID
    assert [warnings for warnings, _, _ in found[:11]] == [0] * 10 + [1]
    begun = next(second for second, (_, has, _) in enumerate(found) if has)
    assert 90 < begun <= 101
    assert len(caplog.messages) == 2  # again after a minute, and not once it calls
    waits = [text for _, _, text in found]
    # it may live
    assert waits[:4] == ["waits for other runs, which hold all 4 calls in flight of geo"] * 4
    killed = "waits for calls of a killed run to end, {} s"
    assert waits[4:begun] == [
        killed.format(math.ceil(LONGEST_CALL + 10 - second)) for second in range(4, begun)
    ]
    assert set(waits[begun:]) == {""}


async def first_part(path):
    """What a task has after the first heartbeat of its run."""
    store = FileStore(str(path), patience=5.0, clock=lambda: 0.0)
    limits = ServiceLimits("geo", {CALLS: Limit(4)}, LONGEST_CALL)
    run, claims = (
        LeaseKeeper(limits, "run", "run", store, lambda: 0.0),
        {CALLS: Claim(Limit(4), 0, 4)},
    )
    before = run.heartbeat("task", claims).shares[CALLS].has
    await run.beat()
    await store.close()
    return before, run.heartbeat("task", claims).shares[CALLS].has


def test_a_run_gets_its_share_with_its_first_heartbeat(tmp_path):
    assert asyncio.run(first_part(tmp_path / "limits.sqlite")) == (0, 4)
