"""`diff`: compares the rows of two versions of a day, without holding their values in memory.

A first pass makes two digests of each row: of what identifies it and of its values. Only the values
of rows whose digests differ are read again, a column at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.arrow_values import Numbers, conform, digest
from jobs.commands.diffing.day_version import DayVersion, find_versions
from jobs.ledger.keys import shown_json
from jobs.schema import columns as schema
from jobs.schema.facts import Facts
from jobs.storage.parquet_files import open_parquet, read_schema
from jobs.tables.publishing import published_columns

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment
    from jobs.schema.records import DayRecord

ROWS_AT_ONCE = 1 << 17
EXAMPLES = 3  # of each column, and of rows that are added or removed
HIDDEN = "***"


@dataclass(frozen=True)
class ColumnChange(Facts):
    """How many cells of a column differ, with the first of them."""

    column: str
    cells: int
    examples: tuple[dict[str, Any], ...]  # row, from, to; personal values are ***


@dataclass(frozen=True)
class Side(Facts):
    """A version of the day."""

    version: int | None
    run_id: str
    rows: int
    outcomes: dict[str, dict[str, int]]  # lookup -> outcome -> rows
    checks: dict[str, str]  # check -> passed, failed or not_run; empty: its record is not here
    calls: int | None
    cost: dict[str, str]  # by currency, as "0.1600"


@dataclass(frozen=True)
class Difference(Facts):
    """Two versions of a day."""

    enrichment: str
    day: str
    before: Side
    after: Side
    matched_by: tuple[str, ...]  # the columns that identify a row
    added: int
    removed: int
    unchanged: int
    changed: int  # rows with another value in a column of both
    columns: tuple[ColumnChange, ...]  # with changed cells, in the order of the table
    new_columns: tuple[str, ...]
    lost_columns: tuple[str, ...]
    added_rows: tuple[dict[str, Any], ...]  # the first, by identity
    removed_rows: tuple[dict[str, Any], ...]


def diff(
    enrichment: Enrichment, day: str, first: str | None = None, last: str | None = None
) -> Difference:
    """Compare two versions of a day; the same versions always give the same result.

    Args:
        enrichment: The enrichment.
        day: The day.
        first: A version of the table or a run of the day; by default the publication before.
        last: Likewise; by default the last publication.

    Raises:
        DeclarationError: A version does not exist, or its files are removed.
    """
    return compare(enrichment, day, *find_versions(enrichment, day, first, last))


def compare(enrichment: Enrichment, day: str, before: DayVersion, after: DayVersion) -> Difference:
    """Compare two versions of a day whose files are there."""
    matched = _Matched(enrichment, before, after)
    columns = [matched.changes(name) for name in matched.columns]
    return Difference(
        enrichment.name,
        day,
        _side(enrichment, before, matched.before),
        _side(enrichment, after, matched.after),
        tuple(matched.identity),
        len(matched.added),
        len(matched.removed),
        len(matched.pairs[0]) - len(matched.changed[0]),
        len(matched.changed[0]),
        tuple(change for change in columns if change.cells),
        tuple(name for name in matched.after.names if name.lower() not in matched.before.types),
        tuple(name for name in matched.before.names if name.lower() not in matched.after.types),
        tuple(matched.rows(matched.after, matched.added[:EXAMPLES], matched.identity)),
        tuple(matched.rows(matched.before, matched.removed[:EXAMPLES], matched.identity)),
    )


Places = npt.NDArray[np.int64]


class _Rows:
    """The rows of a version, numbered in the order of its files.

    Attributes:
        names: The published columns.
        types: Their types by their names in lower case.
    """

    def __init__(self, version: DayVersion) -> None:
        self.files = version.files
        schemas = [read_schema(file) for file in self.files]
        declared = version.record.facts if version.record else None
        shown = None if declared is None else {n.lower() for n in published_columns(declared)}
        self.types: dict[str, pa.DataType] = {}
        self.names: list[str] = []
        for field in (field for one in schemas for field in one):
            name = field.name.lower()
            is_shown = field.name[0] != "_" if shown is None else name in shown
            if is_shown and name not in self.types:
                self.names.append(field.name)
                self.types[name] = field.type

    def batches(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """Yield these columns; null where a file lacks one."""
        for file in self.files:
            with open_parquet(file) as opened:
                own = {name.lower(): name for name in opened.schema_arrow.names}
                there = [own[name.lower()] for name in columns if name.lower() in own]
                for batch in opened.iter_batches(ROWS_AT_ONCE, columns=there):
                    yield [
                        batch.column(own[name.lower()])
                        if name.lower() in own
                        else pa.nulls(batch.num_rows, self.types.get(name.lower(), pa.null()))
                        for name in columns
                    ]

    def digests(self, columns: Sequence[str], types: Sequence[pa.DataType] = ()) -> Numbers:
        found = [
            np.broadcast_to(digest(map(_typed, batch, types or [None] * len(batch))), len(batch[0]))
            for batch in self.batches(columns)
        ]
        return np.concatenate([np.zeros(0, np.uint64), *found])

    def take(self, columns: Sequence[str], places: Places) -> list[dict[str, Any]]:
        """Return these rows, which are in ascending order."""
        found: list[dict[str, Any]] = []
        start = 0
        for batch in self.batches(columns) if len(places) else ():
            end = start + len(batch[0])
            here = pa.array(places[(places >= start) & (places < end)] - start)
            values = [column.take(here).to_pylist() for column in batch]
            found += [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
            start = end
            if len(found) == len(places):
                break
        return found


def _typed(column: pa.Array, kind: pa.DataType | None) -> pa.Array:
    try:
        return column if kind is None else conform(column, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # so all its cells differ
        return column


class _Matched:
    """The rows of two versions, matched by identity, in the order of the later version."""

    def __init__(self, enrichment: Enrichment, before: DayVersion, after: DayVersion) -> None:
        self.personal = {name.lower() for name in enrichment.pii}
        self.hidden = {
            column.name.lower()
            for lookup in enrichment.lookups
            if lookup.reads(enrichment.pii)
            for column in lookup.columns
        }
        self.before, self.after = _Rows(before), _Rows(after)
        self.columns = [name for name in self.after.names if name.lower() in self.before.types]
        self.identity = [*enrichment.input.row_id] or [*schema.SOURCE_IDENTITY]
        ids = self.before.digests(self.identity), self.after.digests(self.identity)
        if any(len(np.unique(one)) < len(one) for one in ids):
            self.identity = list(dict.fromkeys([*self.identity, *schema.SOURCE_IDENTITY]))
            ids = self.before.digests(self.identity), self.after.digests(self.identity)
        _, old, new = np.intersect1d(*ids, return_indices=True)
        order = np.argsort(new, kind="stable")
        self.pairs: tuple[Places, Places] = old[order], new[order]
        self.removed: Places = np.setdiff1d(np.arange(len(ids[0])), old)
        self.added: Places = np.setdiff1d(np.arange(len(ids[1])), new)
        differs = self._differs(self.columns, self.pairs)
        self.changed: tuple[Places, Places] = self.pairs[0][differs], self.pairs[1][differs]

    def _differs(
        self, columns: Sequence[str], pairs: tuple[Places, Places]
    ) -> npt.NDArray[np.bool_]:
        types = [self.after.types[name.lower()] for name in columns]
        old, new = (rows.digests(columns, types) for rows in (self.before, self.after))
        found: npt.NDArray[np.bool_] = old[pairs[0]] != new[pairs[1]]
        return found

    def changes(self, column: str) -> ColumnChange:
        if not len(self.changed[0]):
            return ColumnChange(column, 0, ())
        differs = self._differs([column], self.changed)
        first = [places[differs][:EXAMPLES] for places in self.changed]
        names = [*dict.fromkeys([*self.identity, column])]
        new = self.rows(self.after, first[1], names)
        order = np.argsort(first[0])
        old = self.rows(self.before, first[0][order], [column])
        olds = {int(place): row[column] for place, row in zip(order, old, strict=True)}
        examples = tuple(
            {
                "row": {name: row[name] for name in self.identity},
                "from": olds[number],
                "to": row[column],
            }
            for number, row in enumerate(new)
        )
        return ColumnChange(column, int(differs.sum()), examples)

    def rows(self, side: _Rows, places: Places, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        for row in side.take(columns, places):
            yield {
                name: HIDDEN if name.lower() in self.personal | self.hidden else shown_json(value)
                for name, value in row.items()
            }


def _side(enrichment: Enrichment, version: DayVersion, rows: _Rows) -> Side:
    outcomes: dict[str, dict[str, int]] = {}
    count = 0
    for lookup in enrichment.lookups:
        name = schema.published_status(lookup.name)
        if name.lower() in rows.types:
            outcomes[lookup.name] = {}
    names = [schema.published_status(name) for name in outcomes]
    for batch in rows.batches(names or [schema.PARTITION]):
        count += len(batch[0])
        for found, column in zip(outcomes.values(), batch, strict=bool(names)):
            for one in pc.value_counts(column).to_pylist():
                found[one["values"]] = found.get(one["values"], 0) + one["counts"]
    record = version.record
    return Side(
        version.version,
        version.run_id,
        count,
        outcomes,
        {} if record is None else {one.check: one.status for one in record.verdicts},
        None if record is None else sum(one.calls for one in record.figures.lookups),
        {} if record is None else _cost(record),
    )


def _cost(record: DayRecord) -> dict[str, str]:
    cost: dict[str, Decimal] = {}
    for one in (one.billed for one in record.figures.lookups if one.billed is not None):
        cost[one.currency] = cost.get(one.currency, Decimal(0)) + Decimal(one.cost)
    return {currency: f"{money:f}" for currency, money in sorted(cost.items())}
