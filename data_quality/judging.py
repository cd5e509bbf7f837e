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

PARTS_AT_ONCE = min(8, os.cpu_count() or 1)
FEW_ROWS = 10_000  # up to which no threads are used

Reader = Check | Pictures  # each has `summarize`
Read = Callable[[], TaskRows]  # reads a part
Map = Callable[..., Iterable[Any]]  # `map`, or that of a pool


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
        """Return the findings by check name.

        If files that no run should write break a check, its finding is red. If a check cannot run
        for another reason, its finding says so.
        """
        day, pictures = self._day, Pictures(self._day.facts)
        with _parallel_map(day) as parallel:
            why_not = zip(self._checks, parallel(self._refused, self._checks), strict=True)
            refused = {
                check.full_name: finding for check, finding in why_not if finding is not None
            }
            ready = [check for check in self._checks if check.full_name not in refused]
            judged, results = list[Check](), list[list[Any]]()
            for takes in (Takes.CALLS, Takes.TASKS):
                if some := [check for check in ready if check.takes is takes]:
                    columns = {name for check in some for name in check.reads}
                    called = {name for check in some for name in check.called}
                    reads = day.output.tasks(columns, called)
                    judged += some
                    results += self._summarize(parallel, reads, some)
            of_parts = [check for check in ready if check.takes is Takes.PARTS]
            *by_part, drawn = self._summarize(parallel, day.output.parts(), [*of_parts, pictures])
            judged, results = [*judged, *of_parts], [*results, *by_part]
            found = dict(
                zip(
                    (check.full_name for check in judged),
                    parallel(self._finding, judged, results),
                    strict=True,
                )
            )
        # the checks report columns of a wrong type
        if not any(isinstance(part, Exception) for part in drawn):
            self.pictures = pictures.drawn(drawn)
        return found | refused

    def _summarize(
        self, parallel: Map, reads: Iterable[Read], readers: Sequence[Reader]
    ) -> list[list[Any]]:
        """Return the results of each reader for all parts."""
        reads, day = list(reads), self._day
        in_driver = [
            reader for reader in readers if day.tasks is None or getattr(reader, "in_driver", False)
        ]
        in_tasks = [reader for reader in readers if reader not in in_driver]
        found: dict[int, list[Any]] = {id(reader): [] for reader in readers}
        summarize = partial(summarize_part, readers=in_driver, day=day)
        groups: list[tuple[list[Reader], Iterable[list[Any]]]] = [
            (in_driver, parallel(summarize, reads if in_driver else ()))
        ]
        if day.tasks is not None and in_tasks:
            groups.append((in_tasks, summarize_in_tasks(day.tasks, reads, in_tasks, day)))
        for group, parts in groups:
            for read, part in zip(reads, parts, strict=False):
                for reader, result in zip(group, part, strict=True):
                    needs_spark = isinstance(result, NeedsSpark)
                    found[id(reader)].append(
                        summarize_part(read, [reader], day)[0] if needs_spark else result
                    )
        return list(found.values())

    def _finding(self, check: Check, parts: list[Any]) -> Finding:
        error = next((part for part in parts if isinstance(part, Exception)), None)
        finding = error or guarded(partial(check.finding, parts, self._day))
        return finding if isinstance(finding, Finding) else self._broken(finding)

    def _broken(self, error: Exception) -> Finding:
        """Return a red finding, because files that no run should write broke the check.

        An error of a disk proves nothing about the files: the finding is then that the check did
        not run.
        """
        if isinstance(error, OSError):
            return Finding.not_run(message(error))
        count = self._day.output.rows
        return Finding(False, f"the files cannot be judged: {message(error)}", count, count)

    def _refused(self, check: Check) -> Finding | None:
        """Return the finding of a check that cannot read the rows, else None."""
        count = self._day.output.rows
        if wrong := self._day.output.wrong(check.needs):
            return Finding(False, wrong, count, count, check.promise)
        error = guarded(partial(check.prepare, self._day))
        return None if error is None else Finding.not_run(message(error))


def judge(specs: Sequence[CheckSpec], day: WrittenDay) -> QualityResult:
    """Judge a day by these checks of Tidegate, without Great Expectations."""
    judging = Judging([spec.check for spec in specs if spec.check is not None], day)
    findings = judging.findings()
    return QualityResult(
        tuple(make_verdict(spec, findings[spec.name]) for spec in specs), judging.pictures
    )


@contextmanager
def _parallel_map(day: WrittenDay) -> Iterator[Map]:
    """Yield a `map` that uses threads; for few rows a plain `map`, because threads take longer."""
    if day.output.rows <= FEW_ROWS:
        yield map
        return
    with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
        yield pool.map


def summarize_part(read: Read, readers: Sequence[Reader], day: WrittenDay) -> list[Any]:
    """Return the result of each reader for a part, or the error that stopped the reader."""
    rows = guarded(read)
    if isinstance(rows, Exception):
        return [rows] * len(readers)
    return [guarded(partial(reader.summarize, rows, day)) for reader in readers]


def summarize_in_tasks(
    tasks: Tasks, reads: Sequence[Read], readers: Sequence[Reader], day: WrittenDay
) -> list[list[Any]]:
    """Return the results of all readers for each part, computed in tasks."""
    day_of_tasks = replace(day.for_tasks(), stored=None)
    return tasks.run(lambda read, _facts: summarize_part(read, readers, day_of_tasks), reads)
