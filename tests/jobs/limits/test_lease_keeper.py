"""The keeper of a run's leases, between the run's tasks and the store."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from jobs.limits.file_store import FileStore
from jobs.limits.lease_book import Claim, Limit
from jobs.limits.lease_keeper import LeaseKeeper
from jobs.limits.limits_plan import CALLS, ServiceLimits

LIMITS = ServiceLimits("geo", {CALLS: Limit(4)}, longest_call=5.0)
NOTHING, ALL = {CALLS: Claim(Limit(4), 0, 0)}, {CALLS: Claim(Limit(4), 0, 4)}


class Kept:
    """A keeper and its store, whose clock the test moves."""

    def __init__(self, path):
        self.now = 0.0
        self.store = FileStore(path, patience=5.0, clock=lambda: self.now)
        self.keeper = LeaseKeeper(LIMITS, "run", "run", self.store, lambda: self.now)

    async def beat(self, after=0.1):
        self.now += after
        await self.keeper.beat()

    async def pause(self):
        """What `tidegate limits` says of the pause."""
        books, now = await self.store.books()
        return books["geo"].pause(now)


@pytest.fixture
def play(tmp_path):
    """Plays a test's coroutine with a keeper."""

    def plays(main: Callable[[Kept], Awaitable[None]]) -> None:
        async def whole():
            kept = Kept(str(tmp_path / "limits.sqlite"))
            await main(kept)
            await kept.store.close()

        asyncio.run(whole())

    return plays


def test_a_task_that_wants_calls_after_idleness_gets_them_with_the_first_heartbeat(play):
    async def main(kept):
        kept.keeper.heartbeat("task", ALL)
        await kept.beat()
        kept.keeper.heartbeat("task", NOTHING)
        await kept.beat()
        kept.now += 3600
        assert kept.keeper.heartbeat("task", ALL).shares[CALLS].has == 0
        await kept.beat()
        assert kept.keeper.heartbeat("task", ALL).shares[CALLS].has == 4

    play(main)


def test_an_expired_lease_gives_a_task_no_share(play):
    async def main(kept):
        kept.keeper.heartbeat("task", ALL)
        await kept.beat()
        kept.now += LIMITS.longest_call + 10.0
        share = kept.keeper.heartbeat("task", ALL).shares[CALLS]
        assert min(share.has, share.target) == 0

    play(main)


def test_a_probe_that_succeeded_opens_the_gate_whatever_another_task_reports(play):
    async def main(kept):
        kept.keeper.close_gate(1.0, "429")
        kept.keeper.heartbeat("prober", ALL)
        await kept.beat()
        kept.keeper.heartbeat("prober", {CALLS: Claim(Limit(4), 4, 4)})
        await kept.beat(after=2.0)
        assert kept.keeper.heartbeat("prober", ALL).gate == "probe"
        assert await kept.pause() == (0.0, "429")
        for task in ("prober", "another"):
            kept.keeper.probed(task)
        await kept.beat()
        assert await kept.pause() is None

    play(main)


@pytest.mark.parametrize("error", [EOFError("of a driver"), OSError("of a folder")])
def test_the_end_of_a_run_survives_any_error_of_the_store(play, error):
    async def main(kept):
        await kept.beat()
        step, steps = kept.store.step, []

        async def fails(service, decide):
            steps.append(service)
            if len(steps) > 1:
                raise error
            return await step(service, decide)

        kept.store.step = fails
        assert not await kept.keeper.end()

    play(main)
