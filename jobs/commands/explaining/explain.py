"""`explain`: from a cell of a published row to the call that it came from. Makes no call."""

import datetime as dt
import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jobs.arrow_values import readable_rows
from jobs.commands.explaining.published_row import PublishedRow, find_row, rows_that_used
from jobs.commands.explaining.request_text import request_text
from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup
from jobs.declare.values.fingerprint import plain
from jobs.declare.values.prices import in_force, price_text
from jobs.errors import DeclarationError
from jobs.ledger.answers import ANSWERS
from jobs.ledger.declared_folder import declared_folder
from jobs.ledger.keys import asked_texts, key_text, masked_json, shown_json
from jobs.ledger.plan import OF_KEYS
from jobs.ledger.scan import records_of
from jobs.ledger.stored_request import other_versions, read_request, what_changed
from jobs.schema import columns as schema
from jobs.schema.facts import Facts
from jobs.schema.personal import HIDDEN
from jobs.tables.records import run_records
from jobs.wording import did_you_mean

OTHERS = 10  # rows that are named
SOURCES = {
    "call": ", by a call of this run",
    "ledger": ", from the ledger",
    "shared": ", by the call of an equal row",
}

NO_KEY = "the row has no key to call for"
NOT_ASKED = (
    "not asked: its condition does not hold, a vendor before it answered or failed, or the row has "
    "no key"
)


@dataclass(frozen=True)
class ExplainedLookup(Facts):
    """Where the columns of a lookup come from; personal values are `***`."""

    lookup: str
    kind: str
    service: str
    columns: dict[str, Any]  # of its answer, as published
    outcome: str
    source: str | None  # call, ledger, shared; None: nothing answered
    error: str | None
    expressions: dict[str, str]  # part of the key -> its Spark SQL
    key: dict[str, Any] | None  # as written; without values if it is personal; None: not known
    key_text: str | None  # as the ledger stores it; None: no key, or a part of it is null
    request: str | None  # as declared now; None: no call, or it is personal
    attempts: int
    latency_ms: float | None
    answered_at: str | None  # ISO 8601, UTC
    run_id: str | None  # of the run that called; None: nothing answered, or it is not known
    run_of: str | None  # enrichment and day of that run, if its record is here
    price: str  # in force on that day, as "0.0040 USD per item"; empty: none
    response: str | None  # the raw answer as stored; None: not stored, a miss, or personal
    stored: str  # a sentence: what the ledger holds of the answer
    used_by: int  # other rows of the day with this answer
    rows: tuple[dict[str, Any], ...]  # the first of them, by identity

    @property
    def outcome_in_words(self) -> str:
        """The outcome, and what gave the answer."""
        return self.outcome + SOURCES.get(self.source or "", "")


@dataclass(frozen=True)
class Explained(Facts):
    """Where the cells of a row come from."""

    enrichment: str
    day: str
    version: int | None  # of the published table; None: the record of the run is not here
    run_id: str
    row: dict[str, Any]  # columns of the input
    source_file: str | None
    source_row: int | None
    lookups: tuple[ExplainedLookup, ...]


def explain(
    enrichment: Enrichment,
    wanted: Mapping[str, str],
    *,
    column: str | None = None,
    day: str | None = None,
    show_personal: bool = False,
) -> Explained:
    """Explain the cells of a published row, from the table, the ledger and the records.

    Args:
        enrichment: The enrichment.
        wanted: Values of a row, such as its `row_id`, as text.
        column: Only the lookup that made this column.
        day: The day; by default the newest that has the row.
        show_personal: Whether values of `pii` columns, and keys made from them, are shown.

    Raises:
        DeclarationError: The row or the column does not exist.
        LedgerError: The ledger cannot be read.
    """
    lookups = _chosen(enrichment, column)
    row = find_row(enrichment, wanted, day)
    run_records.fetch(enrichment.name, enrichment.output.path)
    record = run_records.of_run(enrichment.name, row.day, row.run_id)
    personal = set() if show_personal else {name.lower() for name in enrichment.pii}
    of_lookups = {name.lower() for lookup in enrichment.lookups for name in _columns(lookup)}
    carried = {
        name: masked_json(name, value, personal)
        for name, value in row.values.items()
        if name.lower() not in of_lookups
        and name not in schema.ROW_COLUMNS
        # other columns are of a lookup that is declared no more
        and (record is None or name in record.facts.input_columns)
    }
    return Explained(
        enrichment.name,
        row.day,
        None if record is None else record.published_version,
        row.run_id,
        carried,
        row.get(schema.SOURCE_FILE),
        row.get(schema.SOURCE_ROW),
        tuple(
            _explained(enrichment, lookup, row, personal)
            for lookup in lookups
            if row.column(schema.status(lookup.name))
        ),
    )


def _chosen(enrichment: Enrichment, column: str | None) -> Sequence[Lookup]:
    if column is None:
        return enrichment.lookups
    found = [
        lookup
        for lookup in enrichment.lookups
        if column.lower() in map(str.lower, _columns(lookup))
    ]
    if not found:
        made = [name for lookup in enrichment.lookups for name, _ in lookup.facts().returns]
        raise DeclarationError(
            f"--column {column}: no lookup of {enrichment.name} makes it."
            f"{did_you_mean(column, made)} They make: "
            f"{', '.join(made)}. Any other column is the input's."
        )
    return found


def _columns(lookup: Lookup) -> list[str]:
    name = lookup.name
    return [
        *(column.name for column in (*lookup.columns, *lookup.written)),
        *(column.name for column in schema.published_columns(name)),
        *schema.audit_columns(name),
        schema.key(name),
    ]


def _explained(
    enrichment: Enrichment, lookup: Lookup, row: PublishedRow, personal: set[str]
) -> ExplainedLookup:
    name = lookup.name
    is_hidden = enrichment.has_personal_key(lookup)
    shows = not (is_hidden and personal)
    key, at = row.get(schema.key(name)), row.get(schema.published_answered_at(name))
    text = None
    if key is not None and None not in key.values():
        # its parts may have had other names when the day was written
        parts = lookup.keys if lookup.keys.keys() == key.keys() else key
        text = key_text(tuple(key[part] for part in parts), hidden=is_hidden)
    elif key is not None and lookup.when is not None and set(key.values()) == {None}:
        key = None  # without a call, the file has null keys
    record, stored = _find_answer(enrichment, lookup, text, at)
    source = row.get(schema.source(name))
    run_id = record["run_id"].removesuffix(OF_KEYS) if record else None
    if run_id is None and source in ("call", "shared"):
        run_id = row.run_id
    used_by, rows = _others(enrichment, lookup, row, text, personal)
    columns = [column.name for column in lookup.written]
    return ExplainedLookup(
        lookup=name,
        kind=lookup.kind,
        service=lookup.service_name,
        columns={column: shown_json(row.get(column)) if shows else HIDDEN for column in columns},
        outcome=row.get(schema.status(name)),
        source=source,
        error=row.get(schema.error(name)) if shows else None,
        expressions=dict(lookup.as_written.keys),
        key=key and {part: shown_json(value) if shows else HIDDEN for part, value in key.items()},
        key_text=text,
        request=_request(lookup, key) if text and shows else None,
        attempts=len(row.get(schema.attempts(name)) or ()),
        latency_ms=row.get(schema.latency_ms(name)),
        answered_at=None if at is None else shown_json(at),
        run_id=run_id,
        run_of=_day_and_run(run_id),
        price="" if at is None else price_text(in_force(lookup.prices, at.date().isoformat())),
        response=record["response"] if record and shows else None,
        stored=stored,
        used_by=used_by,
        rows=tuple(rows),
    )


def _request(lookup: Lookup, key: Mapping[str, Any]) -> str:
    if key.keys() != lookup.keys.keys():
        return f"none can be written: the key is declared with {', '.join(lookup.keys)} now"
    try:
        return request_text(lookup, key)
    except ValueError as error:
        return f"none can be written: {error}"


def _find_answer(
    enrichment: Enrichment, lookup: Lookup, text: str | None, at: dt.datetime | None
) -> tuple[dict[str, Any] | None, str]:
    """Return the stored answer of this time, or the newest of the key, with a sentence about it."""
    folder = declared_folder(enrichment, lookup)
    if folder is None:
        return None, "no ledger is declared"
    if text is None:
        return None, NO_KEY if lookup.when is None else NOT_ASKED
    is_replaced = False
    for version in (folder, *other_versions(folder)):
        records = records_of(version, [text]).to_pylist()
        answers = [record for record in records if record["outcome"] in ANSWERS]
        found = [record for record in answers if at is None or record["answered_at"] == at]
        is_replaced |= any(at is not None and record["answered_at"] > at for record in answers)
        if found:
            words = ["the row has no answer; this is the newest stored for its key"]
            if at is not None:
                words = ["stored"]
            if version is not folder:
                changed = what_changed(read_request(version), plain(lookup.request_facts()))
                words.append(f"for an earlier request; changed since: {changed}")
            last = found[-1]["answered_at"]
            if any(
                record["outcome"] == "expired" and record["answered_at"] >= last
                for record in records
            ):
                words.append("declared expired since")
            return found[-1], "; ".join(words)
    if at is None:
        return None, "nothing answered, and no answer is stored for its key"
    why = "a newer one replaced it" if is_replaced else "it could not be kept, or was removed"
    return None, f"not stored any more: {why}"


def _day_and_run(run_id: str | None) -> str | None:
    """Return enrichment and day of a run whose record is here."""
    place = run_id and next(run_records.ROOT.glob(f"*/*/{glob.escape(run_id)}.json"), None)
    return f"{place.parent.parent.name} {place.parent.name}" if place else None


def _others(
    enrichment: Enrichment, lookup: Lookup, row: PublishedRow, text: str | None, personal: set[str]
) -> tuple[int, list[dict[str, Any]]]:
    """Return how many other rows of the day have the row's answer, and the first of them."""
    identity = [*enrichment.input.row_id] or list(schema.SOURCE_IDENTITY)
    id_columns = [name for column in identity if (name := row.column(column)) is not None]
    at = row.get(schema.published_answered_at(lookup.name))
    is_hidden, count, rows = enrichment.has_personal_key(lookup), 0, list[dict[str, Any]]()
    if text is None or at is None:
        return count, rows
    for found in rows_that_used(row, lookup.name, at, id_columns):
        keys = found[schema.key(lookup.name)].combine_chunks()
        texts = asked_texts(keys, hidden=is_hidden, parts=tuple(lookup.keys))
        same = [number for number, other in enumerate(texts) if other == text]
        count += len(same)
        first = pa.array(same[: OTHERS - len(rows)], pa.int64())
        for other in readable_rows(found.select(id_columns).take(first)):
            rows.append({name: masked_json(name, value, personal) for name, value in other.items()})
    return count, rows
