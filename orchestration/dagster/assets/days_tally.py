"""Collects the results of the days of a run, and makes the failure that reports them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import dagster as dg

from jobs.declare.values.calendar import name_unit
from jobs.wording import counted

NAMED = 3  # days that are not published, in the reason of a run of several
ENDED_LATER = "The run was ended from outside after its last day was published."
NOTHING_LEFT = {
    "next_step": dg.MetadataValue.text(
        "Nothing for its days. If it was to make windows or summaries, materialize their assets."
    )
}


@dataclass(frozen=True)
class Red:
    reason: str
    next_step: str


@dataclass
class DaysTally:
    """The results so far.

    Attributes:
        days: The days of the run.
        published: The days that were published.
        red: The days that were not published.
        unmade: What was not made, such as a summary of a day, with the reason.
        crashed: Whether the program of a day was killed or broke off.
    """

    days: list[str]
    published: list[str] = field(default_factory=list)
    red: dict[str, Red] = field(default_factory=dict)
    unmade: list[tuple[str, str]] = field(default_factory=list)
    crashed: bool = False

    @property
    def left(self) -> list[str]:
        """The days without a result so far."""
        return [day for day in self.days if day not in self.red and day not in self.published]

    @property
    def is_red(self) -> bool:
        return bool(self.red or self.unmade)

    def failure(self, links: Mapping[str, dg.MetadataValue]) -> dg.Failure:
        """Return the run's failure, with links to the pages of its single day; only a crash is
        retried.
        """
        if not (self.is_red or self.left):
            return dg.Failure(ENDED_LATER, metadata=NOTHING_LEFT, allow_retries=False)
        if len(self.days) > 1:
            steps = {red.next_step for red in self.red.values()}
            is_same = len(steps) == 1 and not (self.left or self.unmade)  # as of waiting days
            step = steps.pop() if is_same else NEXT_STEP
            return dg.Failure(
                self._count_several(),
                metadata={"next_step": dg.MetadataValue.text(step)},
                allow_retries=self.crashed,
            )
        (red,) = self.red.values()
        metadata = {"next_step": dg.MetadataValue.text(red.next_step), **links}
        return dg.Failure(
            f"Not published: {red.reason}", metadata=metadata, allow_retries=self.crashed
        )

    def _count_several(self) -> str:
        left, red = self.left, list(self.red.items())
        if left or self.crashed:  # the day that ended the run early comes first
            red = red[-1:] + red[:-1]
        named = " ".join(f"{day}: {end.reason.rstrip('.')}." for day, end in red[:NAMED])
        more = f" {len(red) - NAMED} more." if len(red) > NAMED else ""
        unpublished = f" Not published: {named}{more}" if red else ""
        unit = name_unit(self.days)
        rest = f" {counted(len(left), f'{unit} was', f'{unit}s were')} not begun." if left else ""
        unmade = "".join(
            f" Not made: {name}: {why.rstrip('.')}." for name, why in self.unmade[:NAMED]
        )
        return (
            f"{len(self.published)} of {counted(len(self.days), unit)} published."
            f"{unpublished}{rest}{unmade}"
        )


NEXT_STEP = (
    "Fix the cause that the Events name for each day, then materialize the missing and failed "
    "days. If a summary or a table of windows was not made, materialize its asset too."
)
