"""The end of a day's run as plain data, sent to the process that waits for it."""

from dataclasses import dataclass

from jobs.schema.facts import Facts


@dataclass(frozen=True)
class Outcome(Facts):
    """The end of a run. reason and next_step are empty for a day that was published."""

    day: str
    run_id: str
    success: bool
    reason: str = ""
    next_step: str = ""
