"""Runs all checks of a day with only a few parts of its tasks in memory at a time."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from data_quality.catalogue import CheckSpec
from data_quality.check import Check, Takes
from data_quality.findings import Finding
from data_quality.report.pictures import Pictures
from data_quality.rows.input_rows import NeedsSpark
from data_quality.rows.task_rows import TaskRows
from data_quality.rows.written_day import Tasks, WrittenDay, guarded, message
from jobs.schema.records import Verdict

AT_ONCE = min(8, os.cpu_count() or 1)  # parts
FEW_ROWS = 10_000


Sees = Check | Pictures
Read = Callable[[], TaskRows]
Mapped = Callable[..., Iterable[Any]]  # like `map`


@dataclass(frozen=True)
class QualityResult:
    verdicts: tuple[Verdict, ...]
    pictures: dict[str, Any] = field(default_factory=dict)


def make_verdict(spec: CheckSpec, found: Finding) -> Verdict:
    return Verdict(
        spec.name,
        "not_run" if found.success is None else "passed" if found.success else "failed",
        "warn" if found.lacks_history else spec.severity,
        found.sentence,
        found.unexpected_count,
        found.element_count,
        found.expected,
        tuple(found.evidence),
    )


class Judging:
    """Runs the checks of a day.

    Attributes:
        pictures: The data of the report's charts.
    """

    def __init__(self, checks: Sequence[Check], day: WrittenDay) -> None:
        self._checks, self._day = checks, day
        self.pictures: dict[str, Any] = {}

    def findings(self) -> dict[str, Finding]:
        """Returns the findings by check name.

        A check that the files break is red; a check that lacks something else is not run, with the
        reason.
        """
        day, pictures = self._day, Pictures(self._day.facts)
        with _side_by_side(day) as mapped:
            why_not = zip(self._checks, mapped(self._refused, self._checks), strict=True)
            refused = {
                check.full_name: finding for check, finding in why_not if finding is not None
            }
            able = [check for check in self._checks if check.full_name not in refused]
            judged, results = list[Check](), list[list[Any]]()
            for takes in (Takes.CALLS, Takes.TASKS):
                if some := [check for check in able if check.takes is takes]:
                    columns = {name for check in some for name in check.reads}
                    called = {name for check in some for name in check.called}
                    reads = day.output.tasks(columns, called)
                    judged += some
                    results += self._seen(mapped, reads, some)
            of_parts = [check for check in able if check.takes is Takes.PARTS]
            *by_part, drawn = self._seen(mapped, day.output.parts(), [*of_parts, pictures])
            judged, results = [*judged, *of_parts], [*results, *by_part]
            found = dict(
                zip(
                    (check.full_name for check in judged),
                    mapped(self._finding, judged, results),
                    strict=True,
                )
            )
        # the checks report columns of a wrong type
        if not any(isinstance(part, Exception) for part in drawn):
            self.pictures = pictures.drawn(drawn)
        return found | refused

    def _seen(self, mapped: Mapped, reads: Iterable[Read], by: Sequence[Sees]) -> list[list[Any]]:
        """Returns the results of each check for all parts."""
        reads, day = list(reads), self._day
        here = [one for one in by if day.tasks is None or getattr(one, "in_driver", False)]
        apart = [one for one in by if one not in here]
        found: dict[int, list[Any]] = {id(one): [] for one in by}
        groups: list[tuple[list[Sees], Iterable[list[Any]]]] = [
            (here, mapped(partial(seen_in, by=here, day=day), reads if here else ()))
        ]
        if day.tasks is not None and apart:
            groups.append((apart, in_tasks(day.tasks, reads, apart, day)))
        for group, parts in groups:
            for read, part in zip(reads, parts, strict=False):
                for one, seen in zip(group, part, strict=True):
                    needs_spark = isinstance(seen, NeedsSpark)
                    found[id(one)].append(seen_in(read, [one], day)[0] if needs_spark else seen)
        return list(found.values())

    def _finding(self, check: Check, parts: list[Any]) -> Finding:
        error = next((part for part in parts if isinstance(part, Exception)), None)
        finding = error or guarded(partial(check.finding, parts, self._day))
        return finding if isinstance(finding, Finding) else self._broken(finding)

    def _broken(self, error: Exception) -> Finding:
        """Returns a red finding: files that no run should write broke the check. An error of a disk
        proves nothing about the files, so the check is then not run.
        """
        if isinstance(error, OSError):
            return Finding.not_run(message(error))
        count = self._day.output.rows
        return Finding(False, f"the files cannot be judged: {message(error)}", count, count)

    def _refused(self, check: Check) -> Finding | None:
        """Returns the finding of a check that cannot read the rows, else None."""
        count = self._day.output.rows
        if wrong := self._day.output.wrong(check.needs):
            return Finding(False, wrong, count, count, check.promise)
        error = guarded(partial(check.prepare, self._day))
        return None if error is None else Finding.not_run(message(error))


@contextmanager
def _side_by_side(day: WrittenDay) -> Iterator[Mapped]:
    """Yields a `map` that uses threads; for few rows a plain `map`, because threads take longer."""
    if day.output.rows <= FEW_ROWS:
        yield map
        return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield pool.map


def seen_in(read: Read, by: Sequence[Sees], day: WrittenDay) -> list[Any]:
    """Returns the result of each check for a part, or the error that stopped it."""
    rows = guarded(read)
    if isinstance(rows, Exception):
        return [rows] * len(by)
    return [guarded(partial(one.summarize, rows, day)) for one in by]


def in_tasks(
    tasks: Tasks, reads: Sequence[Read], by: Sequence[Sees], day: WrittenDay
) -> list[list[Any]]:
    """Returns the results of all checks for each part, computed in tasks."""
    there = replace(day.for_tasks(), stored=None)
    return tasks.run(lambda read, _facts: seen_in(read, by, there), reads)
