"""The files of a day in a version of its table, or of a run that was held back."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError
from jobs.schema.records import DayRecord
from jobs.storage.stored_files import is_there
from jobs.tables.delta.delta_log import table_at
from jobs.tables.delta.published_files import list_files
from jobs.tables.records import run_records
from jobs.tables.records.publications import publications, published_versions
from jobs.wording import listed

DIGITS = 12  # so many, or more, begin a run's id


@dataclass(frozen=True)
class DayVersion:
    """A day as readers saw it, or as a run wrote it.

    Attributes:
        version: Of the table; None for a run that was never published.
        run_id: The last run that wrote a file of it; empty for a day without rows, or of which
            another program wrote all files.
        files: Its files, in the order of their paths.
        record: The record of the run, if it is here.
    """

    version: int | None
    run_id: str
    files: tuple[str, ...]
    record: DayRecord | None


def find_versions(
    enrichment: Enrichment, day: str, first: str | None, last: str | None
) -> tuple[DayVersion, DayVersion]:
    """Return the two versions of a day.

    Args:
        enrichment: The enrichment.
        day: The day.
        first: A version of the table or how a run's id begins; by default the publication before
            that of `last`.
        last: Likewise; by default the last publication.

    Raises:
        DeclarationError: A version does not exist, or its files are removed.
    """
    table = table_at(enrichment.output.path)
    found = [] if table is None else publications(table)
    published = [commit.version for commit in found if commit.day == day]
    if table is None or not published:
        raise DeclarationError(f"{enrichment.name}: {day} is not published: nothing to compare.")
    to = _find(enrichment, table, day, last or str(published[-1]), "--to")
    before = [version for version in published if to.version is None or version < to.version]
    if first is None and not before:
        raise DeclarationError(
            f"{enrichment.name}: {day} was published once, as version {published[0]}; name another "
            "version or a run by --from."
        )
    return _find(enrichment, table, day, first or str(before[-1]), "--from"), to


def find_published(enrichment: Enrichment, day: str) -> DayVersion:
    """Return the day as readers see it. Raises DeclarationError if they see no row of it."""
    table = table_at(enrichment.output.path)
    if table is not None:
        found = _read_version(enrichment, table, day, table.version(), day)
        if found.files:
            # later versions of the table, as of other days, have the same files of the day
            versions = published_versions(table)
            return replace(found, version=versions.get(found.run_id, found.version))
    raise DeclarationError(f"{enrichment.name}: no row of {day} is published: nothing to compare.")


def _find(
    enrichment: Enrichment, table: DeltaTable, day: str, named: str, option: str
) -> DayVersion:
    run_records.fetch(enrichment.name, enrichment.output.path)
    if named.isdigit() and len(named) < DIGITS:
        return _read_version(enrichment, table, day, int(named), option)
    records = run_records.load(enrichment.name, day)
    found = [record for record in records if record.facts.run_id.startswith(named)]
    if len(found) != 1:
        runs = [record.facts.run_id for record in records]
        raise DeclarationError(
            f"{option} {named}: it must be a version of the table, or begin the id of one run of "
            f"{day} that wrote files. They are: {listed(runs, 10) or 'none'}."
        )
    (record,) = found
    files = sorted(record.facts.published_files)
    _require_files(files, f"{option} {named}")
    return DayVersion(record.published_version, record.facts.run_id, tuple(files), record)


def _read_version(
    enrichment: Enrichment, table: DeltaTable, day: str, version: int, option: str
) -> DayVersion:
    try:
        seen = DeltaTable(enrichment.output.path, version=version)
    except (DeltaError, OverflowError) as error:
        raise DeclarationError(
            f"{option} {version}: the table has no such version; its last is {table.version()}."
        ) from error
    files = list_files(seen, enrichment.facts(), day)
    places = [file.place for file in files]
    _require_files(places, f"{option} {version}")
    runs = {file.run for file in files}
    run_id = _last(runs, seen) if len(runs) > 1 else next(iter(runs), "")
    record = run_records.of_run(enrichment.name, day, run_id) if run_id else None
    return DayVersion(version, run_id, tuple(places), record)


def _last(runs: Collection[str], table: DeltaTable) -> str:
    """Return the run that was published last of those whose files a day has, as with batches."""
    versions = published_versions(table)
    return max(runs, key=lambda run: (versions.get(run, -1), run))


def _require_files(files: Sequence[str], named: str) -> None:
    missing = [file for file in files if not is_there(file)]
    if missing:
        raise DeclarationError(
            f"{named}: its files are removed, perhaps by vacuum: {listed(missing, 1)}."
        )
