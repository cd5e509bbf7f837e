"""How far a day is, as lines in the log of its run: one now and then, each with what is known."""

import dataclasses

from jobs.run.terminal import progress_line
from orchestration.common.progress_log import EVERY, ProgressLog

DAY, NEXT = "2013-01-10", "2013-01-11"
PROGRESS = {"kind": "progress", "rows": 460, "rows_total": 920, "rows_per_s": 87.6, "in_flight": 10}


@dataclasses.dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_progress_is_logged_every_few_seconds_and_at_each_new_phase_or_day():
    lines, clock = [], Clock()
    log = ProgressLog(lines.append, clock)
    for _ in range(20):  # twice a second, as the driver reports
        log(DAY, PROGRESS)
        clock.now += 0.5
    assert len(lines) == 1 + int(9.5 / EVERY)
    log(DAY, PROGRESS | {"unit": "keys"})
    log(NEXT, PROGRESS | {"unit": "keys"})
    log(NEXT, PROGRESS | {"unit": "keys"})
    assert len(lines) == 3 + int(9.5 / EVERY)


def test_a_progress_line_has_only_known_figures():
    assert progress_line(PROGRESS) == "460 of 920 rows (50%), 88 rows/s, 10 in flight"
    full = PROGRESS | {"p50_ms": 48.2, "p99_ms": 201.0, "retries": 3, "timeouts": 0, "left_s": None}
    message = (
        "460 of 920 rows (50%), 88 rows/s, 10 in flight, p50 48 ms, p99 201 ms, 3 retries, 0 "
        "timeouts"
    )
    assert progress_line(full) == message
    assert progress_line({"kind": "progress", "rows": 0, "rows_total": 0}) == "0 rows"
    assert progress_line({"rows": 999, "rows_total": 1000}) == "999 of 1,000 rows (99.9%)"
    assert progress_line(PROGRESS | {"unit": "keys"}) == (
        "460 of 920 keys (50%), 88 keys/s, 10 in flight"
    )
