"""Removes from the ledger the keys that are made of the answers to forgotten keys."""

from collections import defaultdict

import pyarrow.parquet as pq

from jobs.declare.chains import lookups_below
from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup
from jobs.ledger.changes.erasure import forget
from jobs.ledger.declared_folder import declared_folder
from jobs.ledger.keys import asked_texts
from jobs.ledger.stored_request import versions
from jobs.schema import columns as schema
from jobs.storage.parquet_files import parquet_source
from jobs.storage.stored_files import is_there
from jobs.tables.delta.asked_keys import KeysOf, asked, files_of_days, names_keys
from jobs.tables.records import run_records


def forget_derived(enrichment: Enrichment, keys: KeysOf) -> int:
    """Remove the derived keys that only rows with a forgotten key have, in files of any run.

    Args:
        enrichment: Has the rows, also of held-back days, which are not erased yet.
        keys: The forgotten keys.

    Returns:
        The number of the ledger's files that were rewritten or deleted.
    """
    files = 0
    for lookup in _dependents(enrichment, keys.lookup):
        folder = declared_folder(enrichment, lookup)
        texts = set() if folder is None else _only_of(enrichment, keys, lookup)
        if folder is not None and texts:
            files += sum(forget(one, texts).files for one in {folder, *versions(folder)})
    return files


def _dependents(enrichment: Enrichment, name: str) -> list[Lookup]:
    """Return the lookups whose keys are made of the answers of the named lookup, at any level."""
    lookups = enrichment.lookups
    return [
        lookup
        for place, lookup in enumerate(lookups)
        if any(lookups[other].name == name for other in lookups_below(lookups, place))
    ]


def _existing_files(enrichment: Enrichment) -> set[str]:
    """Return the files of published days and those that other runs have left."""
    written = {
        file
        for record in run_records.load(enrichment.name)
        for file in record.facts.published_files
        if is_there(file)
    }
    return written | {file for _, file in files_of_days(enrichment)}


def _only_of(enrichment: Enrichment, keys: KeysOf, lookup: Lookup) -> set[str]:
    """Return the texts of the lookup's keys in rows with a forgotten key, and in no other row."""
    texts: dict[bool, set[str]] = defaultdict(set)
    for file in _existing_files(enrichment):
        if not (names_keys(file, lookup.name) and names_keys(file, keys.lookup)):
            continue
        column = schema.key(lookup.name)
        columns = list({column, schema.key(keys.lookup)})
        read = pq.read_table(parquet_source(file), columns=columns, partitioning=None)
        forgotten = asked(read, keys)
        for hidden in (False, True):
            of_rows = asked_texts(read[column], hidden=hidden, parts=tuple(lookup.keys))
            for text, is_forgotten in zip(of_rows, forgotten, strict=True):
                if text is not None:
                    texts[is_forgotten].add(text)
    return texts[True] - texts[False]
