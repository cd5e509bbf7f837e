"""What a check is: what it promises of a day, how it judges that, and what it says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import Any, ClassVar

from data_quality.findings import Finding, identity_columns
from data_quality.run_output import Faults, Flags, More, TaskRows, nothing_more
from data_quality.written_day import WrittenDay
from jobs import schema
from jobs.schema import DeclaredFacts, LookupFacts, Severity


class Cure(Enum):
    """How a day that is held back comes to other rows than it has, once the cause is mended."""

    RUN_AGAIN = "run again"
    REPLAY = "replay"  # a run takes a stored answer that does not fit as it is
    REFRESH = "refresh"  # as they are stored, the day would have the same answers


class Check(ABC):
    """One check of one declaration. It sees each task once, several at a time; then it sums up what it saw."""

    name: ClassVar[str]
    severity: ClassVar[Severity] = "error"  # unless declared otherwise
    red_when: ClassVar[str]  # for the documentation
    cure: ClassVar[Cure] = Cure.RUN_AGAIN

    def __init__(self, declared: DeclaredFacts) -> None:
        self.declared = declared

    @property
    def full_name(self) -> str:
        return self.name

    @property
    def description(self) -> str:
        return self.promise

    @property
    def wanted(self) -> bool:
        """Whether the declaration asks for what the check judges."""
        return True

    @property
    @abstractmethod
    def promise(self) -> str:
        """One sentence."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns without which it cannot run."""
        return ()

    def prepare(self, day: WrittenDay) -> None:  # noqa: B027  # most need nothing
        """Before the first task."""

    def of_task(self, rows: TaskRows, day: WrittenDay) -> Any:  # noqa: B027  # some judge by what the run counted
        """What the rows of one task say."""

    @abstractmethod
    def finding(self, parts: list[Any], day: WrittenDay) -> Finding:
        """What all tasks say together; parts: what `of_task` gave."""

    def faults(self, rows: TaskRows, at_fault: Flags, columns: Iterable[str], more: More = nothing_more) -> Faults:
        """The rows at fault, named by what names a row."""
        return rows.faults(at_fault, [*identity_columns(self.declared, rows.names), *columns], more)


class LookupCheck(Check):
    """One check of one lookup."""

    def __init__(self, declared: DeclaredFacts, lookup: LookupFacts) -> None:
        super().__init__(declared)
        self.lookup = lookup

    @property
    def full_name(self) -> str:
        return f"{self.lookup.name}__{self.name}"

    @property
    def description(self) -> str:
        return f"{self.lookup.name}: {self.promise}"

    @property
    def status(self) -> str:
        return schema.status(self.lookup.name)

    @property
    def source(self) -> str:
        return schema.source(self.lookup.name)

    @property
    def attempts(self) -> str:
        return schema.attempts(self.lookup.name)


def outcomes(rows: TaskRows, lookup: LookupFacts) -> Counter[str | None]:
    """Rows by their outcome."""
    column = schema.status(lookup.name)
    return rows.once(("outcomes", lookup.name), lambda: Counter(rows.counts_of(column)))


def total(counted: list[Counter[Any]]) -> Counter[Any]:
    whole: Counter[Any] = Counter()
    for one in counted:
        whole.update(one)
    return whole
