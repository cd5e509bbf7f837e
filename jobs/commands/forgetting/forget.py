"""`forget`: removes keys from the ledger, all tables, run records, reports and logs.

Rows with a forgotten key are deleted from the published days, not only their answers, because a row
holds the key, or the input columns that make it. The input is not changed: a row that stays there
returns when its day is run again.
"""

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from jobs.commands.forgetting.derived_keys import forget_derived
from jobs.commands.forgetting.forgotten_evidence import clean_records, delete_logs, find_traces
from jobs.commands.forgetting.forgotten_keys import in_order, possible_texts
from jobs.commands.forgetting.forgotten_windows import remake_windows
from jobs.commands.forgetting.former_places import former_places
from jobs.commands.ledgers import DeclaredLedger, without_ledger
from jobs.commands.vacuum import vacuum
from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.upstreams import find_downstream
from jobs.errors import DayTaken, DeclarationError
from jobs.ledger.changes.erasure import forget as forget_in_ledger
from jobs.ledger.store import LedgerFolder
from jobs.ledger.stored_request import read_request, versions
from jobs.process.publish_decision import Quality, render_report
from jobs.tables.delta.asked_keys import KeysOf, days_without_runs, files_of_days, partly_deleted
from jobs.tables.derived.summaries import summarize
from jobs.tables.erasing import without_rows
from jobs.tables.leases.day_leases import at_work, last_runs, leased
from jobs.tables.leftovers import delete_what_crashes_left, require_log
from jobs.tables.records import record_copies, run_records
from jobs.tables.records.published_runs import last_published

KEEP_NOTHING = timedelta(0)
NOT_COVERED = (
    "the input, the services asked, Dagster's own event log, copies and backups of these folders, "
    "old versions that an object store keeps, and the scratch folders of a Spark that was killed "
    "(spark.local.dir)"
)


@dataclass(frozen=True)
class Table:
    enrichment: str
    rows: int
    days: tuple[str, ...]
    # deleted files of old versions, also of the tables of windows and summaries
    old_files: int
    runs: int  # folders of runs that were never published
    records: int  # run records whose evidence was removed
    logs: int  # of runs


@dataclass(frozen=True)
class Certificate:
    """The removals by place, without any key.

    Attributes:
        lookup: The lookup.
        keys: The number of requested keys.
        stored: How many of them the ledger had, in any spelling.
        ledger_files: The number of rewritten or deleted files.
        tables: The removals by table.
        former: Places of earlier declarations, where the keys may still be.
        downstream: Enrichments whose input is made of these tables, and that may have the rows.
        apart: Enrichments without the lookup that have a personal column of the same name.
        not_covered: Places that Tidegate does not change.
    """

    lookup: str
    keys: int
    stored: int
    ledger_files: int
    tables: tuple[Table, ...]
    former: tuple[str, ...]
    downstream: tuple[str, ...]
    apart: tuple[str, ...]
    not_covered: str = NOT_COVERED


def forget(
    ledgers: Iterable[DeclaredLedger],
    keys: Collection[tuple[str, ...]],
    quality: Quality,
    *,
    declared: Sequence[tuple[str, Enrichment]],
) -> Certificate:
    """Remove the keys of a lookup from all data of Tidegate.

    Keys of other lookups that are made of the answers to these keys are removed from the ledger
    too, unless other rows have them. After a crash, run it again; a second run finds nothing.

    Args:
        ledgers: The lookup's ledgers.
        keys: The keys.
        quality: Renders the reports again.
        declared: All enrichments, by module:name: their rows may have derived keys, and a lookup
            of this name without a ledger.

    Returns:
        What was removed.

    Raises:
        DayTaken: A run of one of the tables works, or worked meanwhile.
        DeclarationError: A day cannot be rewritten.
        LedgerError: The ledger cannot be read or written.
    """
    ledgers = list(ledgers)
    lookup = ledgers[0].lookup
    # ledgers and tables name the parts, so `keys` may have the order of any declaration
    name, parts = lookup.name, tuple(lookup.keys)
    keys = list(dict.fromkeys(keys))
    wanted = KeysOf(name, parts, possible_texts(keys))
    readers: list[Enrichment] = []
    others = without_ledger(declared, name)
    for candidate in (*(reader for kept in ledgers for _, reader in kept.read_by), *others):
        if not any(candidate is other for other in readers):
            readers.append(candidate)
    # the last run by table and day; `_erase` enters the runs that it makes, so that a last look
    # finds runs of other processes
    had = {table: last_runs(table) for table in {enrichment.output.path for enrichment in readers}}
    for enrichment in readers:
        run_records.fetch(enrichment.name, enrichment.output.path)
        _require_rewritable_days(enrichment)
    derived_files = forget_derived(readers, declared, wanted)
    stored, files = _forget_answers(ledgers, keys)
    tables = tuple(
        _forget_rows(enrichment, wanted, quality, had[enrichment.output.path])
        for enrichment in readers
    )
    for enrichment in readers:
        for day, run_id in last_runs(enrichment.output.path).items():
            _refuse_if_run_meanwhile(enrichment, day, run_id, had[enrichment.output.path])
    former = former_places(name, readers)
    downstream = find_downstream(readers, [enrichment for _, enrichment in declared])
    names = tuple(enrichment.name for enrichment in downstream)
    covered = {*names, *(enrichment.name for enrichment in readers)}
    personal = {column.lower() for enrichment in readers for column in enrichment.pii}
    apart = tuple(
        enrichment.name
        for _, enrichment in declared
        if enrichment.name not in covered
        and not personal.isdisjoint(map(str.lower, enrichment.pii))
    )
    return Certificate(name, len(keys), stored, derived_files + files, tables, former, names, apart)


def _forget_answers(
    ledgers: Sequence[DeclaredLedger], keys: Sequence[tuple[str, ...]]
) -> tuple[int, int]:
    """Remove the keys from all versions of the lookup's ledgers.

    Returns:
        How many keys were stored, and the number of files that were rewritten or deleted.
    """
    parts = tuple(ledgers[0].lookup.keys)
    stored: set[tuple[str, ...]] = set()
    files = 0
    for folder in {found for kept in ledgers for found in versions(kept.folder)}:
        recorded = in_order(keys, parts, _recorded_order(folder))
        key_by_text = {
            text: key
            for key, ordered in zip(keys, recorded, strict=True)
            for text in possible_texts([ordered])
        }
        done = forget_in_ledger(folder, key_by_text)
        stored.update(key_by_text[text] for text in done.keys)
        files += done.files
    return len(stored), files


def _require_rewritable_days(enrichment: Enrichment) -> None:
    require_log(enrichment)
    for run_id, day in at_work(enrichment.output.path).items():
        raise DayTaken(
            f"{enrichment.name}: {day} is being run by run {run_id}; nothing was forgotten. Wait "
            "for it."
        )
    for file in partly_deleted(enrichment):
        raise DeclarationError(
            f"{enrichment.name}: {file} has a deletion vector: the rows that another program "
            "deleted are still in the file; nothing was forgotten. Purge them (REORG TABLE ... "
            "APPLY (PURGE)), then forget."
        )
    for day in sorted(days_without_runs(enrichment)):
        raise DeclarationError(
            f"{enrichment.name}: another program wrote files of {day}, as OPTIMIZE does, which do "
            "not tell the keys of their rows; nothing was forgotten. Run that day, then forget."
        )
    for day in sorted({day for day, _ in files_of_days(enrichment)}):
        if last_published(enrichment.name, day, table=enrichment.output.path) is None:
            raise DeclarationError(
                f"{enrichment.name}: there is no record of the run that published {day}; nothing "
                "was forgotten. Run that day, then forget."
            )


def _refuse_if_run_meanwhile(
    enrichment: Enrichment, day: str, run_id: str, had: Mapping[str, str]
) -> None:
    """Refuse a run that began meanwhile: it may have read or called for the keys.

    Another `forget` may have written evidence that names them.
    """
    if run_id == had.get(day, ""):
        return
    if run_id.startswith(run_records.FORGET):
        raise DayTaken(
            f"{enrichment.name}: another `forget` wrote {day} again meanwhile: the keys may not be "
            "forgotten for good. Run `forget` again when the other has ended."
        )
    raise DayTaken(
        f"{enrichment.name}: {day} was run by run {run_id} meanwhile, which may have asked the "
        "keys: they are not forgotten for good. Run `forget` again when no run of the table is "
        "at work."
    )


def _recorded_order(folder: LedgerFolder) -> list[str]:
    """Return the recorded order of the parts of this folder's keys; empty without a record."""
    noted = (read_request(folder) or {}).get("keys")
    return noted if isinstance(noted, list) else []


def _forget_rows(
    enrichment: Enrichment, keys: KeysOf, quality: Quality, had: dict[str, str]
) -> Table:
    """Remove the evidence that names the rows, then the rows, then derived tables.

    Evidence first: which of it names a forgotten row is known only while the rows exist.

    Args:
        enrichment: Has the tables.
        keys: The keys.
        quality: Renders the reports again.
        had: The last run of each day, where the runs of this function are entered.
    """
    traces = find_traces(enrichment, keys)
    cleaned = clean_records(enrichment, traces, quality)
    logs = delete_logs(enrichment, traces)
    days, rows = _note_days_to_do(enrichment, traces.shown), 0
    for day in days:
        rows += _erase(enrichment, day, keys, had)
        remake_windows(enrichment, day)
        for summary in enrichment.summaries:
            summarize(enrichment, summary, day)
    delete_what_crashes_left(enrichment)
    removed = [vacuumed.removed for vacuumed in vacuum(enrichment, older_than=KEEP_NOTHING)]
    render_report(quality, enrichment.name, enrichment.output.path)
    run_records.remove(enrichment.name, enrichment.output.path, _unfinished_days_file(enrichment))
    old = sum(count.old for count in removed)
    return Table(
        enrichment.name, rows, tuple(days), old, sum(count.runs for count in removed), cleaned, logs
    )


def _unfinished_days_file(enrichment: Enrichment) -> Path:
    """Return the file with an unfinished `forget`'s days, whose derived tables are stale."""
    return run_records.ROOT / enrichment.name / "forgetting.json"


def _note_days_to_do(enrichment: Enrichment, days: Iterable[str]) -> list[str]:
    """Record these and an interrupted `forget`'s days, where other machines find them too.

    They stay recorded until the derived tables are made again.
    """
    table, file = enrichment.output.path, _unfinished_days_file(enrichment)
    noted = record_copies.read(table, file.parent, file)
    unfinished = sorted({*days, *json.loads(noted or b"[]")})
    if unfinished:
        record_copies.save(table, file.parent, file, json.dumps(unfinished).encode())
    return unfinished


def _erase(enrichment: Enrichment, day: str, keys: KeysOf, had: dict[str, str]) -> int:
    run_id = f"{run_records.FORGET}{uuid.uuid4().hex}"
    with leased(enrichment.output.path, day, run_id) as lease:
        _refuse_if_run_meanwhile(enrichment, day, lease.before, had)
        had[day] = run_id
        record = last_published(enrichment.name, day, table=enrichment.output.path)
        assert record is not None  # checked before anything began
        files = [file for published, file in files_of_days(enrichment) if published == day]
        return without_rows(record, files, keys, run_id=run_id, lease=lease)
