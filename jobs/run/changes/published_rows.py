"""Reads the published rows of a table without days (`Input(rows="changed")`), and finds those whose
answers have expired.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup
from jobs.declare.values.fingerprint import fields
from jobs.input.row_comparison import Flags, ParquetRows
from jobs.ledger.answers import ANSWERS
from jobs.ledger.declared_folder import declared_folder
from jobs.ledger.expired_marks import expired_marks
from jobs.run.keys.key_texts import texts_or_null
from jobs.schema import columns as schema
from jobs.schema.records import DayRecord
from jobs.storage.parquet_files import parquet_source, read_schema
from jobs.tables.delta.asked_keys import ROWS_AT_ONCE
from jobs.tables.delta.delta_log import table_at
from jobs.tables.delta.published_files import list_files
from jobs.tables.records import run_records

TTL = re.compile(r"lookups\.[^.]+\.ttl(\..+)?")  # fields of a lookup's time to live


@dataclass(frozen=True)
class PublishedRows(ParquetRows):
    """The published rows of a run.

    Attributes:
        record: Of that run. Its state stays "written" if a kill followed the commit.
    """

    record: DayRecord

    @classmethod
    def of(cls, enrichment: Enrichment, day: str) -> Self | None:
        """Return the rows of the last run; None if the files are not of a single run with a
        record, or if its lookups were declared differently (except `ttl`).
        """
        table = table_at(enrichment.output.path)
        files = [] if table is None else list_files(table, enrichment.facts(), day)
        runs = {file.run for file in files}
        record = run_records.of_run(enrichment.name, day, runs.pop()) if len(runs) == 1 else None
        if record is None or _answer_fields(fields(enrichment)) != _answer_fields(
            record.facts.declared.fields
        ):
            return None
        return cls(tuple(file.place for file in files), record)

    def are_judged_as_now(self, enrichment: Enrichment) -> bool:
        """Return whether only `ttl` is declared differently, so that the verdicts still hold."""
        now, before = fields(enrichment), self.record.facts.declared.fields
        return self.record.state == "published" and _without_ttl(now) == _without_ttl(before)

    @property
    def input_columns(self) -> pa.Schema:
        """The columns that the run had from its input."""
        had = {name.lower() for name in self.record.facts.input_columns}
        found = {field.name.lower(): field for file in self.files for field in read_schema(file)}
        return pa.schema([field for name, field in found.items() if name in had]).remove_metadata()

    def expired(self, enrichment: Enrichment, *, now_us: int, ignore_ttl: bool) -> Flags:
        """Return which rows have no answer, or an answer that was declared expired or is past its
        time to live. With `ignore_ttl`, as in a replay, dead letters count instead of answers past
        their time to live.
        """
        found = np.zeros(self.num_rows, np.bool_)
        for lookup in enrichment.lookups:
            status = schema.published_status(lookup.name)
            at = schema.published_answered_at(lookup.name)
            rows = self.columns(pa.schema([(status, pa.string()), (at, pa.timestamp("us", "UTC"))]))
            found |= ~_equals_any(rows[status], *ANSWERS, "skipped")
            answered_at = rows[at].cast(pa.int64()).fill_null(now_us).to_numpy()
            found |= self._marked(enrichment, lookup, answered_at)
            if ignore_ttl:
                found |= _equals_any(rows[status], *lookup.facts().dead_letters)
            else:
                found |= _outlived(lookup, rows[status], now_us - answered_at)
        return found

    def _marked(self, enrichment: Enrichment, lookup: Lookup, answered_at: object) -> Flags:
        found = np.zeros(self.num_rows, np.bool_)
        if (folder := declared_folder(enrichment, lookup)) is None:
            return found
        marks = expired_marks(folder)
        if not marks.num_rows:
            return found
        last = marks.group_by("key").aggregate([("answered_at", "max")])
        keys = self._asked(lookup, hidden=enrichment.has_personal_key(lookup))
        place = pc.index_in(keys, value_set=last["key"].combine_chunks())
        marked_at = last["answered_at_max"].cast(pa.int64()).take(place).fill_null(0).to_numpy()
        voided: Flags = marked_at >= answered_at  # as in the ledger: a mark of that µs wins
        return voided

    def _asked(self, lookup: Lookup, *, hidden: bool) -> pa.ChunkedArray:
        parts = tuple(lookup.keys)
        texts = []
        for file in self.files:
            with pq.ParquetFile(parquet_source(file)) as opened:
                for batch in opened.iter_batches(ROWS_AT_ONCE, columns=[schema.key(lookup.name)]):
                    key = batch.column(0)
                    columns = [pc.struct_field(key, part) for part in parts]
                    of_parts = pa.RecordBatch.from_arrays(columns, parts)
                    texts.append(texts_or_null(of_parts, parts, hidden=hidden))
        return pa.chunked_array(texts, pa.string())


def _answer_fields(declared: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a declaration on which answers depend."""
    return {
        name: value
        for name, value in _without_ttl(declared).items()
        if name.startswith(("lookups.", "input.row_id"))
    }


def _without_ttl(declared: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in declared.items() if not TTL.fullmatch(name)}


def _outlived(lookup: Lookup, status: pa.ChunkedArray, ages: object) -> Flags:
    """Return which answers are too old, by the rule of the ledger; `ages` are in µs."""
    found = np.zeros(len(status), np.bool_)
    for outcome, limit in lookup.ttl.max_age_us().items():
        if outcome in ANSWERS and limit is not None:
            found |= _equals_any(status, outcome) & ((ages >= limit) | (limit == 0))  # type: ignore[operator]
    return found


def _equals_any(values: pa.ChunkedArray, *wanted: str) -> Flags:
    found: Flags = pc.is_in(values, value_set=pa.array(wanted, pa.string())).to_numpy()
    return found
