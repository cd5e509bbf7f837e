"""Run records: a JSON file per run of a day, beside its log and its live progress.

A torn record, as after a power cut, is skipped with a warning; `torn` lists it.
"""

import contextlib
import dataclasses
import datetime as dt
import glob
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from jobs.errors import RunWaits, TidegateError
from jobs.schema.records import DayRecord, RunBill, UnwrittenRun
from jobs.storage import durable
from jobs.storage.work_folders import moved_here
from jobs.tables.records import record_copies

ROOT = Path("data/runs")
UNWRITTEN = ".unwritten"  # suffix of the file of a run that wrote no files
FORGET = "forget-"  # begins the id of a copy of a run without forgotten rows
BILL = ".bill"  # suffix of the file with the bill of a run without a record

Record = TypeVar("Record", DayRecord, UnwrittenRun, RunBill)

_log = logging.getLogger("tidegate.records")
_reported: set[Path] = set()  # torn records of which this process has warned


def now(clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)) -> str:
    """Return the current time as records have it: ISO 8601, UTC."""
    return clock().isoformat(timespec="milliseconds")


def folder(enrichment: str, day: str) -> Path:
    return ROOT / enrichment / day


def progress_file(enrichment: str, day: str) -> Path:
    return folder(enrichment, day) / "progress.json"


def read_progress(enrichment: str, day: str) -> dict[str, Any]:
    """Return the last event of a day's running run; empty without one."""
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(progress_file(enrichment, day).read_text(encoding="utf-8")))
    return {}


def run_log(enrichment: str, day: str, run_id: str) -> Path:
    return folder(enrichment, day) / f"{run_id}.log"


def days(enrichment: str, *, changed_since: float | None = None) -> list[str]:
    """Return the days of which a run has ever begun here, in order.

    Args:
        enrichment: The enrichment's name.
        changed_since: Only those in whose folder a run has made or replaced a file since this time,
            in s since the epoch.
    """
    try:
        with os.scandir(ROOT / enrichment) as found:
            folders = [entry for entry in found if entry.is_dir()]
            return sorted(
                entry.name
                for entry in folders
                if changed_since is None or entry.stat().st_mtime >= changed_since
            )
    except FileNotFoundError:
        return []


def run_logs(enrichment: str, day: str = "*") -> list[tuple[str, str, Path]]:
    """Return day, run and path of each log; an earlier version wrote `<run>.spark.log`."""
    found = sorted((ROOT / enrichment).glob(f"{day}/*.log"))
    # the name of a partition, and so the id of its run, may have a dot
    return [(path.parent.name, path.stem.removesuffix(".spark"), path) for path in found]


def progress_files(enrichment: str) -> list[Path]:
    return sorted((ROOT / enrichment).glob("*/progress.json"))


def any_run(enrichment: str) -> bool:
    """Return whether a run of any of its days has ever begun here."""
    return (ROOT / enrichment).is_dir()


def record_path(record: DayRecord) -> Path:
    facts = record.facts
    return folder(facts.declared.enrichment, facts.day) / f"{facts.run_id}.json"


def save(record: DayRecord) -> DayRecord:
    """Save the record durably; once it is decided, at the table's store too."""
    facts = record.facts
    table = facts.declared.table if record.state != "written" else ""
    record_copies.save(
        table, ROOT / facts.declared.enrichment, record_path(record), record.to_json().encode()
    )
    return record


def fetch(enrichment: str, table: str) -> None:
    """Bring other machines' records, for a table on an object store. Raises TidegateError."""
    record_copies.fetch(table, ROOT / enrichment)


def remove(enrichment: str, table: str, path: Path) -> None:
    """Delete a record, wherever it is. Raises TidegateError."""
    record_copies.remove(table, ROOT / enrichment, path)
    path.unlink(missing_ok=True)


def remove_drafts(enrichment: str, before: float) -> None:
    """Remove drafts of killed processes from before this time, in s: they may name rows."""
    for path in (ROOT / enrichment).rglob(f".*{durable.DRAFT}"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime <= before:
                path.unlink()


def load(enrichment: str, day: str | None = None) -> list[DayRecord]:
    """Return all records of an enrichment, or of a day of it, oldest first. A record whose
    figures a later batch's record includes is left out.
    """
    found = [record for path in _files(enrichment, day) if (record := _record(path)) is not None]
    added = {record.adds_to for record in found}  # a kill may have left both
    records = [record for record in found if record.facts.run_id not in added]
    return sorted(records, key=lambda record: (record.facts.day, *record.order))


def torn(enrichment: str) -> list[Path]:
    records = (path for path in _files(enrichment) if _read(path, DayRecord) is None)
    ends = (path for path in _ends(enrichment) if _read(path, UnwrittenRun) is None)
    # afterwards, because the next batch of a stream removes the record of the batch before
    return sorted(path for path in (*records, *ends) if durable.is_there(path))


def _files(enrichment: str, day: str | None = None) -> Iterator[Path]:
    for path in (ROOT / enrichment).glob(f"{day or '*'}/*.json"):
        if path.name != "progress.json" and path.name[0] != ".":
            yield path


def _ends(enrichment: str, day: str | None = None) -> Iterator[Path]:
    return (
        path
        for path in (ROOT / enrichment).glob(f"{day or '*'}/*{UNWRITTEN}")
        if path.name[0] != "." and not path.is_dir()
    )


def _read(path: Path, kind: type[Record]) -> Record | None:
    """Read a record; None if it is torn or missing. Raises TidegateError if unreadable."""
    try:
        return kind.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TidegateError(
            f"record {path} cannot be read: {error.strerror}. Start again when it can be."
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if path.absolute() not in _reported:
            _reported.add(path.absolute())
            _log.warning(
                "record %s is torn and passed over: %s", path, " ".join(str(error).split())
            )
        return None


def _record(path: Path) -> DayRecord | None:
    """Read a record, with its files where they are now, also after the project was moved."""
    record = _read(path, DayRecord)
    return None if record is None else _located(record)


def _bill(path: Path) -> RunBill | None:
    bill = _read(path, RunBill)
    return None if bill is None else dataclasses.replace(bill, folder=moved_here(bill.folder))


def _located(record: DayRecord) -> DayRecord:
    facts = record.facts
    folder = moved_here(facts.folder)
    if folder == facts.folder:
        return record
    moved = facts.moved(folder, lambda file: file.replace(facts.folder, folder, 1))
    return dataclasses.replace(record, facts=moved)


def of_run(enrichment: str, day: str, run_id: str) -> DayRecord | None:
    return _record(folder(enrichment, day) / f"{run_id}.json")


def latest(enrichment: str) -> list[DayRecord]:
    return list({record.facts.day: record for record in load(enrichment)}.values())


def hold_back(record: DayRecord, reason: str) -> DayRecord:
    """Mark this run as held back; readers keep the previous version."""
    return save(dataclasses.replace(record, state="held back", reason=reason))


def save_unwritten(run: UnwrittenRun, table: str = "") -> None:
    """Save the end of a run without files, in place of an earlier record, also at the store."""
    path = folder(run.enrichment, run.day) / f"{run.run_id}{UNWRITTEN}"
    record_copies.save(table, ROOT / run.enrichment, path, run.to_json().encode())


def has_end(enrichment: str, day: str, run_id: str) -> bool:
    """Return whether the end of a run that published and held back nothing is recorded."""
    return (folder(enrichment, day) / f"{run_id}{UNWRITTEN}").exists()


def unwritten(enrichment: str, day: str | None = None) -> list[UnwrittenRun]:
    found = [
        run for path in _ends(enrichment, day) if (run := _read(path, UnwrittenRun)) is not None
    ]
    return sorted(found, key=lambda run: (run.day, run.ended_at))


def waiting(enrichment: str, day: str) -> UnwrittenRun | None:
    """Return the run since which the day waits; None if its last run did not wait."""
    found = unwritten(enrichment, day)
    if not found or found[-1].state != RunWaits.state:
        return None
    last = found[-1]
    is_over = any(record.facts.started_at > last.started_at for record in load(enrichment, day))
    return None if is_over else last


def bill_file(enrichment: str, day: str, run_id: str) -> Path:
    return folder(enrichment, day) / f"{run_id}{BILL}"


def bill_of(run_id: str, enrichment: str = "*", day: str = "*") -> RunBill | None:
    """Return the bill of a run, by default of any enrichment and day; None if it is not here."""
    path = next(ROOT.glob(f"{enrichment}/{day}/{glob.escape(run_id)}{BILL}"), None)
    return None if path is None else _bill(path)


def bills(enrichment: str, day: str = "*") -> list[RunBill]:
    """Return the bills of runs without a record: stopped, killed, or at work."""
    found = sorted((ROOT / enrichment).glob(f"{day}/*{BILL}"))
    paths = (path for path in found if path.name[0] != ".")
    read = (_bill(path) for path in paths if not path.with_suffix(".json").exists())
    return [bill for bill in read if bill is not None]
