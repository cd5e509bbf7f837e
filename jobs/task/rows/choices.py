"""Chooses the vendor of each row of a waterfall, and gives its answer to the published columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.arrow_values import one_chunk
from jobs.input.keys.key_values import Values
from jobs.schema.columns import FAILED, HAS_ANSWER, published_answered_at, published_status
from jobs.schema.records import ChoiceFacts

NOBODY = -1


@dataclass(frozen=True)
class Choice:
    """A waterfall for a task. Plain data, sent to the executors.

    Attributes:
        facts: As declared.
        accepts: By vendor: whether its answer is accepted, over its columns.
        kinds: The types of the answer's columns.
    """

    facts: ChoiceFacts
    accepts: tuple[Values, ...]
    kinds: tuple[pa.DataType, ...]

    def columns(self, written: Mapping[str, Any], rows: int) -> dict[str, pa.Array]:
        """Return the columns that readers see, from those of the vendors."""
        facts = self.facts
        statuses = [one_chunk(written[published_status(vendor)]) for vendor in facts.vendors]
        accepted = [
            _flags(pc.is_in(status, pa.array(HAS_ANSWER))) & self._accepts(place, written, rows)
            for place, status in enumerate(statuses)
        ]
        answer, outcome = choose_vendors(statuses, accepted, rows)
        found = {}
        for name, _ in facts.columns:
            of_vendors = [one_chunk(written[f"{vendor}_{name}"]) for vendor in facts.vendors]
            found[name] = _taken(of_vendors, answer)
        times = [one_chunk(written[published_answered_at(vendor)]) for vendor in facts.vendors]
        found[facts.status] = _taken(statuses, outcome)
        found[facts.answered_at] = _taken(times, outcome)
        found[facts.vendor] = pa.array(facts.vendors).take(pa.array(answer, mask=answer < 0))
        return found

    def _accepts(self, place: int, written: Mapping[str, Any], rows: int) -> np.ndarray:
        values = self.accepts[place]
        columns = {name: one_chunk(written[name]) for name in values.reads}
        return _flags(values.evaluate(columns, rows))


def choose_vendors(
    statuses: Sequence[pa.Array], accepted: Sequence[np.ndarray], rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return by row the place of the vendor whose answer counts, or NOBODY, and of the vendor whose
    status does.

    The first accepted answer counts; else the status of the first failure; else the last answer;
    else the status of the last vendor that was asked.
    """
    answer, outcome = np.full(rows, NOBODY), np.full(rows, 0)
    is_open = np.ones(rows, np.bool_)
    answered = [_flags(pc.is_in(status, pa.array(HAS_ANSWER))) for status in statuses]
    failed = [_flags(pc.is_in(status, pa.array((*FAILED, "not_asked")))) for status in statuses]
    asked = [_flags(pc.not_equal(status, "skipped")) for status in statuses]
    backwards = range(len(statuses) - 1, -1, -1)
    for place, applies, has_answer in (
        *((place, accepted[place], True) for place in range(len(statuses))),
        *((place, failed[place], False) for place in range(len(statuses))),
        *((place, answered[place], True) for place in backwards),
        *((place, asked[place], False) for place in backwards),
    ):
        chosen = is_open & applies
        outcome[chosen] = place
        if has_answer:
            answer[chosen] = place
        is_open &= ~chosen
    return answer, outcome


def _taken(columns: Sequence[pa.Array], places: np.ndarray) -> pa.Array:
    rows = len(places)
    lines = np.maximum(places, 0) * rows + np.arange(rows)
    return pa.concat_arrays(columns).take(pa.array(lines, mask=places < 0))


def _flags(values: pa.Array) -> np.ndarray:
    found: np.ndarray = pc.fill_null(values, fill_value=False).to_numpy(zero_copy_only=False)
    return found
