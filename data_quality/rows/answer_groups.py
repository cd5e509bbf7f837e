"""Groups a lookup's rows by key, answer time and answer.

The place of a group is the 64-bit digest of its key and answer time. Groups are sorted by place, so
that the groups of all parts of a day can be compared some places at a time.
"""

import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from data_quality.rows.task_rows import Flags, Places, TaskRows
from jobs.arrow_values import Numbers, digest, one_chunk
from jobs.schema import columns as schema
from jobs.schema.columns import INPUT_SEQ, PARTITION
from jobs.schema.records import LookupFacts
from jobs.storage.new_files import new_file
from jobs.storage.parquet_files import open_parquet
from jobs.storage.urls import below

PLACES_AT_ONCE = 1_000_000  # in memory; a place takes about 200 bytes and the length of its key
SKETCHED = 1024  # the lowest places of a part, by which the number of all places is estimated
NEVER = np.iinfo(np.int64).max
ANSWER, PLACE = "answer", "place"
# numbers of rows: all, those answered by a call, by a call or shared, and from the ledger
COUNTS = ("rows", "called", "asked", "known")
# the lowest turn (task, input_seq) of a row in "rows", "asked", "known"; NEVER without such a row
FIRSTS = ("first", "first_asked", "first_known")
NUMBERS = (PLACE, ANSWER, *COUNTS, *FIRSTS)  # all other columns are the key and its answer time
_SEQ_BITS = 40

Between = tuple[int, int]  # the first place, and the place after the last


def number_places(table: pa.Table, lookup: LookupFacts) -> Numbers:
    key = one_chunk(table[schema.key(lookup.name)])
    return digest([*key.flatten(), one_chunk(table[_answered_at(lookup)])])


def number_answers(table: pa.Table, lookup: LookupFacts) -> Numbers:
    names = [schema.published_status(lookup.name), *lookup.columns]
    # by chunk, because joining chunks copies all answers
    batches = table.select(names).to_batches()
    return np.concatenate([np.zeros(0, np.uint64), *(digest(batch.columns) for batch in batches)])


@dataclass(frozen=True)
class AnsweredRows:
    """The rows with an answer among some rows of a task.

    Attributes:
        at: Their positions among these rows.
        places: The places of their groups.
        answers: The digests of their answers.
        sources: For each name of COUNTS, a flag for each row.
    """

    at: Places
    places: Numbers
    answers: Numbers
    sources: dict[str, Flags]

    @classmethod
    def of(cls, rows: TaskRows, lookup: LookupFacts) -> Self:
        published, at = schema.published_status(lookup.name), _answered_at(lookup)
        wanted = rows.one_of(published, "ok", "miss") & ~rows.is_null(at)
        names = [schema.key(lookup.name), at, published, *lookup.columns]
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
        """Return a row for each place and answer.

        All turns are 0 unless the rows are `in_turn`: they have PARTITION and INPUT_SEQ.
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
        return _group_by_place(
            pa.table([*map(pa.array, numbers.values())], [*numbers]), key.take(pa.array(self.at))
        )


def _answered_at(lookup: LookupFacts) -> str:
    return schema.published_answered_at(lookup.name)


def merged(groups: Iterable[pa.Table]) -> pa.Table | None:
    """Merge the groups of several parts: equal groups become one group. None without a part.

    Holds at most PLACES_AT_ONCE groups more than it has merged, or twice as many as these.
    """
    tables: list[pa.Table] = []
    waiting = 0
    for table in groups:
        tables.append(table)
        waiting += len(table)
        if waiting > max(PLACES_AT_ONCE, len(tables[0])):
            tables, waiting = [_merge(tables)], 0
    return _merge(tables) if tables else None


def _merge(groups: Sequence[pa.Table]) -> pa.Table:
    together = pa.concat_tables(groups)
    return _group_by_place(together.select(NUMBERS), together.drop_columns(NUMBERS))


def _group_by_place(numbers: pa.Table, keys: pa.Table) -> pa.Table:
    columns = {name: one_chunk(numbers[name]).to_numpy() for name in numbers.column_names}
    order = np.lexsort([columns[ANSWER], columns[PLACE]])
    starts = find_starts(columns[PLACE][order], columns[ANSWER][order])
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


def find_starts(*columns: NDArray[np.generic]) -> NDArray[np.intp]:
    """Return the rows of sorted columns at which a value changes, and the first row."""
    differs = np.zeros(len(columns[0]), np.bool_)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


@dataclass(frozen=True)
class StoredGroups:
    """The groups of a part, in memory or in a file.

    Attributes:
        sketch: The lowest places.
        table: The groups; None if they are in `file`.
        file: The path or URL of a Parquet file; empty if they are in `table`.
    """

    sketch: Numbers
    table: pa.Table | None
    file: str = ""

    @classmethod
    def of(
        cls, groups: pa.Table, folder: str | None, token: Callable[[int], str] = secrets.token_hex
    ) -> Self:
        """Return the groups, written to a new file in `folder`; None keeps them in memory."""
        places = one_chunk(groups[PLACE]).to_numpy()
        lowest = places[find_starts(places)][:SKETCHED]
        if folder is None:
            return cls(lowest, groups)
        file = below(folder, f"groups-{token(8)}.parquet")
        with new_file(file) as target:
            pq.write_table(groups, target, row_group_size=50_000, compression="lz4")
        return cls(lowest, None, file)

    def read(self, between: Between) -> Iterator[pa.Table]:
        """Yield the groups of these places."""
        if self.table is not None:
            yield _between(self.table, between)
            return
        with open_parquet(self.file) as file:
            for number in range(file.num_row_groups):
                extent = file.metadata.row_group(number).column(0).statistics
                # an empty row group has none
                if extent and extent.max >= between[0] and extent.min < between[1]:
                    yield _between(file.read_row_group(number), between)


def _between(groups: pa.Table, between: Between) -> pa.Table:
    places = one_chunk(groups[PLACE]).to_numpy()
    first = int(np.searchsorted(places, np.uint64(between[0])))
    end = len(places)
    if between[1] <= np.iinfo(np.uint64).max:
        end = int(np.searchsorted(places, np.uint64(between[1])))
    return groups.slice(first, end - first)


def divide_places(parts: Sequence[StoredGroups]) -> list[Between]:
    """Return ranges of places, each with about PLACES_AT_ONCE places of these parts at most."""
    lowest = np.unique(np.concatenate([np.zeros(0, np.uint64), *(part.sketch for part in parts)]))
    count = len(lowest)
    # the k-th lowest of n numbers that are spread evenly is at about k/n of their range
    if count >= SKETCHED and any(len(part.sketch) == SKETCHED for part in parts):
        count = math.ceil(SKETCHED * 2**64 / (int(lowest[SKETCHED - 1]) + 1))
    ranges = max(1, math.ceil(count / PLACES_AT_ONCE))
    return [(number * 2**64 // ranges, (number + 1) * 2**64 // ranges) for number in range(ranges)]
