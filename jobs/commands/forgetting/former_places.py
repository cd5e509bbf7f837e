"""Lists tables, days and ledgers with keys of a lookup that no declaration leads to now."""

from collections.abc import Iterable, Iterator, Sequence

from pyarrow import fs

from jobs.declare.enrichment import Enrichment
from jobs.schema.records import DeclaredFacts
from jobs.storage.stored_files import open_filesystem
from jobs.storage.urls import absolute, below
from jobs.tables.delta.asked_keys import files_of_days, names_keys
from jobs.tables.records import run_records
from jobs.tables.shown.shown_as_parquet import days_left
from jobs.wording import listed


def former_places(lookup: str, readers: Sequence[Enrichment]) -> tuple[str, ...]:
    """Return the places that `forget` does not look at, and that may hold keys of the lookup.

    They are known by the records of runs, also of enrichments that are not declared any more. Days
    and ledgers of a lookup that had another name then are among them.

    Args:
        lookup: Its name.
        readers: The enrichments that have it now; their places are left out.
    """
    declared = {place for reader in readers for _, place in _places(reader.facts(), lookup)}
    now = {reader.name: reader.facts() for reader in readers}
    found: dict[str, str] = {}
    for folder in sorted(run_records.ROOT.glob("*/")):
        for record in run_records.load(folder.name):
            facts = record.facts.declared
            if any(former.name == lookup for former in facts.lookups):
                found |= {place: kind for kind, place in _places(facts, lookup)}
            if facts.ledger is not None and facts.enrichment in now:
                for name in _former_names(facts, now[facts.enrichment], lookup):
                    found[below(absolute(facts.ledger), name)] = "ledger"
    places = (
        f"the {kind} {place}"
        for place, kind in found.items()
        if place not in declared and (kind == "Iceberg table" or _is_there(place))
    )
    return (*places, *_days_without(lookup, readers), *_days_in_folders_only(readers))


def _former_names(facts: DeclaredFacts, now: DeclaredFacts, lookup: str) -> list[str]:
    """Return lookups with keys of the same parts as this one that are declared no more."""
    names = {declared.name for declared in now.lookups}
    return [
        former.name
        for former in facts.lookups
        if former.name not in names and _parts(facts, former.name) == _parts(now, lookup)
    ]


def _parts(facts: DeclaredFacts, lookup: str) -> set[str]:
    begin = f"lookups.{lookup}.keys."
    return {field.removeprefix(begin) for field in facts.fields if field.startswith(begin)}


def _days_without(lookup: str, readers: Iterable[Enrichment]) -> Iterator[str]:
    """Yield the published days whose rows do not name their keys of this lookup."""
    for reader in readers:
        files = files_of_days(reader)
        if days := {day for day, file in files if not names_keys(file, lookup)}:
            yield f"{listed(sorted(days), 10)} of {reader.output.path}, which ran without {lookup}"


def _days_in_folders_only(readers: Iterable[Enrichment]) -> Iterator[str]:
    """Yield the days that only the folders of Parquet of a table still have."""
    for declared in (reader.facts() for reader in readers):
        if declared.parquet and (days := days_left(declared)):
            yield f"{listed(days, 10)} of {declared.parquet}, which {declared.table} lacks"


def _places(declared: DeclaredFacts, lookup: str) -> Iterator[tuple[str, str]]:
    yield "table", absolute(declared.table)
    if declared.ledger is not None:
        yield "ledger", below(absolute(declared.ledger), lookup)
    if declared.parquet:
        yield "folder", absolute(declared.parquet)
    if declared.iceberg:
        yield "Iceberg table", declared.iceberg


def _is_there(folder: str) -> bool:
    try:
        filesystem, path = open_filesystem(folder)
        return bool(filesystem.get_file_info(path).type != fs.FileType.NotFound)
    except OSError:  # as where a store is not reached: it may be there
        return True
