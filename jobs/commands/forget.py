"""`forget`: keys are taken out of the ledger, the published tables, what stands beside them, and the evidence.

Rows that asked a forgotten key are deleted from the published days, not just their answers: the row itself holds the
key, or what it was made from. The input is not ours: a row that stays there comes back when its day is run again.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import itertools
import json
import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import records
from jobs.commands.remap import last_published
from jobs.commands.vacuum import vacuum
from jobs.errors import DayTaken, DeclarationError
from jobs.ledger.forgetting import forget as forget_in_ledger
from jobs.ledger.keys import key_text
from jobs.ledger.store import LedgerFolder, open_root
from jobs.tables import audit, by_run, dead_letters
from jobs.tables.asked_keys import files_of_days, tells_keys
from jobs.tables.erasing import who_asked, without_rows
from jobs.tables.leases import at_work, leased
from jobs.tables.publishers import alone_with
from jobs.tables.summaries import summarize

if TYPE_CHECKING:
    from jobs.commands.ledgers import Kept
    from jobs.declarations import Enrichment
    from jobs.lookups import Lookup
    from jobs.nightly import Quality
    from jobs.schema import Verdict

AT_ONCE = timedelta(0)
FORGOTTEN = "What was said here named a row that was forgotten."
NOT_COVERED = (
    "the input, the services asked, Dagster's own event log, copies and backups of these folders, old versions that an "
    "object store keeps, and evidence that names a row not by its key, of runs whose files were gone before"
)


@dataclass(frozen=True)
class Table:
    """What was taken out of the tables of one enrichment."""

    enrichment: str
    rows: int
    days: tuple[str, ...]
    old_files: int  # of the table and those beside it: no version from before can be read any more
    runs: int  # folders of runs that were never published
    records: int  # of runs, whose evidence was taken out
    logs: int  # of Spark


@dataclass(frozen=True)
class Certificate:
    """What was removed where. keys: given; stored: of these in the ledger. Holds no key."""

    lookup: str
    keys: int
    stored: int
    ledger_files: int
    tables: tuple[Table, ...]
    not_covered: str = NOT_COVERED


def read_keys(lookup: Lookup, path: str) -> list[tuple[str, ...]]:
    """The keys of a CSV file whose header names the parts of the lookup's key. Raises DeclarationError."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            names = set(reader.fieldnames or ())
            if names != set(lookup.keys):
                raise DeclarationError(
                    f"{path}: its first line names {', '.join(sorted(names)) or 'nothing'}; it must name the parts of "
                    f"the key of lookup {lookup.name}: {', '.join(lookup.keys)}."
                )
            found = [tuple((row[name] or "") for name in lookup.keys) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DeclarationError(f"--key-file {path}: it cannot be read: {error}.") from error
    if not found:
        raise DeclarationError(f"{path} holds no key.")
    return found


def texts_of(keys: Iterable[tuple[str, ...]]) -> set[str]:
    """How the ledger may have written these keys: a part that reads as a number or a truth value may have been one,
    and a key that is personal now may have stood openly before.
    """
    found = set()
    for key in keys:
        for parts in itertools.product(*map(_readings, key)):
            found |= {key_text(parts), key_text(parts, hidden=True)}
    return found


def _readings(part: str) -> list[Any]:
    readings: list[Any] = [part]
    with contextlib.suppress(ValueError):
        value = json.loads(part)
        if isinstance(value, bool | int | float):
            readings.append(value)
            if isinstance(value, int) and not isinstance(value, bool):
                readings.append(float(value))
    return readings


def forget(ledgers: Iterable[Kept], keys: Collection[tuple[str, ...]], quality: Quality) -> Certificate:
    """Take the keys of one lookup out of everything that is ours. Run again, it finds nothing; after a crash run it
    again.

    Raises DayTaken while a run of one of the tables is at work, DeclarationError for a day that cannot be rewritten,
    LedgerError.
    """
    ledgers = list(ledgers)
    name = ledgers[0].lookup.name
    texts = texts_of(keys)
    readers: list[Enrichment] = []
    for kept in ledgers:
        readers += [one for _, one in kept.read_by if not any(one is other for other in readers)]
    for enrichment in readers:
        _refuse(enrichment, name)
    stored, files = 0, 0
    for folder in {found for kept in ledgers for found in _all_versions(kept.folder)}:
        done = forget_in_ledger(folder, texts)
        stored, files = stored + done.keys, files + done.files
    needles = {part for key in keys for part in key if part} | texts
    tables = tuple(_forget_rows(enrichment, name, texts, needles, quality) for enrichment in readers)
    return Certificate(name, len(keys), stored, files, tables)


def _refuse(enrichment: Enrichment, lookup: str) -> None:
    for run_id, day in at_work(enrichment.output.path).items():
        raise DayTaken(f"{enrichment.name}: {day} is being run by run {run_id}; nothing was forgotten. Wait for it.")
    for day, file in files_of_days(enrichment):
        if not tells_keys(file, lookup):
            raise DeclarationError(
                f"{enrichment.name}: the files of {day} do not tell what their rows asked, as an older version wrote "
                "them; nothing was forgotten. Run that day, then forget."
            )
        if last_published(enrichment.name, day) is None:
            raise DeclarationError(
                f"{enrichment.name}: there is no record of the run that published {day}; nothing was forgotten. Run "
                "that day, then forget."
            )


def _all_versions(folder: LedgerFolder) -> Iterator[LedgerFolder]:
    """The folders of the lookup for every request it ever declared."""
    from pyarrow import fs

    filesystem, root = open_root(folder.root)
    below = fs.FileSelector(f"{root}/{folder.lookup}", allow_not_found=True)
    for info in filesystem.get_file_info(below):
        if info.type == fs.FileType.Directory:
            yield LedgerFolder(folder.root, folder.lookup, info.base_name)


@dataclass(frozen=True)
class _Asked:
    """What the files of the runs tell of the keys. shown: days with rows that asked one, as readers see them. rows: the
    same of all runs, with what the row_id columns say of such rows. told: day and id of each run whose files are there.
    """

    shown: set[str] = field(default_factory=set)
    rows: dict[str, set[str]] = field(default_factory=dict)
    told: set[tuple[str, str]] = field(default_factory=set)

    def may_be_named(self, day: str, run_id: str) -> bool:
        """Whether what this run has said may name such a row."""
        return day in self.rows or (day, run_id) not in self.told


def _forget_rows(enrichment: Enrichment, lookup: str, texts: set[str], needles: set[str], quality: Quality) -> Table:
    """First what names the rows, which only they themselves can tell; then the rows, and what is made from them."""
    asked = _asked(enrichment, lookup, texts)
    cleaned = _clean_records(enrichment, asked, needles, quality)
    logs = _delete_logs(enrichment, asked)
    days, rows = _begin(enrichment, asked.shown), 0
    for day in days:
        rows += _erase(enrichment, day, lookup, texts)
        for summary in enrichment.summaries:
            summarize(enrichment, summary, day)
    _delete_what_crashes_left(enrichment)
    removed = [one.removed for one in vacuum(enrichment, older_than=AT_ONCE)]
    quality.render(enrichment.name)
    _begun(enrichment).unlink(missing_ok=True)
    old = sum(one.old for one in removed)
    return Table(enrichment.name, rows, tuple(days), old, sum(one.runs for one in removed), cleaned, logs)


def _asked(enrichment: Enrichment, lookup: str, texts: set[str]) -> _Asked:
    found, shown = _Asked(), _shown(enrichment)
    for record in records.load(enrichment.name):
        facts = record.facts
        run = facts.day, facts.run_id
        files = shown.get(run, [Path(name) for name in facts.files])
        if all(file.exists() for file in files):
            found.told.add(run)
            rows = [row for file in files for row in who_asked(file, facts.declared.row_id, lookup, texts)]
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


def _begun(enrichment: Enrichment) -> Path:
    """Names the days of a `forget` that is not at its end: what is made from a day may still hold what it has lost."""
    return records.ROOT / enrichment.name / "forgetting.json"


def _begin(enrichment: Enrichment, days: Iterable[str]) -> list[str]:
    """These days and those of a `forget` that was broken off, noted until all that is made from them is new."""
    begun = _begun(enrichment)
    together = sorted({*days, *(json.loads(begun.read_text()) if begun.exists() else ())})
    if together:
        records.replace(begun, json.dumps(together))
    return together


def _erase(enrichment: Enrichment, day: str, lookup: str, texts: set[str]) -> int:
    run_id = f"forget-{uuid.uuid4().hex}"
    record = last_published(enrichment.name, day)
    assert record is not None  # looked at before anything began
    with leased(enrichment.output.path, day, run_id) as lease:
        files = [file for of, file in files_of_days(enrichment) if of == day]
        return without_rows(record, files, lookup, texts, run_id=run_id, lease=lease)


def _delete_what_crashes_left(enrichment: Enrichment) -> None:
    """Audit rows and dead letters of runs that readers do not see."""
    table = enrichment.output.path
    with alone_with(table):
        published = {(day, file.parent.name) for day, file in files_of_days(enrichment)}
        for beside in (audit.table_of(table), dead_letters.table_of(table)):
            by_run.keep_published(beside, enrichment.input.partition, published)


def _clean_records(enrichment: Enrichment, asked: _Asked, needles: set[str], quality: Quality) -> int:
    """Take out the evidence and the sentences that hold a needle, or what names one of the day's rows."""
    cleaned = 0
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


def _delete_logs(enrichment: Enrichment, asked: _Asked) -> int:
    deleted = 0
    folder = records.ROOT / enrichment.name
    for log in sorted(folder.glob("*/*.spark.log")):
        if asked.may_be_named(log.parent.name, log.name.removesuffix(".spark.log")):
            log.resolve().unlink(missing_ok=True)  # the days of a month share one, in the folder of its first
            log.unlink(missing_ok=True)
            deleted += 1
    for progress in folder.glob("*/progress.json"):  # ends with why a run failed, and is of use while it lasts
        progress.unlink(missing_ok=True)
    return deleted
