"""What the Spark program reports arrives: progress as lines now and then, everything else whole."""

import dataclasses
import json
import threading
from pathlib import Path

from dagster_pipes import PipesDefaultMessageWriter

from orchestration.messages import WholeLineReader
from orchestration.pipes import PROGRESS_EVERY, Reporter, progress_line, reporter

PROGRESS = {"kind": "progress", "rows": 460, "rows_total": 920, "rows_per_s": 87.6, "in_flight": 10}


@dataclasses.dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_progress_is_a_line_every_few_seconds_and_the_rest_is_sent_at_once():
    lines, messages, clock = [], [], Clock()
    report = Reporter(lines.append, messages.append, clock)
    for _ in range(20):  # twice a second, as the driver reports
        report(PROGRESS)
        clock.now += 0.5
    report({"kind": "stopped", "reason": "weather_api stopped answering"})
    assert len(lines) == 1 + int(9.5 / PROGRESS_EVERY)
    (stopped,) = messages
    assert (stopped["kind"], stopped["reason"]) == ("stopped", "weather_api stopped answering")
    assert stopped["progress"] == progress_line(PROGRESS)  # how far it came


def test_a_day_that_fails_before_its_first_row_is_not_told_how_far_the_day_before_it_came():
    messages = []
    report = Reporter(lambda line: None, messages.append, Clock())
    for event in (PROGRESS, {"kind": "checked"}, {"kind": "failed", "day": "2013-01-11", "reason": "no input"}):
        report(event)
    assert "progress" not in messages[-1]


def test_a_progress_line_says_what_is_known_and_nothing_else():
    assert progress_line(PROGRESS) == "460 of 920 rows (50%), 88 rows/s, 10 in flight"
    full = PROGRESS | {"p50_ms": 48.2, "p99_ms": 201.0, "retries": 3, "timeouts": 0, "left_s": None}
    message = "460 of 920 rows (50%), 88 rows/s, 10 in flight, p50 48 ms, p99 201 ms, 3 retries, 0 timeouts"
    assert progress_line(full) == message
    assert progress_line({"kind": "progress", "rows": 0, "rows_total": 0}) == "0 rows"
    assert progress_line(PROGRESS | {"unit": "keys"}) == "460 of 920 keys (50%), 88 keys/s, 10 in flight"


def test_outside_dagster_the_reporter_says_nothing(monkeypatch, capfd):
    monkeypatch.delenv("DAGSTER_PIPES_CONTEXT", raising=False)
    reporter()(PROGRESS)
    assert capfd.readouterr() == ("", "")


class Handler:
    """Takes messages where Dagster's handler would."""

    def __init__(self) -> None:
        self.messages: list[dict] = []
        self.got_one = threading.Event()

    def handle_message(self, message: dict) -> None:
        self.messages.append(message)
        self.got_one.set()


def test_a_message_seen_half_written_is_handed_on_whole():
    handler = Handler()
    small, large = json.dumps({"a": 1}).encode(), json.dumps({"pictures": "x" * 300_000}).encode()
    with (
        WholeLineReader().read_messages(handler) as parameters,
        Path(parameters[PipesDefaultMessageWriter.FILE_PATH_KEY]).open("ab", buffering=0) as file,
    ):
        file.write(small + b"\n" + large[:100_000])
        assert handler.got_one.wait(10)  # the reader has now seen the half
        file.write(large[100_000:] + b"\n")
    assert handler.messages == [json.loads(small), json.loads(large)]


def test_what_was_written_just_before_the_end_is_still_read():
    handler = Handler()
    with WholeLineReader().read_messages(handler) as parameters:
        path = Path(parameters[PipesDefaultMessageWriter.FILE_PATH_KEY])
        path.write_text("".join(json.dumps({"number": number}) + "\n" for number in range(1_000)))
    assert [message["number"] for message in handler.messages] == list(range(1_000))
