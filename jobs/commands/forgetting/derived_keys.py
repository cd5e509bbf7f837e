"""Removes from the ledger the keys that are made of the answers to forgotten keys."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.clients.registry import client_for
from jobs.commands.ledgers import declared_ledgers
from jobs.declare.chains import lookups_below
from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup
from jobs.input.keys.arrow_expressions import evaluate
from jobs.ledger.answers import ANSWERS, as_answers
from jobs.ledger.changes.erasure import forget
from jobs.ledger.declared_folder import declared_folder
from jobs.ledger.keys import asked_texts
from jobs.ledger.scan import records_of
from jobs.ledger.store import LedgerFolder
from jobs.ledger.stored_request import versions
from jobs.schema import columns as schema
from jobs.storage.parquet_files import parquet_source, read_fields
from jobs.storage.stored_files import is_there
from jobs.tables.delta.asked_keys import KeysOf, asked, files_of_days, names_keys
from jobs.tables.records import run_records
from jobs.task.rows.ledger_hits import stored_columns


def forget_derived(
    readers: Sequence[Enrichment], declared: Iterable[tuple[str, Enrichment]], keys: KeysOf
) -> int:
    """Remove the keys that are made of answers to forgotten keys, unless other rows have them.

    Files of any run tell which rows have a key. Keys in no file, such as those of `try`, are made
    again from the stored answers, which still exist. Keys that also read the input are not found.

    Args:
        readers: The enrichments with the forgotten keys; their rows are not erased yet.
        declared: All enrichments, by module:name, whose rows may have the same keys.
        keys: The forgotten keys.

    Returns:
        The number of the ledger's files that were rewritten or deleted.
    """
    found: dict[LedgerFolder, set[str]] = defaultdict(set)
    for enrichment in readers:
        of_answers = _of_answers(enrichment, keys)
        for lookup in _dependents(enrichment, keys.lookup):
            if (folder := declared_folder(enrichment, lookup)) is not None:
                found[folder] |= _of_rows(enrichment, keys, lookup, forgotten=True)
                found[folder] |= of_answers.get(lookup.name, set())
    read_by = {kept.folder: kept for kept in declared_ledgers(declared)}
    files = 0
    for folder in reversed(found):  # after an interruption, the answers below tell the rest again
        texts, kept = found[folder], read_by[folder]
        for _, enrichment in kept.read_by if texts else ():
            is_reader = any(enrichment is reader for reader in readers)
            erased = keys if is_reader else replace(keys, texts=())
            texts = texts - _of_rows(enrichment, erased, kept.lookup, forgotten=False)
        if texts:
            files += sum(forget(version, texts).files for version in {folder, *versions(folder)})
    return files


def _dependents(enrichment: Enrichment, name: str) -> list[Lookup]:
    """Return the lookups whose keys are made of the answers of the named lookup, at any level, and
    the later vendors of its waterfall, which answer in its place. A condition makes no key.
    """
    found = []
    for place, lookup in enumerate(enrichment.lookups):
        before = enrichment.lookups[:place]
        below = lookups_below([*before, replace(lookup, when=None)], place)
        names = {before[other].name for other in below}
        names |= {earlier.name for earlier in before if earlier.choice == lookup.choice is not None}
        if name in names:
            found.append(lookup)
    return found


def _existing_files(enrichment: Enrichment) -> set[str]:
    """Return the files of published days and those that other runs have left."""
    written = {
        file
        for record in run_records.load(enrichment.name)
        for file in record.facts.published_files
        if is_there(file)
    }
    return written | {file for _, file in files_of_days(enrichment)}


def _of_rows(enrichment: Enrichment, keys: KeysOf, lookup: Lookup, *, forgotten: bool) -> set[str]:
    """Return the texts of the lookup's keys in rows with a forgotten key, or in the other rows."""
    texts, column = set[str](), schema.key(lookup.name)
    for file in filter(lambda file: names_keys(file, lookup.name), _existing_files(enrichment)):
        names = {column, schema.key(keys.lookup)}.intersection(read_fields([file]))
        read = pq.read_table(parquet_source(file), columns=[*names], partitioning=None)
        flags = pa.array([flag == forgotten for flag in asked(read, keys)], pa.bool_())
        texts |= _texts(read[column].filter(flags), lookup)
    return texts


def _texts(made: pa.Array, lookup: Lookup) -> set[str]:
    """Return keys, hashed and not, in the ledger's form."""
    both = (asked_texts(made, hidden=hidden, parts=tuple(lookup.keys)) for hidden in (False, True))
    return {text for texts in both for text in texts if text is not None}


def _of_answers(enrichment: Enrichment, keys: KeysOf) -> dict[str, set[str]]:
    """Return by lookup the keys that the stored answers to forgotten keys make, at any level."""
    first = next(lookup for lookup in enrichment.lookups if lookup.name == keys.lookup)
    rows = [answer for _, answer in _stored(enrichment, first, keys.texts)]
    fields = _fields(first)
    found = {}
    for lookup in _dependents(enrichment, keys.lookup):
        columns = {name.lower() for name, _ in fields}
        read = {name.lower() for field, name in lookup.columns_read() if field != "when"}
        if not read <= columns:
            continue
        table = pa.Table.from_pylist(rows, pa.schema(fields))
        parts = [evaluate(text, table) for text in lookup.keys.values()]
        if any(part is None for part in parts):
            continue
        made = pa.StructArray.from_arrays(parts, names=list(lookup.keys))
        found[lookup.name] = _texts(made, lookup)
        answers = dict(_stored(enrichment, lookup, found[lookup.name]))
        hidden = enrichment.has_personal_key(lookup)
        of_rows = asked_texts(made, hidden=hidden, parts=tuple(lookup.keys))
        nothing = {schema.published_status(lookup.name): "skipped"}
        asked = [
            row | answers.get(text or "", nothing) for row, text in zip(rows, of_rows, strict=True)
        ]
        # a condition may read what is not known here
        rows = asked + [row | nothing for row in rows if lookup.when is not None]
        fields += _fields(lookup)
    return found


def _fields(lookup: Lookup) -> list[tuple[str, pa.DataType]]:
    answers = [(column.name, column.arrow_type) for column in lookup.written]
    return [*answers, (schema.published_status(lookup.name), pa.string())]


def _stored(
    enrichment: Enrichment, lookup: Lookup, texts: Iterable[str]
) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield each stored answer to these keys, oldest first, as the columns that later keys read."""
    folder, caller = declared_folder(enrichment, lookup), client_for(lookup, 1)
    names = [column.name for column in lookup.written]
    for version in () if folder is None else {folder, *versions(folder)}:
        for stored in as_answers(records_of(version, sorted(texts))):
            if stored.outcome in ANSWERS:
                values = stored_columns(caller, stored) or (None,) * len(names)
                columns = dict(zip(names, values, strict=True))
                yield stored.key, {**columns, schema.published_status(lookup.name): stored.outcome}
