"""A stream compacts its ledger as it goes, and spends little of its time on it."""

import pytest

from jobs.ledger.answers import StoredAnswer
from jobs.ledger.generations import contents
from jobs.run.plan.options import RunOptions, plan_ledger
from jobs.streams.stream_compaction import BATCHES, StreamCompaction
from tidegate import AsyncFunctionLookup, Enrichment, Input, Ledger, Output


class Twice:
    async def async_invoke(self, keys):
        return [{"twice": 2 * keys["k"]}]


class Clock:
    """So much later, in seconds, after each look at it."""

    def __init__(self, step):
        self.step, self.now = step, 0.0

    def __call__(self):
        self.now += self.step
        return self.now - self.step


@pytest.fixture
def stream(tmp_path):
    twice = AsyncFunctionLookup(
        name="twice",
        function=Twice,
        keys={"k": "k"},
        returns="twice BIGINT",
        timeout=1.0,
        max_concurrency=1,
    )
    return Enrichment(
        name="doubled",
        input=Input(path="raw"),
        lookups=[twice],
        output=Output(path=str(tmp_path / "published")),
        ledger=Ledger(str(tmp_path / "ledger")),
    )


def batches_until_compacted(stream, compaction, at_most, before_each=lambda _number: None):
    """How many batches, of a part each, until none is left."""
    folder = plan_ledger(stream, stream.lookups[0], "r", RunOptions()).open_folder()
    for number in range(1, at_most + 1):
        run = f"b{len(folder.parts())}"
        folder.write_part(run, "0-0-0", [StoredAnswer(run, "ok", b"{}", number, run)])
        before_each(number)
        compaction.batch_ended()
        if not contents(folder).parts:
            return number
    return None


def test_a_stream_compacts_its_ledger_every_hundred_batches(stream):
    compaction = StreamCompaction(stream, clock=Clock(0.001))
    assert batches_until_compacted(stream, compaction, 2 * BATCHES) == BATCHES
    assert batches_until_compacted(stream, compaction, 2 * BATCHES) == BATCHES


@pytest.mark.proof
@pytest.mark.slow
def test_a_stream_spends_at_most_a_twentieth_of_its_time_on_compaction(
    stream,
):
    compaction = StreamCompaction(stream, clock=(clock := Clock(10.0)))  # between two batches

    def last_is_slow(number):
        clock.step = 200.0 if number == BATCHES else 10.0

    assert batches_until_compacted(stream, compaction, 2 * BATCHES, last_is_slow) == BATCHES
    clock.step = 30.0
    assert 30.0 * batches_until_compacted(stream, compaction, 10 * BATCHES) + 200.0 >= 200.0 / 0.05
