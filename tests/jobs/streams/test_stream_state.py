"""What a stream says of its batches in its health file."""

import json
from dataclasses import replace
from pathlib import Path

from jobs.streams import stream_state
from jobs.streams.enrich_stream import Stream
from tests.jobs.tables.test_publishing import FLIGHTS, run


def test_each_day_of_a_batch_of_many_days_is_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint = Path(stream_state.checkpoint_path(FLIGHTS.output.path))
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": "query"}))
    days = [f"2013-01-{day:02}" for day in range(1, 26)]
    record = run("query-0-a", days[0], [1])
    stream = Stream(FLIGHTS, None, wait=0)
    stream._note(0, [replace(record, facts=replace(record.facts, day=day)) for day in days], 0)
    assert [done.day for done in stream_state.read("flights").last] == days
    stream._note(1, [record], 0)
    assert len(stream_state.read("flights").last) == stream_state.SHOWN
