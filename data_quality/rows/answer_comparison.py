"""Compares a lookup's groups of rows with the stored answers of their keys and times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_quality.findings import ROWS_OF_EVIDENCE
from data_quality.rows.answer_groups import (
    ANSWER,
    NUMBERS,
    PLACE,
    find_starts,
    number_answers,
    number_places,
)
from data_quality.rows.task_rows import Flags, Places, flags
from jobs.arrow_values import Numbers, one_chunk
from jobs.schema import columns as schema
from jobs.schema.columns import BY_LEDGER, BY_RUN, GONE
from jobs.schema.records import LookupFacts

Pair = tuple[int, int]  # place and answer


@dataclass(frozen=True)
class WrongRows:
    """Rows at fault: their number, and the groups of the first, each with its first row's turn."""

    count: int = 0
    first: tuple[tuple[int, Pair], ...] = ()

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        # the first rows at fault are all in the groups whose first rows come first
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
        unlike: Rows whose answer is not that of their place.
        foreign: Rows with an answer of a call of this run, which another run stored.
        called_too: Rows with an answer from the ledger, which another row's call stored.
    """

    known: bool = False
    gone: int = 0
    unlike: WrongRows = WrongRows()
    foreign: WrongRows = WrongRows()
    called_too: WrongRows = WrongRows()

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
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
    """Compare groups, of which no other has their places, with the stored answers.

    Without a stored answer, two calls that ended in the same µs may have different answers.
    """
    columns = {name: one_chunk(groups[name]).to_numpy() for name in NUMBERS}
    places, answers, rows = columns[PLACE], columns[ANSWER], columns["rows"]
    if not len(places):
        return Compared()
    starts = find_starts(places)
    of_place = np.cumsum(np.isin(np.arange(len(places)), starts, assume_unique=True)) - 1

    def summed(values: Places) -> Places:
        return np.add.reduceat(values, starts)

    calls, known = summed(columns["called"]), summed(columns["known"])
    kept = _StoredAnswers.of(_pairs(groups, starts, known == summed(rows)), lookup, stored)
    right, is_stored, gone = kept.at(places[starts])
    by_run, foreign = kept.stored_by(places[starts])
    lowest, highest = answers[starts], answers[np.append(starts[1:], len(answers)) - 1]
    settled = is_stored & ~gone & (lowest == right) & (highest == right)
    unlike = ~np.where(gone, (lowest == highest) | (calls > 1), settled)
    most = np.maximum.reduceat(rows, starts)[of_place]
    fewer = (rows < most) | (summed((rows == most).astype(np.int64)) > 1)[of_place]
    wrong = np.where(gone[of_place], fewer, (answers != right[of_place]) | ~is_stored[of_place])
    called_too = (by_run & (calls > 0))[of_place] & (columns["known"] > 0)

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
    keys = groups.drop_columns(NUMBERS).take(pa.array(starts))
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
    ) -> Self:
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
        gone = pc.equal(one_chunk(table[schema.published_status(lookup.name)]), GONE)
        by_run = one_chunk(table[BY_RUN])
        sides = (flags(which)[order] for which in (gone, by_run, pc.invert(by_run)))
        return cls(True, places[order], number_answers(table, lookup)[order], *sides)

    def at(self, places: Numbers) -> tuple[Numbers, Flags, Flags]:
        """Return for each place the stored answer, whether it exists, whether it may be gone."""
        none = np.zeros(len(places), np.bool_)
        if not len(self.places):
            return np.zeros(len(places), np.uint64), none, none if self.known else ~none
        found, is_stored = self._found(places)
        return self.answers[found], is_stored, is_stored & self.gone[found]

    def stored_by(self, places: Numbers) -> tuple[Flags, Flags]:
        """Return for each place whether this run stored the answer, or whether another run did."""
        if not len(self.places):
            none = np.zeros(len(places), np.bool_)
            return none, none
        found, is_stored = self._found(places)
        return is_stored & self.by_run[found], is_stored & self.by_other[found]

    def _found(self, places: Numbers) -> tuple[NDArray[np.intp], Flags]:
        found = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        return found, self.places[found] == places
