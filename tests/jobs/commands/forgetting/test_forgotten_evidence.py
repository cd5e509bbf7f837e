"""Texts that may name a forgotten row."""

from jobs.commands.forgetting.forgotten_evidence import FORGOTTEN, KeyTraces, delete_logs
from jobs.streams import stream_state
from jobs.streams.stream_state import StreamState
from tests.support.moods import MOOD
from tidegate import Enrichment, Input, Output


def test_the_log_of_a_stream_and_the_reason_of_its_end_name_no_forgotten_row(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    moods = Enrichment(
        name="moods", input=Input(path="raw"), lookups=[MOOD], output=Output(path="out")
    )
    at = "2026-01-01T00:00:00Z"
    state = StreamState("moods", "held back", at, at, reason="batch 1 is held back: 'ann' is null")
    stream_state.write(state)
    log = stream_state.spark_log("moods")
    log.write_text("the answer to ann is no JSON")
    assert delete_logs(moods, KeyTraces()) == 0
    assert log.read_text() == ""
    found = stream_state.read("moods")
    assert (found.state, found.reason) == ("held back", FORGOTTEN)
