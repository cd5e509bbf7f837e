"""How days are run, beyond what is declared: what a command or a job asks for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.schema import DayRecord

Accept = Callable[[DayRecord], str]  # why the day is not to be published; empty when it may be


@dataclass(frozen=True)
class DayOptions:
    """How days are run. program: further options of the Spark program. accept: what is demanded of a written day beyond
    its checks. until_red: whether the first day that is not published is the last. summaries: whether they are made.
    """

    program: Sequence[str] = ()
    accept: Accept | None = None
    until_red: bool = False
    summaries: bool = True
