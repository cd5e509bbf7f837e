"""Groups a lookup's rows by key, answer time and answer, and compares the groups with the ledger.

A place is a number of key and answer time. Groups are sorted by place, so that the groups of all
parts of a day can be compared some places at a time.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data_quality.findings import ROWS_OF_EVIDENCE
from data_quality.rows.run_output import Flags, Places, TaskRows, as_array, flags
from jobs.arrow_values import Numbers, digest
from jobs.schema import columns as schema
from jobs.schema.columns import BY_LEDGER, BY_RUN, GONE, INPUT_SEQ, PARTITION
from jobs.schema.records import LookupFacts
from jobs.storage.new_files import new_file
from jobs.storage.parquet_files import open_parquet
from jobs.storage.urls import below

PLACES_AT_ONCE = 1_000_000  # in memory, about 200 bytes each and the length of the key
SKETCHED = 1024  # the lowest places of a part, by which the number of all places is estimated
NEVER = np.iinfo(np.int64).max
ANSWER, PLACE = "answer", "place"
COUNTS = ("rows", "called", "asked", "known")  # all; by call; by call or shared; from the ledger
FIRSTS = ("first", "first_asked", "first_known")  # the first row among those counted
_SEQ_BITS = 40

Pair = tuple[int, int]  # place and answer
Between = tuple[int, int]  # the first place, and the place after the last


def number_places(table: pa.Table, lookup: LookupFacts) -> Numbers:
    key = as_array(table[schema.key(lookup.name)])
    return _number_rows(
        digest([*key.flatten(), as_array(table[schema.published_answered_at(lookup.name)])]), table
    )


def number_answers(table: pa.Table, lookup: LookupFacts) -> Numbers:
    names = [schema.published_status(lookup.name), *(column for column, _ in lookup.returns)]
    return _number_rows(digest([as_array(table[name]) for name in names]), table)


def _number_rows(numbers: Numbers, table: pa.Table) -> Numbers:
    return numbers if len(numbers) == len(table) else np.resize(numbers, len(table))


@dataclass(frozen=True)
class AnsweredRows:
    """The rows with an answer among some rows of a task.

    Attributes:
        at: Their places among these rows.
        places: Of each, by key and answer time.
        answers: A number of each answer.
        sources: By the names of COUNTS, which of them are counted.
    """

    at: Places
    places: Numbers
    answers: Numbers
    sources: dict[str, Flags]

    @classmethod
    def of(cls, rows: TaskRows, lookup: LookupFacts) -> AnsweredRows:
        published, at = schema.published_status(lookup.name), _answered_at(lookup)
        wanted = rows.one_of(published, "ok", "miss") & ~rows.is_null(at)
        names = [schema.key(lookup.name), at, published, *(name for name, _ in lookup.returns)]
        some = rows.table.select(names).filter(pa.array(wanted))
        source = schema.source(lookup.name)
        return cls(
            np.flatnonzero(wanted),
            number_places(some, lookup),
            number_answers(some, lookup),
            {
                "rows": np.ones(len(some), np.bool_),
                "called": rows.one_of(source, "call")[wanted],
                "asked": rows.one_of(source, "call", "shared")[wanted],
                "known": rows.one_of(source, "ledger")[wanted],
            },
        )

    def grouped(self, rows: TaskRows, lookup: LookupFacts, *, in_turn: bool) -> pa.Table:
        """Returns a row for each place and answer. in_turn: whether rows have PARTITION and
        INPUT_SEQ.
        """
        turn = np.zeros(len(self.at), np.int64)
        if in_turn:
            task, seq = (
                np.nan_to_num(rows.numbers(name)[self.at], nan=-1).astype(np.int64) + 1
                for name in (PARTITION, INPUT_SEQ)
            )
            turn = (task << _SEQ_BITS) + seq
        counts = {name: which.astype(np.int64) for name, which in self.sources.items()}
        firsts = {
            name: np.where(self.sources[counted], turn, NEVER)
            for name, counted in zip(FIRSTS, ("rows", "asked", "known"), strict=True)
        }
        numbers = {PLACE: self.places, ANSWER: self.answers, **counts, **firsts}
        key = rows.table.select([schema.key(lookup.name), _answered_at(lookup)])
        return _merged(
            pa.table([*map(pa.array, numbers.values())], [*numbers]), key.take(pa.array(self.at))
        )


def _answered_at(lookup: LookupFacts) -> str:
    return schema.published_answered_at(lookup.name)


def merged(groups: Sequence[pa.Table]) -> pa.Table:
    """Returns the groups of several parts as those of a single part."""
    together = pa.concat_tables(groups)
    names = [PLACE, ANSWER, *COUNTS, *FIRSTS]
    return _merged(together.select(names), together.drop_columns(names))


def _merged(numbers: pa.Table, keys: pa.Table) -> pa.Table:
    columns = {name: as_array(numbers[name]).to_numpy() for name in numbers.column_names}
    order = np.lexsort([columns[ANSWER], columns[PLACE]])
    starts = _starts(columns[PLACE][order], columns[ANSWER][order])
    chosen = order[starts]
    found = {name: columns[name][chosen] for name in (PLACE, ANSWER)}
    for names, together in ((COUNTS, np.add), (FIRSTS, np.minimum)):
        for name in names:
            values = columns[name][order]
            found[name] = together.reduceat(values, starts) if len(starts) else values
    result = pa.table([*map(pa.array, found.values())], [*found])
    of_keys = keys.take(pa.array(chosen))
    for name in of_keys.column_names:
        result = result.append_column(name, of_keys[name])
    return result


def _starts(*columns: NDArray[np.generic]) -> NDArray[np.intp]:
    """Returns where the values of sorted columns differ from those of the row before."""
    differs = np.zeros(len(columns[0]), np.bool_)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


@dataclass(frozen=True)
class StoredGroups:
    """The groups of a part, in memory or in a file. sketch: the lowest places."""

    sketch: Numbers
    table: pa.Table | None
    file: str = ""

    @classmethod
    def of(
        cls, groups: pa.Table, folder: str | None, token: Callable[[int], str] = secrets.token_hex
    ) -> StoredGroups:
        """folder: gets the file; None keeps the groups in memory."""
        places = as_array(groups[PLACE]).to_numpy()
        lowest = places[_starts(places)][:SKETCHED]
        if folder is None:
            return cls(lowest, groups)
        file = below(folder, f"groups-{token(8)}.parquet")
        with new_file(file) as target:
            pq.write_table(groups, target, row_group_size=50_000, compression="lz4")
        return cls(lowest, None, file)

    def read(self, between: Between) -> Iterator[pa.Table]:
        """Yields the groups of these places."""
        if self.table is not None:
            yield _between(self.table, between)
            return
        with open_parquet(self.file) as file:
            for number in range(file.num_row_groups):
                counted = file.metadata.row_group(number).column(0).statistics
                # a group without rows has none
                if counted and counted.max >= between[0] and counted.min < between[1]:
                    yield _between(file.read_row_group(number), between)


def _between(groups: pa.Table, between: Between) -> pa.Table:
    places = as_array(groups[PLACE]).to_numpy()
    first = int(np.searchsorted(places, np.uint64(between[0])))
    end = len(places)
    if between[1] <= np.iinfo(np.uint64).max:
        end = int(np.searchsorted(places, np.uint64(between[1])))
    return groups.slice(first, end - first)


def divide_places(parts: Sequence[StoredGroups]) -> list[Between]:
    """Returns ranges of places, each with about PLACES_AT_ONCE places of these parts at most."""
    lowest = np.unique(np.concatenate([np.zeros(0, np.uint64), *(one.sketch for one in parts)]))
    count = len(lowest)
    if count >= SKETCHED and any(len(one.sketch) == SKETCHED for one in parts):
        count = math.ceil(SKETCHED * 2**64 / (int(lowest[SKETCHED - 1]) + 1))
    ranges = max(1, math.ceil(count / PLACES_AT_ONCE))
    return [(one * 2**64 // ranges, (one + 1) * 2**64 // ranges) for one in range(ranges)]


@dataclass(frozen=True)
class WrongRows:
    """Rows at fault: their number, and the groups of the first, each with its first row's turn."""

    count: int = 0
    first: tuple[tuple[int, Pair], ...] = ()

    @classmethod
    def together(cls, parts: Sequence[WrongRows]) -> WrongRows:
        # of so many groups at least, one of the first rows at fault is the first row
        first = sorted(group for part in parts for group in part.first)[:ROWS_OF_EVIDENCE]
        return cls(sum(part.count for part in parts), tuple(first))

    @property
    def pairs(self) -> set[Pair]:
        return {pair for _, pair in self.first}


@dataclass(frozen=True)
class Compared:
    """The comparison of some groups with the stored answers.

    Attributes:
        known: Whether anything is stored.
        gone: Rows whose stored response may be gone.
        unlike: Rows whose answer is not the one of their place.
        foreign: Rows with an answer of a call of this run, which another run stored.
        called_too: Rows with an answer from the ledger, which another row's call stored.
    """

    known: bool = False
    gone: int = 0
    unlike: WrongRows = WrongRows()
    foreign: WrongRows = WrongRows()
    called_too: WrongRows = WrongRows()

    @classmethod
    def together(cls, parts: Sequence[Compared]) -> Compared:
        return cls(
            any(part.known for part in parts),
            sum(part.gone for part in parts),
            WrongRows.together([part.unlike for part in parts]),
            WrongRows.together([part.foreign for part in parts]),
            WrongRows.together([part.called_too for part in parts]),
        )


def compare(
    groups: pa.Table, lookup: LookupFacts, stored: Callable[[str, pa.Table], pa.Table | None] | None
) -> Compared:
    """Compares groups, of which no other has their places, with the stored answers.

    Without a stored answer, two calls that ended in the same µs may have different answers.
    """
    columns = {name: as_array(groups[name]).to_numpy() for name in groups.column_names[:9]}
    places, answers, rows = columns[PLACE], columns[ANSWER], columns["rows"]
    if not len(places):
        return Compared()
    starts = _starts(places)
    of_place = np.cumsum(np.isin(np.arange(len(places)), starts, assume_unique=True)) - 1

    def summed(values: Places) -> Places:
        return np.add.reduceat(values, starts)

    calls, known = summed(columns["called"]), summed(columns["known"])
    kept = _StoredAnswers.of(_pairs(groups, starts, known == summed(rows)), lookup, stored)
    right, there, gone = kept.at(places[starts])
    own, foreign = kept.stored_by(places[starts])
    lowest, highest = answers[starts], answers[np.append(starts[1:], len(answers)) - 1]
    settled = there & ~gone & (lowest == right) & (highest == right)
    unlike = ~np.where(gone, (lowest == highest) | (calls > 1), settled)
    most = np.maximum.reduceat(rows, starts)[of_place]
    fewer = (rows < most) | (summed((rows == most).astype(np.int64)) > 1)[of_place]
    wrong = np.where(gone[of_place], fewer, (answers != right[of_place]) | ~there[of_place])
    called_too = (own & (calls > 0))[of_place] & (columns["known"] > 0)

    def at_fault(which: Flags, counted: str, first: str) -> WrongRows:
        some = np.flatnonzero(which)
        turns = columns[first][some]
        some = some[np.argsort(turns, kind="stable")[:ROWS_OF_EVIDENCE]]
        named = zip(*(columns[name][some].tolist() for name in (first, PLACE, ANSWER)), strict=True)
        return WrongRows(
            int(columns[counted][which].sum()),
            tuple((turn, (place, answer)) for turn, place, answer in named),
        )

    return Compared(
        kept.known,
        int(rows[gone[of_place]].sum()),
        at_fault(unlike[of_place] & wrong, "rows", "first"),
        at_fault(foreign[of_place] & (columns["asked"] > 0), "asked", "first_asked"),
        at_fault(called_too, "known", "first_known"),
    )


def _pairs(groups: pa.Table, starts: NDArray[np.intp], by_ledger: Flags) -> pa.Table:
    keys = groups.select(groups.column_names[9:]).take(pa.array(starts))
    return keys.append_column(BY_LEDGER, pa.array(by_ledger))


@dataclass(frozen=True)
class _StoredAnswers:
    """The stored answer of each place, by place; nothing is known without a table."""

    known: bool
    places: Numbers
    answers: Numbers
    gone: Flags
    by_run: Flags
    by_other: Flags

    @classmethod
    def of(
        cls,
        pairs: pa.Table,
        lookup: LookupFacts,
        stored: Callable[[str, pa.Table], pa.Table | None] | None,
    ) -> _StoredAnswers:
        try:
            table = None if stored is None else stored(lookup.name, pairs)
        except Exception as error:
            # it proves nothing about the files, as an error of a disk does not
            raise OSError(str(error)) from error
        if table is None:
            none, nowhere = np.zeros(0, np.uint64), np.zeros(0, np.bool_)
            return cls(False, none, none, nowhere, nowhere, nowhere)
        places = number_places(table, lookup)
        order = np.argsort(places)
        gone = pc.equal(as_array(table[schema.published_status(lookup.name)]), GONE)
        by_run = as_array(table[BY_RUN])
        sides = (flags(which)[order] for which in (gone, by_run, pc.invert(by_run)))
        return cls(True, places[order], number_answers(table, lookup)[order], *sides)

    def at(self, places: Numbers) -> tuple[Numbers, Flags, Flags]:
        """Returns for each place the stored answer, whether it exists, whether it may be gone."""
        none = np.zeros(len(places), np.bool_)
        if not len(self.places):
            return np.zeros(len(places), np.uint64), none, none if self.known else ~none
        found, there = self._found(places)
        return self.answers[found], there, there & self.gone[found]

    def stored_by(self, places: Numbers) -> tuple[Flags, Flags]:
        """Returns for each place whether this run stored the answer, or whether another run did."""
        if not len(self.places):
            none = np.zeros(len(places), np.bool_)
            return none, none
        found, there = self._found(places)
        return there & self.by_run[found], there & self.by_other[found]

    def _found(self, places: Numbers) -> tuple[NDArray[np.intp], Flags]:
        found = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        return found, self.places[found] == places
