"""The enrichment that a command is about, and how its days are run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.process.day_pipeline import Accept, DayOutcome, Quality, Watch, run_day
from jobs.process.spark_submit import SparkSubmit
from jobs.tables.leases import WAIT

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment


@dataclass(frozen=True)
class Target:
    """reference: module:name, by which the Spark program finds the enrichment."""

    reference: str
    enrichment: Enrichment
    quality: Quality
    submit: SparkSubmit
    wait: float = WAIT  # s, for another run of a day that is ending
    watch: Watch | None = None

    def run(self, day: str, options: Sequence[str] = (), accept: Accept | None = None) -> DayOutcome:
        """One day under the rules of the nightly job. options: of the Spark program. Raises DayTaken."""
        return run_day(
            self.reference, self.enrichment, day,
            quality=self.quality, submit=self.submit, options=options, accept=accept, wait=self.wait, watch=self.watch,
        )  # fmt: skip

    def run_all(
        self, days: Iterable[str], options: Sequence[str] = (), accept: Accept | None = None
    ) -> Iterator[DayOutcome]:
        """One day after the other, each told when it is over; the first that is not published is the last."""
        for day in days:
            outcome = self.run(day, options, accept)
            yield outcome
            if not outcome.is_published:
                return
