"""Reads the stored answers of the rows that a run has written, and maps them again, for the checks.

The driver does all of it with Arrow. It holds each key and time of an answer once, about 100 bytes
and the length of the key; the stored answers go from the ledger to a file beside the run's files,
and are mapped to columns.
"""

import datetime as dt
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.clients.registry import client_for
from jobs.declare.lookup import Lookup
from jobs.ledger.answers import ANSWERS, StoredAnswer
from jobs.ledger.generations import Contents, newest_generation, read_contents
from jobs.ledger.keys import key_hashes
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.resolution import NEVER, Ints, answer_times
from jobs.ledger.scan import KeySet, matches
from jobs.ledger.store import LedgerFolder
from jobs.run.keys.hits import open_folder, run_of_keys
from jobs.run.keys.key_texts import TEXT, key_texts
from jobs.schema import columns as schema
from jobs.schema.columns import BY_RUN, GONE, NONE
from jobs.schema.records import DayFacts
from jobs.storage.locked_folders import temporary_folder
from jobs.storage.parquet_files import open_parquet, read_footer, read_schema
from jobs.storage.urls import is_url
from jobs.tables.old_files import KEYS
from jobs.task.rows.ledger_hits import UnreadableAnswer, map_stored_answer
from jobs.task.rows.outcome_columns import TIMESTAMP

CLOCKS = dt.timedelta(minutes=5)  # by which the clocks of a cluster's hosts may differ
AT, BY_LEDGER, PAIR = "__at", "__by_ledger", "__pair"
OUTCOME, RESPONSE = "__outcome", "__response"
ROWS_AT_ONCE = 1_000_000  # in memory


@contextmanager
def stored_answers(
    facts: DayFacts, kept: Mapping[str, tuple[Lookup, LedgerPlan]]
) -> Iterator[Callable[[str], pa.Table | None]]:
    """Yields a function that returns what the ledger holds of a lookup's answers in the files.

    Its table has a row for each key and time of an answer, with the columns schema.key,
    published_answered_at, published_status and the answers, as the stored response is mapped now.
    The status is ok, miss or error; schema.NONE if the ledger has no such answer, or had a newer
    answer before the run began; schema.GONE if the ledger need not have it any more: it could not
    be kept, or a compaction since then replaced it by a newer answer. schema.BY_RUN says whether
    the run itself stored it. The function returns None for a lookup that is not in `kept`, and for
    files without a row.

    The function raises LedgerError for a ledger that cannot be read.
    """

    def stored(name: str) -> pa.Table | None:
        if name not in kept or not _has_rows(facts):
            return None
        lookup, plan = kept[name]
        return Written(lookup, plan, facts).stored(scratch / f"{name}.parquet")

    with _scratch(facts) as scratch:
        yield stored


def _has_rows(facts: DayFacts) -> bool:
    if facts.written:
        return any(file.rows for file in facts.written)
    return any(read_footer(file).num_rows for file in facts.files)


@contextmanager
def _scratch(facts: DayFacts) -> Iterator[Path]:
    """Yields a local folder for the body: beside the run's folder, unless that is on a store."""
    if is_url(facts.folder):
        with temporary_folder() as folder:
            yield folder
        return
    folder = Path(f"{facts.folder}{KEYS}")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Written:
    lookup: Lookup
    plan: LedgerPlan
    facts: DayFacts

    def stored(self, path: Path) -> pa.Table | None:
        """Returns what the ledger holds of the answers. path: of a file for the responses."""
        called = tuple(
            part.name
            for part in read_schema(self.facts.files[0]).field(schema.key(self.lookup.name)).type
        )
        # names that collide with no other
        parts = tuple(f"__part_{number}" for number in range(len(called)))
        instead = _find(self.plan, self._pairs(parts), self.facts, path)
        mapping = Mapped(self.lookup, parts, called, instead)
        with pq.ParquetFile(path) as file:
            mapped = list(mapping(file.iter_batches()))
        return pa.Table.from_batches(mapped) if mapped else None

    def _pairs(self, parts: Sequence[str]) -> pa.Table:
        rows = pa.concat_tables(
            _once(self._answered(batch, parts), [*parts, AT]) for batch in self._batches()
        )
        texts = [key_texts(batch, parts, hidden=self.plan.hidden) for batch in rows.to_batches()]
        rows = rows.append_column(TEXT, pa.chunked_array(texts, pa.string()))
        rows = rows.append_column(PAIR, pa.array(range(rows.num_rows), pa.int64()))
        once = rows.group_by([TEXT, AT]).aggregate([(BY_LEDGER, "all"), (PAIR, "min")])
        pairs = rows.take(once[f"{PAIR}_min"]).drop_columns([PAIR])
        return pairs.set_column(
            pairs.schema.get_field_index(BY_LEDGER), BY_LEDGER, once[f"{BY_LEDGER}_all"]
        )

    def _batches(self) -> Iterator[pa.RecordBatch]:
        name = self.lookup.name
        columns = [
            schema.key(name),
            schema.published_status(name),
            schema.published_answered_at(name),
        ]
        for path in self.facts.files:
            with open_parquet(path) as file:
                yield from file.iter_batches(ROWS_AT_ONCE, columns=[*columns, schema.source(name)])

    def _answered(self, batch: pa.RecordBatch, parts: Sequence[str]) -> pa.Table:
        """Returns the rows with an answer: the parts of their key, AT and BY_LEDGER."""
        name = self.lookup.name
        status, at = batch[schema.published_status(name)], batch[schema.published_answered_at(name)]
        batch = batch.filter(
            pc.and_(pc.is_in(status, value_set=pa.array(ANSWERS)), pc.is_valid(at))
        )
        by_ledger = pc.fill_null(pc.equal(batch[schema.source(name)], "ledger"), False)
        key, at = batch[schema.key(name)], batch[schema.published_answered_at(name)]
        rows = pa.table([*key.flatten(), at, by_ledger], [*parts, AT, BY_LEDGER])
        return rows.drop_null().combine_chunks()


def _once(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    # Arrow does not group nested values
    if any(pa.types.is_nested(rows.schema.field(name).type) for name in by):
        return rows
    once = rows.group_by(by).aggregate([(BY_LEDGER, "all")])
    return once.rename_columns([*by, BY_LEDGER]).select(rows.column_names)


class Pairs:
    def __init__(self, table: pa.Table, begun: int) -> None:
        """table: TEXT, AT and BY_LEDGER. begun: when the run began, µs since the epoch."""
        self.table = table
        self.begun = begun
        self.wanted = KeySet(table[TEXT])
        self._places: Ints = self.wanted.places(table[TEXT]).to_numpy()
        self._times: Ints = table[AT].cast(pa.int64()).to_numpy()
        self._moments = np.unique(self._times)
        codes = self._codes(self._places, self._times)
        self._order = np.argsort(codes)
        self._sorted = codes[self._order]
        self._newest = np.full(len(self.wanted), NEVER, np.int64)  # of all answers of a key
        self._newest_before = self._newest.copy()  # of answers before the run
        self._seen = np.zeros(table.num_rows, np.bool_)
        self._hashes = np.zeros(table.num_rows, np.uint64)  # of the responses
        self._unsure: set[int] = set()  # two answers of a key in the same µs

    def _codes(self, places: Ints, times: Ints) -> Ints:
        return places * len(self._moments) + np.searchsorted(self._moments, times)

    def take(self, found: pa.Table) -> tuple[Ints, pa.Table]:
        """Looks at answers of the keys; returns the new ones, with the numbers of their pairs.

        found: as `matches` yields it.
        """
        found = found.filter(pc.is_in(found["outcome"], value_set=pa.array(ANSWERS)))
        places, times = found["place"].to_numpy(), answer_times(found)
        before = times <= self.begun
        np.maximum.at(self._newest, places, times)
        np.maximum.at(self._newest_before, places[before], times[before])
        hit = np.isin(times, self._moments)
        where = np.searchsorted(self._sorted, codes := self._codes(places[hit], times[hit]))
        there = self._sorted[np.minimum(where, len(self._sorted) - 1)] == codes
        pairs: Ints = self._order[where[there]]
        found = found.filter(pa.array(hit)).filter(pa.array(there))
        hashes = key_hashes(
            pc.binary_join_element_wise(
                found["outcome"], found["response"].fill_null(""), " "
            ).to_pylist()
        )
        first = np.zeros(len(pairs), np.bool_)
        first[np.unique(pairs, return_index=True)[1]] = True
        first &= ~self._seen[pairs]
        self._hashes[pairs[first]] = hashes[first]
        self._seen[pairs] = True
        self._unsure.update(pairs[self._hashes[pairs] != hashes].tolist())
        return pairs[first], found.filter(pa.array(first))

    def missing(self, *, compacted: Callable[[], bool]) -> tuple[Ints, list[str]]:
        """Returns the pairs without an answer, each with NONE or GONE. compacted: whether a
        compaction came since the run began.
        """
        pairs: Ints = np.flatnonzero(~self._seen)
        if not len(pairs):
            return pairs, []
        newest, by_ledger = (
            self._newest[self._places[pairs]],
            self.table[BY_LEDGER].to_numpy()[pairs],
        )
        never_kept = ~by_ledger & (newest <= self.begun)
        replaced = compacted() & ((newest > self._times[pairs]) | (newest == NEVER))
        return pairs, np.where(never_kept | replaced, GONE, NONE).tolist()

    def instead(self) -> dict[int, str]:
        """Returns for some pairs what counts instead of the found answer."""
        older = self._seen & (self._times < self._newest_before[self._places])
        return dict.fromkeys(np.flatnonzero(older).tolist(), NONE) | dict.fromkeys(
            self._unsure, GONE
        )


@dataclass(frozen=True)
class Mapped:
    lookup: Lookup
    parts: tuple[str, ...]
    called: tuple[str, ...]
    instead: Mapping[int, str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        name, caller = self.lookup.name, client_for(self.lookup, 1)
        nothing = (None,) * len(self.lookup.columns)
        for batch in batches:
            rows = zip(
                *(batch.column(one).to_pylist() for one in (PAIR, OUTCOME, RESPONSE)), strict=True
            )
            replies = [self._reply(caller, *row) for row in rows]
            columns: dict[str, Any] = {
                schema.key(name): pa.StructArray.from_arrays(
                    [batch.column(part) for part in self.parts], self.called
                ),
                schema.published_answered_at(name): batch.column(AT).cast(TIMESTAMP),
                schema.published_status(name): pa.array(
                    [status for status, _ in replies], pa.string()
                ),
                BY_RUN: batch.column(BY_RUN),
            }
            values = zip(*(answer or nothing for _, answer in replies), strict=True)
            for column, of_column in zip(self.lookup.columns, values, strict=True):
                columns[column.name] = pa.array(of_column, column.arrow_type)
            yield pa.RecordBatch.from_pydict(columns)

    def _reply(
        self, caller: Any, pair: int, outcome: Any, response: str | None
    ) -> tuple[str, Sequence[Any] | None]:
        outcome = self.instead.get(pair, outcome)
        if outcome not in ANSWERS:
            return outcome, None
        stored = StoredAnswer("", outcome, None if response is None else response.encode(), 0, "")
        try:
            reply = map_stored_answer(caller, stored)
        except UnreadableAnswer:
            return NONE, None
        return reply.outcome or NONE, reply.answer


def _find(plan: LedgerPlan, table: pa.Table, facts: DayFacts, path: Path) -> Mapping[int, str]:
    """Writes the stored answer of each pair; returns for some pairs what counts instead."""
    folder, own = open_folder(plan), pa.array([facts.run_id, run_of_keys(facts.run_id)])
    started = dt.datetime.fromisoformat(facts.started_at) - CLOCKS
    begun = round(started.timestamp() * 1e6)

    def write(there: Contents) -> Mapping[int, str]:
        pairs = Pairs(table, begun)
        with pq.ParquetWriter(path, _file_schema(table)) as file:
            for found in matches(folder, there, pairs.wanted):
                numbers, answers = pairs.take(found)
                if len(numbers):
                    by_run = pc.is_in(answers["run_id"], value_set=own)
                    file.write_table(
                        _lines(table, numbers, answers["outcome"], answers["response"], by_run)
                    )
            missing, message = pairs.missing(compacted=lambda: _compacted_since(folder, begun))
            unknown = pa.nulls(len(missing), pa.string()), pa.nulls(len(missing), pa.bool_())
            file.write_table(_lines(table, missing, pa.array(message, pa.string()), *unknown))
        return pairs.instead()

    return read_contents(folder, write)


def _compacted_since(folder: LedgerFolder, begun: int) -> bool:
    """Returns whether a compaction completed since then. Lists again: a compaction may have come
    while the files were read.
    """
    generation = newest_generation(folder)
    return generation is not None and generation.completed_at > begun


def _file_schema(table: pa.Table) -> pa.Schema:
    kept = [field for field in table.schema if field.name not in (TEXT, BY_LEDGER)]
    return pa.schema(
        [
            pa.field(PAIR, pa.int64()),
            *kept,
            pa.field(OUTCOME, pa.string()),
            pa.field(RESPONSE, pa.string()),
            pa.field(BY_RUN, pa.bool_()),
        ]
    )


def _lines(table: pa.Table, pairs: Ints, outcomes: Any, responses: Any, by_run: Any) -> pa.Table:
    kept = table.drop_columns([TEXT, BY_LEDGER]).take(pa.array(pairs))
    kept = kept.add_column(0, PAIR, pa.array(pairs))
    for name, values in ((OUTCOME, outcomes), (RESPONSE, responses), (BY_RUN, by_run)):
        kept = kept.append_column(name, values)
    return kept.cast(_file_schema(table))
