"""Finds rows of wanted keys in the ledger's files, and reads as little as the footers allow."""

import bisect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.arrow_values import bunches, one_chunk
from jobs.ledger.answers import ENCODED, SCHEMA
from jobs.ledger.generations import COMPACTED, CompactedFile, Contents, read_contents
from jobs.ledger.recent_parts import File, RecentParts
from jobs.ledger.store import PARTS, ForeignFile, LedgerFolder

AT_ONCE = 8  # parts read at once, as each waits for an object store's latency
ROWS_AT_ONCE = 1 << 16  # rows of small parts searched together, or as many as wanted keys
BYTES_AT_ONCE = 256  # bytes for each of these rows
REST = [name for name in SCHEMA.names if name != "key"]
_RECENT = RecentParts()
FOUND = pa.schema([pa.field("place", pa.int64()), *(SCHEMA.field(name) for name in REST)])


class KeySet:
    """Distinct wanted keys in byte order, the order of files and footers."""

    def __init__(self, keys: pa.Array | pa.ChunkedArray) -> None:
        texts = pc.unique(keys.cast(pa.string())).drop_null()
        self.texts: pa.Array = texts.take(pc.array_sort_indices(texts))
        self._ordered: list[str] = self.texts.to_pylist()

    def __len__(self) -> int:
        return len(self._ordered)

    def any_between(self, smallest: str, largest: str) -> bool:
        place = bisect.bisect_left(self._ordered, smallest)
        return place < len(self._ordered) and self._ordered[place] <= largest

    def places(
        self, keys: pa.ChunkedArray, smallest: str | None = None, largest: str | None = None
    ) -> pa.ChunkedArray:
        """Return each key's index in the wanted keys, or null; all keys are within the bounds."""
        first = 0 if smallest is None else bisect.bisect_left(self._ordered, smallest)
        last = len(self) if largest is None else bisect.bisect_right(self._ordered, largest)
        places = pc.index_in(keys, self.texts.slice(first, last - first)).cast(pa.int64())
        return pc.add(places, first) if first else places


def matches(
    folder: LedgerFolder,
    current: Contents,
    wanted: KeySet,
    *,
    unread: Callable[[str], object] = lambda _: None,
) -> Iterator[pa.Table]:
    """Yield the rows of wanted keys in batches of schema FOUND; call `unread` with torn and foreign
    parts.

    Raises:
        FileNotFoundError: A file is missing.
        LedgerError: A file has a newer format, or the filesystem fails.
    """
    for file in current.files:
        yield _in_compacted(folder, file, wanted)
    most = max(ROWS_AT_ONCE, len(wanted))
    tables = (table for _, table in read_parts(folder, current.parts, ENCODED, unread=unread))
    held = bunches(tables, rows=most, size=most * BYTES_AT_ONCE)
    yield from map(partial(_in_parts, wanted), held)


def records_of(folder: LedgerFolder, keys: Sequence[str]) -> pa.Table:
    """Return every stored record of these keys in schema SCHEMA, oldest first, also void ones.

    A compaction drops records that a newer one replaced. Raises LedgerError.
    """
    wanted = KeySet(pa.array(keys, pa.string()))

    def read(current: Contents) -> pa.Table:
        return pa.concat_tables([FOUND.empty_table(), *matches(folder, current, wanted)])

    return with_keys(read_contents(folder, read).sort_by("answered_at"), wanted)


def with_keys(found: pa.Table, wanted: KeySet) -> pa.Table:
    """Return rows of schema FOUND as records of schema SCHEMA."""
    keys = wanted.texts.take(one_chunk(found["place"]))
    return pa.table([keys, *(found[name] for name in REST)], schema=SCHEMA)


def read_parts(
    folder: LedgerFolder,
    parts: Sequence[str],
    schema: pa.Schema = SCHEMA,
    *,
    unread: Callable[[str], object] = lambda _: None,
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the parts in the schema SCHEMA or ENCODED, several read at a time.

    Skips torn and foreign parts with a warning, and calls `unread` with them.

    Raises:
        FileNotFoundError: A part is missing.
        LedgerError: A part has a newer format, or the filesystem fails.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        reading: deque[Future[pa.Table | None]] = deque()
        for number, part in enumerate(parts):
            for ahead in parts[number + len(reading) : number + 2 * AT_ONCE]:
                reading.append(_reading(pool, folder, ahead, schema))
            if (table := reading.popleft().result()) is None:
                unread(part)
            else:
                yield part, table


def _in_compacted(folder: LedgerFolder, file: CompactedFile, wanted: KeySet) -> pa.Table:
    """Search in three steps, each within the previous step's hits: footer, keys, other columns."""
    if not wanted.any_between(file.smallest, file.largest):
        return FOUND.empty_table()
    name = f"{COMPACTED}/{file.name}"
    try:
        with folder.open(name) as opened:
            return _in_groups(opened, file, wanted)
    except ForeignFile as error:
        folder.warn(name, error)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        failure = folder.foreign_or_unreadable(name, error)
        if not isinstance(failure, ForeignFile):
            raise failure from error
        folder.warn(name, failure)
    return FOUND.empty_table()


def _groups_between(file: pq.ParquetFile, wanted: KeySet) -> list[int]:
    """Return the row groups whose footers may match; keys over 4 KB have no statistics."""
    groups = []
    for number in range(file.metadata.num_row_groups):
        statistics = file.metadata.row_group(number).column(0).statistics
        if not statistics.has_min_max or wanted.any_between(statistics.min, statistics.max):
            groups.append(number)
    return groups


def _in_groups(file: pq.ParquetFile, stored: CompactedFile, wanted: KeySet) -> pa.Table:
    groups = _groups_between(file, wanted)
    if not groups:
        return FOUND.empty_table()
    keys = file.read_row_groups(groups, columns=["key"])["key"]
    places = wanted.places(keys, stored.smallest, stored.largest)
    hit = places.is_valid().to_numpy()
    sizes = np.array([file.metadata.row_group(number).num_rows for number in groups])
    starts = np.cumsum(sizes) - sizes
    chosen = np.logical_or.reduceat(hit, starts)
    if not chosen.any():
        return FOUND.empty_table()
    here = np.repeat(chosen, sizes)
    rest = file.read_row_groups([groups[place] for place in np.flatnonzero(chosen)], columns=REST)
    return _found(rest, places.filter(pa.array(here)))


def _reading(
    pool: Executor, folder: LedgerFolder, part: str, schema: pa.Schema
) -> Future[pa.Table | None]:
    """Start reading a part; the result of a recent part is done already."""
    file = _RECENT.find_kept_file(folder, part) if schema is ENCODED else None
    if file is None or (known := _RECENT.get(file)) is None:
        return pool.submit(_whole, folder, part, schema, file)
    done: Future[pa.Table | None] = Future()
    done.set_result(known)
    return done


def _whole(
    folder: LedgerFolder, part: str, schema: pa.Schema, file: File | None
) -> pa.Table | None:
    try:
        table = folder.read_current(part, schema)
    except ForeignFile as error:
        folder.warn(f"{PARTS}/{part}", error)
        return None
    if file is not None:
        _RECENT.put(file, table)
    return table


def _in_parts(wanted: KeySet, tables: list[pa.Table]) -> pa.Table:
    return placed(pa.concat_tables(tables), wanted)


def placed(records: pa.Table, wanted: KeySet) -> pa.Table:
    """Return the records of wanted keys as rows of schema FOUND."""
    return _found(records, wanted.places(records["key"]))


def _found(rows: pa.Table, places: pa.ChunkedArray) -> pa.Table:
    """Return the rows with a place."""
    found = rows.select(REST).add_column(0, FOUND.field("place"), places)
    if places.null_count:  # a filter copies all responses
        found = found.filter(places.is_valid())
    return found.cast(FOUND)
