"""The night that is simulated at present: what the replaced parts of the product find their
scheduler by.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.scheduler import Scheduler

_at_work: list["Scheduler"] = []


def scheduler() -> "Scheduler":
    """The scheduler of the night at work."""
    return _at_work[-1]


def is_at_work(night: "Scheduler") -> bool:
    """Whether this night has not ended."""
    return night in _at_work


def begin(night: "Scheduler") -> None:
    _at_work.append(night)


def end() -> None:
    _at_work.pop()
