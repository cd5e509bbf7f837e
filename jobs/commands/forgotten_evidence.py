"""What runs have said that may name a forgotten row: records with their reports, logs of Spark, progress."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import durable, records
from jobs.commands.remap import last_published
from jobs.tables.asked_keys import files_of_days
from jobs.tables.erasing import who_asked

if TYPE_CHECKING:
    from jobs.declarations import Enrichment
    from jobs.nightly import Quality
    from jobs.schema import Verdict
    from jobs.tables.asked_keys import KeysOf

FORGOTTEN = "What was said here named a row that was forgotten."


@dataclass(frozen=True)
class Asked:
    """What the files of the runs tell of the keys. shown: days with rows that asked one, as readers see them. rows: the
    same of all runs, with what the row_id columns say of such rows. told: day and id of each run whose files are there.
    """

    shown: set[str] = field(default_factory=set)
    rows: dict[str, set[str]] = field(default_factory=dict)
    told: set[tuple[str, str]] = field(default_factory=set)

    def may_be_named(self, day: str, run_id: str) -> bool:
        """Whether what this run has said may name such a row."""
        return day in self.rows or (day, run_id) not in self.told


def rows_that_asked(enrichment: Enrichment, keys: KeysOf) -> Asked:
    """What the files of all runs that are still there tell of the keys."""
    found, shown = Asked(), _shown(enrichment)
    for record in records.load(enrichment.name):
        facts = record.facts
        run = facts.day, facts.run_id
        files = shown.get(run, [Path(name) for name in facts.files])
        if all(map(durable.is_there, files)):
            found.told.add(run)
            rows = [row for file in files for row in who_asked(file, facts.declared.row_id, keys)]
            if rows:
                identities = found.rows.setdefault(facts.day, set())
                identities |= {str(value) for row in rows for value in row.values() if value is not None}
                if run in shown:
                    found.shown.add(facts.day)
    return found


def _shown(enrichment: Enrichment) -> dict[tuple[str, str], list[Path]]:
    """Day and id of each published run -> its files that readers see."""
    files: dict[str, list[Path]] = {}
    for day, file in files_of_days(enrichment):
        files.setdefault(day, []).append(file)
    records_of = {day: last_published(enrichment.name, day) for day in files}
    return {(day, record.facts.run_id): files[day] for day, record in records_of.items() if record is not None}


def clean_records(enrichment: Enrichment, asked: Asked, needles: set[str], quality: Quality) -> int:
    """Take out the evidence and the sentences that hold a needle, or what names one of the day's rows."""
    cleaned = 0
    for torn in records.torn(enrichment.name):  # it may hold anything, and says nothing
        torn.unlink(missing_ok=True)
        cleaned += 1
    for record in records.load(enrichment.name):
        day = record.facts.day
        if not asked.may_be_named(day, record.facts.run_id):
            continue
        words = needles | asked.rows.get(day, set())
        verdicts = tuple(_clean(verdict, words) for verdict in record.verdicts)
        named = _names(record.reason, words)
        if named or verdicts != record.verdicts:
            new = dataclasses.replace(record, verdicts=verdicts, reason=FORGOTTEN if named else record.reason)
            quality.keep(new)
            records.save(new)  # last: while it is not done, this is done again
            cleaned += 1
    return cleaned


def _clean(verdict: Verdict, words: set[str]) -> Verdict:
    said = {str(value) for row in verdict.evidence for value in _values(row)}
    if not said & words and not _names(verdict.sentence, words):
        return verdict
    return dataclasses.replace(verdict, evidence=(), sentence=FORGOTTEN)


def _names(sentence: str, words: set[str]) -> bool:
    return any(word in sentence for word in words if len(word) > 1)


def _values(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from itertools.chain.from_iterable(map(_values, value.values()))
    elif isinstance(value, list | tuple):
        yield from itertools.chain.from_iterable(map(_values, value))
    else:
        yield value


def delete_logs(enrichment: Enrichment, asked: Asked) -> int:
    """Take away the logs of Spark that may name such a row, and all progress; gives how many logs."""
    deleted = 0
    for day, run_id, log in records.spark_logs(enrichment.name):
        if asked.may_be_named(day, run_id):
            log.resolve().unlink(missing_ok=True)  # the days of a month share one, in the folder of its first
            log.unlink(missing_ok=True)
            deleted += 1
    for progress in records.progress_files(enrichment.name):  # ends with why a run failed, of use while it lasts
        progress.unlink(missing_ok=True)
    return deleted
