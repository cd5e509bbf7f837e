"""Options of a run of days beyond the declaration, as a command or a job requests them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.schema.records import DayRecord

# of the Spark program: use answers of any age, and call for the others, or for none
ANY_AGE = ("--ignore-ttl",)
NO_CALLS = ("--no-calls", *ANY_AGE)

Accept = Callable[[DayRecord], str]  # why the day must not be published; empty if it may be


@dataclass(frozen=True)
class DayOptions:
    """Options of a run of days.

    Attributes:
        program: Further options of the Spark program.
        accept: A demand on a written day beyond its checks.
        until_red: Whether the first day that is not published is the last.
        summaries: Whether they are made.
        cap_left: By day, what earlier runs of the command left of its cap.
    """

    program: Sequence[str] = ()
    accept: Accept | None = None
    until_red: bool = False
    summaries: bool = True
    cap_left: Mapping[str, float] = field(default_factory=dict)
