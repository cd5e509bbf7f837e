"""`diff`: compares the rows of two versions of a day, without holding their values in memory.

A first pass makes two digests of each row: of its identity and of its values. Only the values of
rows that differ are read again, a column at a time.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.arrow_values import (
    Numbers,
    conform,
    counts_by_value,
    digest,
    readable_values,
    without_views,
)
from jobs.commands.diffing.day_version import DayVersion, find_versions
from jobs.declare.enrichment import Enrichment
from jobs.input.staged_files import names_anywhere
from jobs.ledger.keys import masked_json
from jobs.schema import columns as schema
from jobs.schema.facts import Facts
from jobs.storage.parquet_files import naming_torn_file, open_parquet, read_footer
from jobs.tables.publishing import published_columns

ROWS_AT_ONCE = 1 << 17
EXAMPLES = 3  # of each column, and of rows that are added or removed
Places = npt.NDArray[np.int64]


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
    checks: dict[str, str]  # check -> passed, failed or not_run; empty without the run's record
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
    changed: int  # rows whose value differs in a shared column
    columns: tuple[ColumnChange, ...]  # with changed cells, in the order of the table
    new_columns: tuple[str, ...]
    lost_columns: tuple[str, ...]
    added_rows: tuple[dict[str, Any], ...]  # identity of the first ones, in file order
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
    """Compare two versions of a day whose files exist."""
    rows = _ComparedRows(enrichment, before, after)
    changes = [rows.changes(name) for name in rows.columns]
    return Difference(
        enrichment=enrichment.name,
        day=day,
        before=_side(enrichment, before, rows.before),
        after=_side(enrichment, after, rows.after),
        matched_by=tuple(rows.identity),
        added=len(rows.added),
        removed=len(rows.removed),
        unchanged=rows.unchanged,
        changed=len(rows.changed.after),
        columns=tuple(change for change in changes if change.cells),
        new_columns=tuple(name for name in rows.after.names if name not in rows.before),
        lost_columns=tuple(name for name in rows.before.names if name not in rows.after),
        added_rows=rows.examples(rows.after, rows.added),
        removed_rows=rows.examples(rows.before, rows.removed),
    )


class _Rows:
    """The rows of a version, numbered in the order of its files.

    Attributes:
        names: The published columns.
        types: Their types by their names in lower case.
        count: The number of rows.
    """

    def __init__(self, version: DayVersion) -> None:
        self.files = version.files
        footers = []
        for file in self.files:
            with naming_torn_file(file):
                footers.append(read_footer(file))
        self.count = sum(footer.num_rows for footer in footers)
        declared = version.record.facts if version.record else None
        published = None if declared is None else {n.lower() for n in published_columns(declared)}
        self.types: dict[str, pa.DataType] = {}
        self.names: list[str] = []
        for field in (field for footer in footers for field in footer.schema.to_arrow_schema()):
            name = field.name.lower()
            # without a record: names that do not begin with _, as internal columns do
            is_shown = field.name[0] != "_" if published is None else name in published
            if is_shown and name not in self.types:
                self.names.append(field.name)
                self.types[name] = field.type

    def __contains__(self, column: str) -> bool:
        return column.lower() in self.types

    def batches(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """Yield these columns; null where a file lacks a column."""
        for file in self.files if columns else ():
            with open_parquet(file) as opened:
                stored = {name.lower(): name for name in opened.schema_arrow.names}
                present = [stored[name.lower()] for name in columns if name.lower() in stored]
                for batch in opened.iter_batches(ROWS_AT_ONCE, columns=present):
                    yield [
                        names_anywhere(name, without_views(batch.column(stored[name.lower()])))
                        if name.lower() in stored
                        else pa.nulls(batch.num_rows, self.types.get(name.lower(), pa.null()))
                        for name in columns
                    ]

    def digests(self, columns: Sequence[str], types: Sequence[pa.DataType | None]) -> Numbers:
        """Return a digest of these columns for each row, after a cast to the types that fit."""
        digests = [
            np.broadcast_to(digest(map(_cast, batch, types)), len(batch[0]))
            for batch in self.batches(columns)
        ]
        return np.concatenate(digests) if digests else np.zeros(self.count, np.uint64)

    def take(self, columns: Sequence[str], places: Places) -> dict[int, dict[str, Any]]:
        """Return these columns of rows by their places."""
        taken: dict[int, dict[str, Any]] = {}
        start = 0
        for batch in self.batches(columns) if len(places) else ():
            end = start + len(batch[0])
            here = places[(places >= start) & (places < end)]
            values = [readable_values(column.take(pa.array(here - start))) for column in batch]
            for place, *row in zip(here.tolist(), *values, strict=True):
                taken[place] = dict(zip(columns, row, strict=True))
            start = end
            if len(taken) == len(places):
                break
        return taken


def _cast(column: pa.Array, kind: pa.DataType | None) -> pa.Array:
    try:
        return column if kind is None else conform(column, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # its values differ from all of `kind`
        return column


def _common_type(before: pa.DataType | None, after: pa.DataType | None) -> pa.DataType | None:
    """Return the wider type, so that a value equals itself in the other; else the later type."""
    if before is None or after is None or before == after or pa.types.is_nested(after):
        return after
    schemas = [pa.schema([("", kind)]) for kind in (before, after)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return after


class _Pairs(NamedTuple):
    """Rows of two versions: the row at each place of `before` is compared with that of `after`."""

    before: Places
    after: Places


class _ComparedRows:
    """The rows of two versions, compared with each other.

    Attributes:
        columns: The columns of both versions.
        identity: The columns that identify a row.
        unchanged: How many rows are equal.
        changed: The rows of equal identity that differ, in the order of the later version.
        removed: Rows that only the earlier version has, in its order.
        added: Rows that only the later version has, in its order.
    """

    def __init__(self, enrichment: Enrichment, before: DayVersion, after: DayVersion) -> None:
        self.hidden = enrichment.personal_columns.union(  # also of lookups that are gone
            *(
                version.record.facts.declared.personal
                for version in (before, after)
                if version.record
            )
        )
        self.before, self.after = _Rows(before), _Rows(after)
        self.columns = [name for name in self.after.names if name in self.before]
        row_id = enrichment.input.row_id
        filled = [rows for rows in (self.before, self.after) if rows.count]
        has_row_id = all(name in rows for rows in filled for name in row_id)
        self.identity = [*row_id] if row_id and has_row_id else [*schema.SOURCE_IDENTITY]
        ids = self._digests(self.identity)
        repeated = np.concatenate([_repeated(digests) for digests in ids])
        if len(repeated):
            self.identity = list(dict.fromkeys([*self.identity, *schema.SOURCE_IDENTITY]))
            before_ids, after_ids = (
                np.where(np.isin(digests, repeated), with_source, digests)
                for digests, with_source in zip(ids, self._digests(self.identity), strict=True)
            )
            ids = before_ids, after_ids
        rows = [
            digest([pa.array(identity), pa.array(values)])
            for identity, values in zip(ids, self._digests(self.columns), strict=True)
        ]
        # equal rows are paired first, so that as few rows as possible of an identity differ
        equal = _pair(*rows)
        self.unchanged = len(equal.after)
        earlier: Places = np.delete(np.arange(self.before.count), equal.before)
        later: Places = np.delete(np.arange(self.after.count), equal.after)
        changed = _pair(ids[0][earlier], ids[1][later])
        order = np.argsort(changed.after)
        self.changed = _Pairs(earlier[changed.before[order]], later[changed.after[order]])
        self.removed: Places = np.delete(earlier, changed.before)
        self.added: Places = np.delete(later, changed.after)

    def _digests(self, columns: Sequence[str]) -> tuple[Numbers, Numbers]:
        types = [
            _common_type(*(rows.types.get(name.lower()) for rows in (self.before, self.after)))
            for name in columns
        ]
        return self.before.digests(columns, types), self.after.digests(columns, types)

    def changes(self, column: str) -> ColumnChange:
        """Compare a column in the rows that differ."""
        if not len(self.changed.after):
            return ColumnChange(column, 0, ())
        before, after = self._digests([column])
        differs = before[self.changed.before] != after[self.changed.after]
        first = _Pairs(*(places[differs][:EXAMPLES] for places in self.changed))
        old = self._shown(self.before, [column], first.before)
        new = self._shown(self.after, [*dict.fromkeys([*self.identity, column])], first.after)
        examples = tuple(
            {
                "row": {name: new[later][name] for name in self.identity},
                "from": old[earlier][column],
                "to": new[later][column],
            }
            for earlier, later in zip(*(places.tolist() for places in first), strict=True)
        )
        return ColumnChange(column, int(differs.sum()), examples)

    def examples(self, rows: _Rows, places: Places) -> tuple[dict[str, Any], ...]:
        """Return the identity of the first of these rows."""
        return tuple(self._shown(rows, self.identity, places[:EXAMPLES]).values())

    def _shown(
        self, rows: _Rows, columns: Sequence[str], places: Places
    ) -> dict[int, dict[str, Any]]:
        return {
            place: {name: masked_json(name, value, self.hidden) for name, value in row.items()}
            for place, row in rows.take(columns, places).items()
        }


def _pair(before: Numbers, after: Numbers) -> _Pairs:
    """Pair equal digests: the first such row with the first, the second with the second."""
    first, second = (
        digest([pa.array(one), pa.array(_count_earlier(one))]) for one in (before, after)
    )
    return _Pairs(*np.intersect1d(first, second, return_indices=True)[1:])


def _repeated(digests: Numbers) -> Numbers:
    found, counts = np.unique(digests, return_counts=True)
    return found[counts > 1]


def _count_earlier(digests: Numbers) -> Places:
    """Return for each row how many rows before it have the same digest."""
    order = np.argsort(digests, kind="stable")
    is_first = np.ones(len(digests), np.bool_)
    is_first[1:] = digests[order][1:] != digests[order][:-1]
    places = np.arange(len(digests))
    counts: Places = np.empty(len(digests), np.int64)
    counts[order] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return counts


def _side(enrichment: Enrichment, version: DayVersion, rows: _Rows) -> Side:
    statuses = {
        lookup.name: status
        for lookup in enrichment.lookups
        if (status := schema.published_status(lookup.name)) in rows
    }
    outcomes: dict[str, Counter[str]] = {lookup: Counter() for lookup in statuses}
    for batch in rows.batches([*statuses.values()]):
        for counts, column in zip(outcomes.values(), batch, strict=True):
            # null in files of a batch of a stream from before the lookup
            counts.update(counts_by_value(column.drop_null()))
    record = version.record
    return Side(
        version=version.version,
        run_id=version.run_id,
        rows=rows.count,
        outcomes={lookup: dict(counts) for lookup, counts in outcomes.items()},
        checks={}
        if record is None
        else {verdict.check: verdict.status for verdict in record.verdicts},
        calls=None if record is None else record.figures.calls,
        cost={}
        if record is None
        else {currency: f"{cost:f}" for currency, cost in record.figures.cost.items()},
    )
