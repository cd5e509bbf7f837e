"""The end of a day's run as plain data, for the process that started the run."""

from dataclasses import dataclass

from jobs.schema.facts import Facts


@dataclass(frozen=True)
class RunEnd(Facts):
    """The end of a day's run.

    Attributes:
        day: The day.
        run_id: Dagster's id of the run.
        success: Whether the day was published.
        reason: Why the day was not published; else empty.
        next_step: What to do then; else empty.
    """

    day: str
    run_id: str
    success: bool
    reason: str = ""
    next_step: str = ""
