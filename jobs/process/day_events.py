"""The events of days while they run, as plain data: stages, results and warnings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.errors import (
    AccessRefused,
    BudgetExhausted,
    DayTaken,
    NoInput,
    RunStopped,
    RunWaits,
    TidegateError,
)
from jobs.schema.records import DayRecord

PUBLISHED, FAILED, NOT_STARTED = "published", TidegateError.state, DayTaken.state
# when a day of a state is run again, as the beginning of a sentence
ONCE = {
    FAILED: "Once the cause is fixed",
    NoInput.state: "Once it has input",
    RunStopped.state: "Once the service answers again",
    AccessRefused.state: "Once the service grants access again",
    BudgetExhausted.state: "Once the budget allows it",
    RunWaits.state: "Nothing under a scheduler; else, later",
}


@dataclass(frozen=True)
class DayStage:
    """A stage of a day: an event of its Spark program, or `starting` or `deciding`."""

    day: str
    run_id: str
    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DayResult:
    """The result of a run of a day.

    Attributes:
        record: None when the day was not written.
        crashed: The program was killed or broke off, so that another try may succeed.
        progress: Its last progress event.
        cap_left: What a run that waits left of its cap; None without a cap.
        summaries: Number of rows of each summary that was made.
        unmade: Summary and why it is not made.
    """

    day: str
    run_id: str
    # published, held back, failed, no input, not started, or stopped: and by what (RunStopped)
    state: str
    reason: str  # a sentence; empty for a published day
    record: DayRecord | None = None
    code: int = 0  # exit status of the Spark program, as far as the day is concerned
    next_step: str = ""  # of a day that was not written
    crashed: bool = False
    progress: Mapping[str, Any] | None = None
    cap_left: float | None = None
    summaries: Mapping[str, int] = field(default_factory=dict)
    unmade: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()  # sentences about failures that do not change the day's state

    @property
    def is_published(self) -> bool:
        return self.state == PUBLISHED

    @property
    def unmade_summaries(self) -> list[str]:
        """A sentence for each summary that is not made."""
        return [
            why if f"summary {name} " in why else f"{name} is not made: {why.rstrip('.')}."
            for name, why in self.unmade
        ]


@dataclass(frozen=True)
class DaysWarning:
    """A failure that changes no day's state, in a sentence. day: the last of the days."""

    day: str
    sentence: str


DayEvent = DayStage | DayResult | DaysWarning
