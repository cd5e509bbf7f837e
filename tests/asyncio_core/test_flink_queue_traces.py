"""Replays scripts recorded from the queue classes of Flink 2.3.0; flink/README.md says what the
lines hold.
"""

import json
from pathlib import Path

import pytest

from asyncio_core import (
    OrderedStreamElementQueue,
    StreamRecord,
    UnorderedStreamElementQueue,
    Watermark,
)

TRACES = Path(__file__).parent / "flink" / "queue_traces.jsonl"
SCRIPTS = [json.loads(line) for line in TRACES.read_text().splitlines()]


class Replay:
    """One script against one of our queues."""

    def __init__(self, script):
        queues = {"ORDERED": OrderedStreamElementQueue, "UNORDERED": UnorderedStreamElementQueue}
        self.mode = script["mode"]
        self.queue = queues[self.mode](script["capacity"])
        self.records = {}
        self.watermarks = []
        self.completed = set()

    def state(self):
        return [len(self.queue), self.queue.is_empty(), self.queue.has_completed_elements()]

    def emit_one(self):
        emitted = []
        self.queue.emit_completed_element(emitted.append)
        return [plain(element) for element in emitted]

    def put_record(self, id, ts):  # noqa: A002 - the name in the trace
        entry = self.queue.try_put(StreamRecord(id, ts))
        if entry is not None:
            self.records[id] = entry
        return entry is not None

    def put_watermark(self, ts):
        entry = self.queue.try_put(Watermark(ts))
        if entry is not None:
            self.watermarks.append(entry)
        return entry is not None

    def complete(self, id, outputs):  # noqa: A002 - the name in the trace
        self.records[id].complete(outputs)
        self.completed.add(id)

    def complete_exceptionally(self, id):  # noqa: A002 - the name in the trace
        self.records[id].complete_exceptionally(ValueError("no queue business"))

    def complete_watermark(self, nth_accepted_watermark):
        self.watermarks[nth_accepted_watermark].complete([])

    def emit_all(self):
        emitted = []
        while self.queue.has_completed_elements():
            emitted.append(self.emit_one())
        return emitted

    def size(self):
        return len(self.queue)

    def is_empty(self):
        return self.queue.is_empty()

    def has_completed(self):
        return self.queue.has_completed_elements()

    def values(self):
        values = [plain(element) for element in self.queue.values()]
        return values if self.mode == "ORDERED" else self.by_segment(values)

    def by_segment(self, values):
        segments = []
        run = []
        for value in [*values, ["w", None]]:
            if value[0] == "r":
                run.append(value[1])
                continue
            if run:
                done = [id_ for id_ in run if id_ in self.completed]
                assert run[: len(done)] == done, "completed elements come first"
                segments.append({"completed": done, "incomplete": sorted(run[len(done) :])})
                run = []
            if value[1] is not None:
                segments.append(value)
        return segments


def plain(element):
    return (
        ["w", element.timestamp]
        if isinstance(element, Watermark)
        else ["r", element.value, element.timestamp]
    )


@pytest.mark.parametrize(
    "script", SCRIPTS, ids=lambda script: f"{script['id']}-{script['profile']}-{script['mode']}"
)
def test_the_queue_gives_the_outputs_that_flink_recorded(script):
    replay = Replay(script)
    for step, operation in enumerate(script["ops"]):
        where = f"step {step}: {operation['op']} {operation['args']}"
        expected = operation["result"]
        call = getattr(replay, operation["op"])
        if isinstance(expected, dict) and "raises" in expected:
            # AttributeError: an entry of ours takes results only
            with pytest.raises((TypeError, RuntimeError, AttributeError)):
                call(**operation["args"])
        else:
            assert call(**operation["args"]) == expected, where
        assert replay.state() == operation["state"], where
