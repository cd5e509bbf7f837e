"""What happens to days while they are run, as plain data: stages, outcomes and warnings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.schema import DayRecord

PUBLISHED, FAILED, NOT_STARTED = "published", "failed", "not started"


@dataclass(frozen=True)
class DayStage:
    """What a day is doing: an event of its Spark program, or one of the pipeline, `starting` or `deciding`."""

    day: str
    run_id: str
    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DayOutcome:
    """What came of one run of one day. record is None when the day was not written.

    crashed: the program was killed or broke off, so that the same again may go well. no_input: the day has no file of
    input, and nothing need be wrong. progress: the last of its events of this kind. summaries: rows of each that was
    made. unmade: summary and why it is not made.
    """

    day: str
    run_id: str
    state: str  # published, held back, failed, not started, or stopped: and by what (errors.RunStopped)
    reason: str  # one sentence; empty for a published day
    record: DayRecord | None = None
    code: int = 0  # exit status of the Spark program, as far as the day is concerned
    next_step: str = ""  # of a day that was not written
    crashed: bool = False
    no_input: bool = False
    progress: Mapping[str, Any] | None = None
    summaries: Mapping[str, int] = field(default_factory=dict)
    unmade: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()  # sentences: what went wrong beside the day, and changes nothing of its state

    @property
    def is_published(self) -> bool:
        return self.state == PUBLISHED


@dataclass(frozen=True)
class DaysWarning:
    """What went wrong beside the days, and changes nothing of their states; in a sentence. day: the last of them."""

    day: str
    sentence: str


DayEvent = DayStage | DayOutcome | DaysWarning
