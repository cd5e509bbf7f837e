"""Groups a lookup's answers by place (a number of key and answer time), with numbers of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from data_quality.rows.run_output import Flags, Places, as_array, flags
from jobs.arrow_values import Numbers, digest
from jobs.schema import columns as schema
from jobs.schema.columns import BY_RUN, GONE
from jobs.schema.records import LookupFacts


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
class AnswerGroups:
    """Groups of rows, sorted by place, with a single entry per place."""

    places: Numbers
    rows: Places
    calls: Places  # rows whose answer came by call
    lowest: Numbers  # answer; differs from the highest where the rows have several answers
    highest: Numbers

    @classmethod
    def of(cls, places: Numbers, answers: Numbers, by_call: Flags) -> AnswerGroups:
        return cls._grouped(
            places, np.ones(len(places), np.int64), by_call.astype(np.int64), answers, answers
        )

    def only(self, chosen: Flags) -> AnswerGroups:
        return AnswerGroups(
            self.places[chosen],
            self.rows[chosen],
            self.calls[chosen],
            self.lowest[chosen],
            self.highest[chosen],
        )

    @classmethod
    def together(cls, parts: Sequence[AnswerGroups]) -> AnswerGroups:
        if len(parts) == 1:
            return parts[0]
        names = ("places", "rows", "calls", "lowest", "highest")
        empty = cls.of(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.bool_))
        return cls._grouped(
            *(np.concatenate([getattr(part, name) for part in (empty, *parts)]) for name in names)
        )

    @classmethod
    def _grouped(
        cls, places: Numbers, rows: Places, calls: Places, lowest: Numbers, highest: Numbers
    ) -> AnswerGroups:
        order = np.argsort(places)
        ordered = places[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
        if not len(starts):
            return cls(places, rows, calls, lowest, highest)
        return cls(
            ordered[starts],
            np.add.reduceat(rows[order], starts),
            np.add.reduceat(calls[order], starts),
            np.minimum.reduceat(lowest[order], starts),
            np.maximum.reduceat(highest[order], starts),
        )


class StoredAnswers:
    """The stored answer of each place; empty without a table."""

    def __init__(self, table: pa.Table | None, lookup: LookupFacts) -> None:
        self.known = table is not None
        if table is None:
            self._places = self._answers = np.zeros(0, np.uint64)
            self._gone = self._own = self._foreign = np.zeros(0, np.bool_)
            return
        places = number_places(table, lookup)
        order = np.argsort(places)
        self._places, self._answers = places[order], number_answers(table, lookup)[order]
        status = np.array(table[schema.published_status(lookup.name)].to_pylist(), object)
        self._gone = (status == GONE)[order]
        by_run = as_array(table[BY_RUN]).take(pa.array(order))
        self._own, self._foreign = flags(by_run), flags(pc.invert(by_run))

    def at(self, places: Numbers) -> tuple[NDArray[np.uint64], Flags, Flags]:
        """Returns for each place the stored answer, whether it exists, whether it may be gone."""
        if not self.known:
            return (
                np.zeros(len(places), np.uint64),
                np.zeros(len(places), np.bool_),
                np.ones(len(places), np.bool_),
            )
        if not len(self._places):
            return np.zeros(len(places), np.uint64), *(np.zeros((2, len(places)), np.bool_))
        found, there = self._found(places)
        return self._answers[found], there, there & self._gone[found]

    def stored_by(self, places: Numbers) -> tuple[Flags, Flags]:
        """Returns for each place whether this run stored the answer, or whether another run did."""
        if not len(self._places):
            own, foreign = np.zeros((2, len(places)), np.bool_)
            return own, foreign
        found, there = self._found(places)
        return there & self._own[found], there & self._foreign[found]

    def _found(self, places: Numbers) -> tuple[NDArray[np.intp], Flags]:
        found = np.minimum(np.searchsorted(self._places, places), len(self._places) - 1)
        return found, self._places[found] == places

    def settled(self, groups: AnswerGroups) -> Flags:
        """Returns which groups have exactly the stored answer, so that no further row of their
        places changes the verdict.
        """
        stored, there, gone = self.at(groups.places)
        found: Flags = there & ~gone & (groups.lowest == stored) & (groups.highest == stored)
        return found

    def unlike(self, groups: AnswerGroups) -> tuple[Flags, Flags]:
        """Returns which groups have a wrong answer, and which a stored answer that may be gone.

        Without a stored answer, two calls that ended in the same µs may have different answers.
        """
        _, _, gone = self.at(groups.places)
        alike = (groups.lowest == groups.highest) | (groups.calls > 1)
        return ~np.where(gone, alike, self.settled(groups)), gone
