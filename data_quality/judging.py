"""Runs all checks of a day with only a few parts of its tasks in memory at a time."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from data_quality.catalogue import CheckSpec
from data_quality.check import Check
from data_quality.findings import Finding
from data_quality.report.pictures import Pictures
from data_quality.rows.run_output import TaskRows
from data_quality.rows.written_day import WrittenDay
from jobs.schema.records import Verdict
from jobs.wording import one_line

LONGEST = 300  # characters of an error
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
        spec.severity,
        found.sentence,
        found.unexpected_count,
        found.element_count,
        found.expected,
        tuple(found.evidence),
    )


class Tasks(Protocol):
    """Runs a function on each part in tasks of a cluster."""

    def run(self, task: Callable[[Any, Any], Any], parts: Sequence[Any]) -> list[Any]: ...


class Judging:
    """Runs the checks of a day.

    Attributes:
        pictures: The data of the report's charts.
    """

    def __init__(
        self, checks: Sequence[Check], day: WrittenDay, tasks: Tasks | None = None
    ) -> None:
        """tasks: Run the checks on a cluster; None runs them in the driver."""
        self._checks, self._day, self._tasks = checks, day, tasks
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
            of_tasks = [check for check in able if check.whole_tasks]
            of_parts = [check for check in able if not check.whole_tasks]
            columns = {name for check in of_tasks for name in check.reads}
            by_task = self._seen(mapped, day.output.tasks(columns) if of_tasks else (), of_tasks)
            *by_part, drawn = self._seen(mapped, day.output.parts(), [*of_parts, pictures])
            judged, results = [*of_tasks, *of_parts], [*by_task, *by_part]
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
        reads = list(reads)
        found: dict[int, list[Any]] = {id(one): [] for one in by}
        here = [one for one in by if self._tasks is None or getattr(one, "in_driver", False)]
        groups: list[tuple[list[Sees], Iterable[list[Any]]]] = []
        groups.append(
            (here, mapped(partial(seen_in, by=here, day=self._day), reads if here else ()))
        )
        if self._tasks is not None and (apart := [one for one in by if one not in here]):
            groups.append((apart, in_tasks(self._tasks, reads, apart, self._day)))
        for group, parts in groups:
            for part in parts:
                for one, seen in zip(group, part, strict=True):
                    found[id(one)].append(seen)
        return list(found.values())

    def _finding(self, check: Check, parts: list[Any]) -> Finding:
        error = next((part for part in parts if isinstance(part, Exception)), None)
        finding = error or _guarded(partial(check.finding, parts, self._day))
        return finding if isinstance(finding, Finding) else self._broken(finding)

    def _broken(self, error: Exception) -> Finding:
        """Returns a red finding: files that no run should write broke the check. An error of a disk
        proves nothing about the files, so the check is then not run.
        """
        if isinstance(error, OSError):
            return Finding.not_run(_message(error))
        count = self._day.output.rows
        return Finding(False, f"the files cannot be judged: {_message(error)}", count, count)

    def _refused(self, check: Check) -> Finding | None:
        """Returns the finding of a check that cannot read the rows, else None."""
        count = self._day.output.rows
        if wrong := self._day.output.wrong(check.needs):
            return Finding(False, wrong, count, count, check.promise)
        error = _guarded(partial(check.prepare, self._day))
        return None if error is None else Finding.not_run(_message(error))


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
    rows = _guarded(read)
    if isinstance(rows, Exception):
        return [rows] * len(by)
    return [_guarded(partial(one.summarize, rows, day)) for one in by]


def in_tasks(
    tasks: Tasks, reads: Sequence[Read], by: Sequence[Sees], day: WrittenDay
) -> list[list[Any]]:
    """Returns the results of all checks for each part, computed in tasks."""
    there = replace(day, spark=None, stored=None, input=day.input.for_tasks())
    return tasks.run(
        lambda read, _facts: [_portable(one) for one in seen_in(read, by, there)], reads
    )


def _portable(seen: Any) -> Any:
    """Replaces an error with a plain error, because it may hold a lock, which cannot be pickled."""
    if not isinstance(seen, Exception):
        return seen
    return OSError(_message(seen)) if isinstance(seen, OSError) else ValueError(_message(seen))


def _guarded(work: Callable[[], Any]) -> Any:
    """Returns the result; an error of files, ledger or Spark becomes the result: not run."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001
        return error


def _message(error: object) -> str:
    return one_line(str(error), LONGEST) or repr(error)
