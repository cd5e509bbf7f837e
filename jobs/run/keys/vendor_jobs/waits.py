"""What a run of a day waits for, and what its jobs cost."""

import contextlib
import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.errors import RowFailed, RunWaits
from jobs.ledger.job_files import JobFiles

GOES_ON = "The next run of the day goes on."


@dataclass(frozen=True)
class WaitingDay:
    """The day of a run, which may end as waiting and continue later."""

    enrichment: str
    day: str


@dataclass
class Waits:
    """What a run waits for, a sentence per lookup; and what its jobs cost."""

    day: WaitingDay
    sentences: list[str] = field(default_factory=list)
    settled: list[JobFiles] = field(default_factory=list)
    # lookup -> the facts of the jobs that the day submitted since it waits
    done: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    # lookup -> the number of keys that these jobs answered, or that they failed at
    settled_keys: dict[str, int] = field(default_factory=dict)

    def raise_if_any(self, cap_left: float | None) -> None:
        """Raise RunWaits if jobs are open. cap_left: what the run left of its cap, if any."""
        if self.sentences:
            raise RunWaits(" ".join((*self.sentences, GOES_ON)), cap_left)

    @contextlib.contextmanager
    def ended(self) -> Iterator[None]:
        """End the waiting of the day with the body, which writes its rows.

        If a row fails, the waiting ends too; after any other failure the day still waits.
        """
        try:
            yield
        except RowFailed:
            self._end()
            raise
        self._end()

    def _end(self) -> None:
        for files in self.settled:
            files.end_waiting(self.day.enrichment, self.day.day)


def waited(since: float, now: float) -> dt.timedelta:
    """Return how long a day waits, rounded up: an answer as old as a limit is too old."""
    return dt.timedelta(seconds=max(0.0, now - since), milliseconds=1)
