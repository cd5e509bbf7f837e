"""Reads the stored answers of some keys, and maps them again, for the checks.

It holds each key and answer time once, about 200 bytes and the length of the key. A response is
mapped as it is found, and not kept.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.clients.registry import client_for
from jobs.declare.lookup import Lookup
from jobs.ledger.answers import StoredAnswer, only_answers
from jobs.ledger.generations import Contents, newest_generation, read_contents
from jobs.ledger.keys import key_hashes
from jobs.ledger.plan import LedgerPlan, run_of_keys
from jobs.ledger.resolution import NEVER, Ints, answer_times
from jobs.ledger.scan import KeySet, matches
from jobs.ledger.store import LedgerFolder
from jobs.run.keys.key_texts import TEXT, table_texts
from jobs.schema import columns as schema
from jobs.schema.columns import BY_LEDGER, BY_RUN, GONE, NONE
from jobs.task.rows.ledger_hits import UnreadableAnswer, map_stored_answer
from jobs.task.rows.outcome_columns import TIMESTAMP

CLOCKS = dt.timedelta(minutes=5)  # by which the clocks of a cluster's hosts may differ
AT, PAIR = "__at", "__pair"
MAPPED_AT_ONCE = 20_000  # responses, whose answers are Python objects for a moment


@dataclass(frozen=True)
class StoredAnswers:
    """Reads what the ledgers hold of a run's answers. Plain data, sent to tasks.

    Attributes:
        kept: The lookups with a ledger, by name.
        run_id: Of the run.
        started_at: Of the run, ISO 8601.
    """

    kept: Mapping[str, tuple[Lookup, LedgerPlan]]
    run_id: str
    started_at: str

    def __call__(self, name: str, pairs: pa.Table) -> pa.Table | None:
        """Return what the ledger holds of some keys and answer times of a lookup.

        The table has a row for each of them whose key has no null, with the columns schema.key,
        published_answered_at, published_status and the answers, as the stored response is mapped
        now. The status is ok, miss or error; schema.NONE if the ledger has no such answer, or had a
        newer answer before the run began, or if its response can no longer be mapped; schema.GONE
        if the ledger need not have it any more: it could not be kept, or a compaction since then
        replaced it by a newer answer. schema.BY_RUN says whether the run itself stored it.

        Args:
            name: The lookup.
            pairs: schema.key, published_answered_at, and schema.BY_LEDGER: whether all rows have
                this answer from the ledger.

        Returns:
            The table; None for a lookup that is not in `kept`.

        Raises:
            LedgerError: The ledger cannot be read.
        """
        if name not in self.kept:
            return None
        lookup, plan = self.kept[name]
        key = pairs[schema.key(name)].combine_chunks()
        at = pairs[schema.published_answered_at(name)]
        # names that collide with no other
        parts = [f"__part_{number}" for number in range(key.type.num_fields)]
        wanted = pa.table([*key.flatten(), at, pairs[BY_LEDGER]], [*parts, AT, BY_LEDGER])
        wanted = wanted.drop_null().combine_chunks()
        wanted = wanted.append_column(TEXT, table_texts(wanted, parts, hidden=plan.hidden))
        found = self._found(lookup, plan, wanted)
        rows = wanted.take(found[PAIR])
        names = [part.name for part in key.type]
        struct = pa.StructArray.from_arrays([rows[part].combine_chunks() for part in parts], names)
        found = found.append_column(schema.key(name), struct)
        return found.append_column(
            schema.published_answered_at(name), rows[AT].cast(TIMESTAMP)
        ).drop_columns([PAIR])

    def _found(self, lookup: Lookup, plan: LedgerPlan, wanted: pa.Table) -> pa.Table:
        """Return the status, answers and BY_RUN of each of these pairs, by PAIR."""
        folder, run_ids = plan.open_folder(), pa.array([self.run_id, run_of_keys(self.run_id)])
        started = dt.datetime.fromisoformat(self.started_at) - CLOCKS
        begun = round(started.timestamp() * 1e6)
        mapped = _Mapping(lookup)

        def read(contents: Contents) -> pa.Table:
            pairs, tables = Pairs(wanted, begun), [mapped.nothing([], [], [])]
            for found in matches(folder, contents, pairs.wanted):
                numbers, answers = pairs.take(found)
                for first in range(0, len(numbers), MAPPED_AT_ONCE):
                    some = answers.slice(first, MAPPED_AT_ONCE)
                    by_run = pc.is_in(some["run_id"], value_set=run_ids)
                    of_some = numbers[first : first + MAPPED_AT_ONCE]
                    tables.append(mapped.answers(of_some, some, by_run))
            missing, status = pairs.missing(compacted=lambda: _compacted_since(folder, begun))
            stored, instead = pa.concat_tables(tables), pairs.instead()
            if not instead:  # a filter copies all answers
                return pa.concat_tables(
                    [stored, mapped.nothing(missing, status, [None] * len(status))]
                )
            is_replaced = pc.is_in(stored[PAIR], value_set=pa.array([*instead], pa.int64()))
            replaced = stored.filter(is_replaced)
            numbers = replaced[PAIR].to_pylist()
            by_run = replaced[BY_RUN].to_pylist()
            return pa.concat_tables(
                [
                    stored.filter(pc.invert(is_replaced)),
                    mapped.nothing(numbers, [instead[number] for number in numbers], by_run),
                    mapped.nothing(missing, status, [None] * len(status)),
                ]
            )

        return read_contents(folder, read)


class Pairs:
    def __init__(self, table: pa.Table, begun: int) -> None:
        """Number pairs of a key and an answer time, without an answer yet.

        Args:
            table: TEXT, AT and BY_LEDGER of each pair.
            begun: When the run began by the slowest clock, which is CLOCKS before its start, in µs
                since the epoch.
        """
        self.table = table
        self.begun = begun
        self.wanted = KeySet(table[TEXT])
        self._places: Ints = self.wanted.places(table[TEXT]).to_numpy()
        self._times: Ints = table[AT].cast(pa.int64()).to_numpy()
        self._moments, moments = np.unique(self._times, return_inverse=True)
        codes = self._codes(self._places, moments)
        self._order = np.argsort(codes)
        self._sorted = codes[self._order]
        self._newest = np.full(len(self.wanted), NEVER, np.int64)  # of all answers of a key
        self._newest_before = self._newest.copy()  # of answers before the run
        self._seen = np.zeros(table.num_rows, np.bool_)
        self._hashes = np.zeros(table.num_rows, np.uint64)  # of the responses
        self._unsure: set[int] = set()  # two answers of a key in the same µs

    def _codes(self, places: Ints, moments: Ints) -> Ints:
        return places * len(self._moments) + moments

    def take(self, found: pa.Table) -> tuple[Ints, pa.Table]:
        """Note answers of the keys. Returns the new answers, with the numbers of their pairs.

        Args:
            found: Answers as `matches` yields them.
        """
        found = only_answers(found)
        places, times = found["place"].to_numpy(), answer_times(found)
        before = times <= self.begun
        np.maximum.at(self._newest, places, times)
        np.maximum.at(self._newest_before, places[before], times[before])
        # np.isin would sort the moments for each table
        moments = np.minimum(np.searchsorted(self._moments, times), len(self._moments) - 1)
        hit = self._moments[moments] == times
        where = np.searchsorted(self._sorted, codes := self._codes(places[hit], moments[hit]))
        matches = self._sorted[np.minimum(where, len(self._sorted) - 1)] == codes
        pairs: Ints = self._order[where[matches]]
        found = found.filter(pa.array(hit)).filter(pa.array(matches))
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
        """Return the pairs without an answer, each with NONE or GONE.

        Args:
            compacted: Returns whether a compaction came since the run began.
        """
        pairs: Ints = np.flatnonzero(~self._seen)
        if not len(pairs):
            return pairs, []
        newest = self._newest[self._places[pairs]]
        by_ledger = self.table[BY_LEDGER].to_numpy()[pairs]
        never_kept = ~by_ledger & (newest <= self.begun)
        replaced = compacted() & ((newest > self._times[pairs]) | (newest == NEVER))
        return pairs, np.where(never_kept | replaced, GONE, NONE).tolist()

    def instead(self) -> dict[int, str]:
        """Return for some pairs what counts instead of the found answer."""
        older = self._seen & (self._times < self._newest_before[self._places])
        return dict.fromkeys(np.flatnonzero(older).tolist(), NONE) | dict.fromkeys(
            self._unsure, GONE
        )


class _Mapping:
    """Maps the responses of a lookup."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup, self._client = lookup, client_for(lookup, 1)
        self._status = schema.published_status(lookup.name)

    def answers(self, pairs: Ints, stored: pa.Table, by_run: pa.Array) -> pa.Table:
        replies = [
            self._reply(outcome, response)
            for outcome, response in zip(
                stored["outcome"].to_pylist(), stored["response"].to_pylist(), strict=True
            )
        ]
        nothing = (None,) * len(self._lookup.columns)
        values = list(zip(*(answer or nothing for _, answer in replies), strict=True))
        return self._table(pairs, [status for status, _ in replies], by_run, values)

    def nothing(self, pairs: Any, statuses: list[str], by_run: Any) -> pa.Table:
        """Return pairs without an answer."""
        return self._table(pairs, statuses, pa.array(by_run, pa.bool_()), [])

    def _table(self, pairs: Any, statuses: Any, by_run: Any, values: Any) -> pa.Table:
        columns: dict[str, Any] = {
            PAIR: pa.array(pairs, pa.int64()),
            self._status: pa.array(statuses, pa.string()),
            BY_RUN: by_run,
        }
        values = values or [[None] * len(columns[PAIR])] * len(self._lookup.columns)
        for column, of_column in zip(self._lookup.written, values, strict=True):
            columns[column.name] = pa.array(of_column, column.arrow_type)
        return pa.table(columns)

    def _reply(self, outcome: Any, response: str | None) -> tuple[str, Any]:
        data = None if response is None else response.encode()
        try:
            reply = map_stored_answer(self._client, StoredAnswer("", outcome, data, 0, ""))
        except UnreadableAnswer:
            return NONE, None
        return reply.outcome or NONE, reply.answer


def _compacted_since(folder: LedgerFolder, begun: int) -> bool:
    """Return whether a compaction completed since then. Lists again: a compaction may have come
    while the files were read.
    """
    generation = newest_generation(folder)
    return generation is not None and generation.completed_at > begun
