"""The base classes of all checks: each has a promise about a day, a rule, and texts."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import Any, ClassVar

import numpy as np

from data_quality.findings import Finding, identity_columns
from data_quality.rows.task_rows import Faults, Flags, More, TaskRows, nothing_more
from data_quality.rows.written_day import WrittenDay
from jobs.arrow_values import counts_by_value
from jobs.schema import columns as schema
from jobs.schema.columns import SOURCE_IDENTITY, Severity
from jobs.schema.records import DeclaredFacts, EventTimeFacts, LookupFacts


class Cure(Enum):
    """The command that corrects a held-back day once the cause is fixed."""

    RUN_AGAIN = "run again"
    REPLAY = "replay"  # a plain run would reuse a stored answer that does not fit
    REFRESH = "refresh"  # a plain run would reuse the stored answers
    REFRESH_MARKS = "refresh marks"  # no run repeats a call that must not be made twice


class Takes(Enum):
    """The rows that `Check.summarize` gets at once."""

    PARTS = "some rows of a task"
    TASKS = "all rows of a task, with few columns, to compare them with each other"
    CALLS = "all rows of a task that called, with few columns"


class Check(ABC):
    """A check of a declaration. It reads rows in parts, several at once, and combines results."""

    name: ClassVar[str]
    severity: ClassVar[Severity] = "error"  # unless declared otherwise
    cure: ClassVar[Cure] = Cure.RUN_AGAIN
    whole_day: ClassVar[bool] = False  # not meaningful for part of a day, such as a micro-batch
    in_driver: ClassVar[bool] = False  # runs no task, because its partial results hold all rows

    def __init__(self, declared: DeclaredFacts, subject: str = "") -> None:
        self.declared = declared
        self.subject = subject  # the lookup, choice or window that it judges, unless the whole day

    @property
    def full_name(self) -> str:
        return f"{self.subject}__{self.name}" if self.subject else self.name

    @property
    def description(self) -> str:
        return f"{self.subject}: {self.promise}" if self.subject else self.promise

    @property
    def wanted(self) -> bool:
        """Whether the declaration has what the check judges."""
        return True

    @property
    def event_time(self) -> EventTimeFacts:
        """That of a declaration with one."""
        assert self.declared.event_time is not None
        return self.declared.event_time

    @property
    def takes(self) -> Takes:
        """The rows that it gets at once."""
        return Takes.PARTS

    @property
    @abstractmethod
    def promise(self) -> str:
        """A single sentence."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns that the check requires."""
        return ()

    def prepare(self, day: WrittenDay) -> None:  # noqa: B027  # most need nothing
        """Run before the first rows."""

    def summarize(self, rows: TaskRows, day: WrittenDay) -> Any:  # noqa: B027  # some judge by what the run counted
        """Return the partial result for the rows that it takes."""

    @abstractmethod
    def finding(self, parts: list[Any], day: WrittenDay) -> Finding:
        """Return the finding of the day from `parts`, the results of `summarize`."""

    @property
    def called(self) -> tuple[str, ...]:
        """Columns of attempts: of rows without attempts in any of them, Takes.CALLS has none."""
        return ()

    @property
    def reads(self) -> set[str]:
        """The columns that the check and its evidence use, unless it takes parts."""
        return {
            *self.needs,
            *identity_columns(self.declared, self.declared.row_id),
            *SOURCE_IDENTITY,
        }

    def faults(
        self, rows: TaskRows, at_fault: Flags, columns: Iterable[str], more: More = nothing_more
    ) -> Faults:
        return rows.faults(at_fault, [*identity_columns(self.declared, rows.names), *columns], more)

    def conclude(
        self, faults: Faults, count: int, *, holds: str, wrong: str, expected: str
    ) -> Finding:
        """Return the finding of `count` rows with these faults, which are its evidence."""
        found = Finding.judged(holds, wrong, faults.count, count, expected)
        return found.with_evidence(faults.evidence, self.declared)


class LookupCheck(Check):
    def __init__(self, declared: DeclaredFacts, lookup: LookupFacts) -> None:
        super().__init__(declared, lookup.name)
        self.lookup = lookup

    @property
    def status(self) -> str:
        return schema.status(self.lookup.name)

    @property
    def source(self) -> str:
        return schema.source(self.lookup.name)

    @property
    def attempts(self) -> str:
        return schema.attempts(self.lookup.name)

    def answered_by_call(self, rows: TaskRows) -> Flags:
        return rows.one_of(self.status, "ok", "miss") & rows.one_of(self.source, "call")


def count_outcomes(rows: TaskRows, lookup: LookupFacts) -> Counter[str | None]:
    """Count the rows by outcome; None counts those whose status is null."""
    status = schema.status(lookup.name)
    return rows.once(("outcomes", lookup.name), lambda: counts_by_value(rows.column(status)))


def count_values(rows: TaskRows, lookup: LookupFacts) -> Counter[str]:
    """Count the values of each answer column in ok rows; a column without a value has 0."""
    return rows.once(("values", lookup.name), lambda: _count_values(rows, lookup))


def _count_values(rows: TaskRows, lookup: LookupFacts) -> Counter[str]:
    answered = rows.one_of(schema.status(lookup.name), "ok")
    return Counter(
        {
            column: int(np.count_nonzero(answered & ~rows.is_null(column)))
            for column in lookup.columns
            if column in rows.names
        }
    )


def total(counts: list[Counter[Any]]) -> Counter[Any]:
    """Add counts by key; keep keys with 0, which Counter's `+` would drop."""
    whole: Counter[Any] = Counter()
    for part in counts:
        whole.update(part)
    return whole
