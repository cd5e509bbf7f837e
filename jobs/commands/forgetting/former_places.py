"""Lists tables and ledgers that runs of a lookup wrote to, and that no declaration names now."""

from collections.abc import Iterable, Iterator

from pyarrow import fs

from jobs.declare.enrichment import Enrichment
from jobs.schema.records import DeclaredFacts
from jobs.storage.stored_files import open_filesystem
from jobs.storage.urls import absolute, below
from jobs.tables.records import run_records


def former_places(lookup: str, readers: Iterable[Enrichment]) -> tuple[str, ...]:
    """Return the places that `forget` does not look at, and that may hold keys of the lookup.

    They are known by the records of runs, also of enrichments that are not declared any more.

    Args:
        lookup: Its name.
        readers: The enrichments that have it now; their places are left out.
    """
    declared = {place for reader in readers for _, place in _places(reader.facts(), lookup)}
    found: dict[str, str] = {}
    for folder in sorted(run_records.ROOT.glob("*/")):
        for record in run_records.load(folder.name):
            facts = record.facts.declared
            if any(former.name == lookup for former in facts.lookups):
                found |= {place: what for what, place in _places(facts, lookup)}
    return tuple(
        f"the {what} {place}"
        for place, what in found.items()
        if place not in declared and (what == "Iceberg table" or _is_there(place))
    )


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
