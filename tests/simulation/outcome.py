"""What became of a night."""

from collections import Counter
from dataclasses import dataclass

from tests.simulation.faults import Faults
from tests.simulation.scheduler import Scheduler


class Over(Exception):  # noqa: N818  # the night, as nothing more can be learned from it
    """The night cannot go on."""


@dataclass
class Outcome:
    """What became of a night. digest: equal for equal nights and equal code."""

    failures: list[str]
    digest: int
    faults: Counter[str]
    charges: int
    steps: int
    file_operations: int
    seconds: float  # virtual
    runs: dict[str, str]
    trace: list[str]
    fault_numbers: int

    @classmethod
    def of(
        cls,
        scheduler: Scheduler,
        faults: Faults,
        *,
        charges: int,
        file_operations: int,
        runs: dict[str, str],
    ) -> "Outcome":
        """What became of the night of this scheduler."""
        return cls(
            failures=list(scheduler.failures),
            digest=scheduler.digest,
            faults=faults.struck,
            charges=charges,
            steps=scheduler.steps,
            file_operations=file_operations,
            seconds=scheduler.now,
            runs=runs,
            trace=scheduler.trace or [],
            fault_numbers=faults.numbers,
        )
