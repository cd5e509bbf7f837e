"""Selects the effective record of each key that a run needs.

Files are read one by one (a few parts at once), so that memory holds only the wanted keys, the hits
and a file. The footer of a compacted file locates the row groups that may contain a wanted key.
Their keys are read, and the other columns only in row groups with a hit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.declare.ledger_settings import Ttl
from jobs.ledger.answers import SCHEMA, taken
from jobs.ledger.generations import Contents, read_contents
from jobs.ledger.journal import JOURNAL
from jobs.ledger.resolution import Ints, Mask, decide, newest_rows
from jobs.ledger.scan import ROWS_AT_ONCE, KeySet, matches, placed, with_keys
from jobs.ledger.store import LedgerFolder

VOIDING = pa.array(["expired", "error", "timeout"])


@dataclass(frozen=True)
class Selected:
    """The effective records of the wanted keys.

    Attributes:
        answers: A row per key that needs no call, in SCHEMA, in any order.
        expired: Keys whose newest answer is older than the time to live. They need a call, as does
            every key without a record.
        refreshed: Keys whose answer was refreshed. They need a call too.
    """

    answers: pa.Table
    expired: pa.Array
    refreshed: pa.Array


@dataclass(frozen=True)
class Seen:
    """What a search has read, for a later search that reads only newer records.

    Attributes:
        generation: The newest compacted generation.
        parts: Names of parts, without journals, which may grow and are read again.
        voiding: Records that void or settle others, in SCHEMA: without them an older record would
            count again, from a journal, a new generation, or a part that is stored later.
    """

    generation: str | None = None
    parts: frozenset[str] = frozenset()
    voiding: pa.Table = field(default_factory=SCHEMA.empty_table)


class Search:
    """Finds the effective records of some keys repeatedly, and reads only new files.

    Args:
        folder: The ledger's folder.
        wanted: The keys.
        seen: What an earlier search read, whose records are not wanted again.
        without: Runs whose parts are ignored.
    """

    def __init__(
        self, folder: LedgerFolder, wanted: pa.Array | pa.ChunkedArray, *, seen: Seen | None = None,
        without: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._keys = KeySet(wanted)
        self._folder = folder
        self._without = tuple(f"{run}/" for run in without)
        self._read = seen or Seen()
        self._voiding = placed(self._read.voiding, self._keys)
        self._found = self._voiding

    @property
    def seen(self) -> Seen:
        """What was read so far, without journals, because they may grow."""
        voiding = self._found.filter(pc.is_in(self._found["outcome"], value_set=VOIDING))
        return replace(self._read, voiding=with_keys(voiding, self._keys))

    def update(self, now_us: int) -> bool:
        """Read new files. Returns whether they have records of the keys.

        Safe beside writers and a compaction. Raises LedgerError for a newer format or an unreadable
        folder.
        """
        return read_contents(self._folder, partial(self._update, now_us))

    def _update(self, now_us: int, current: Contents) -> bool:
        name = current.generation.name if current.generation else None
        is_new = name != self._read.generation  # it may have dropped records, so search again
        # parts may void what the generation has
        known = frozenset() if is_new else self._read.parts
        parts = [
            part
            for part in current.parts
            if part not in known and not part.startswith(self._without)
        ]
        torn: set[str] = set()
        wanted = Contents(current.generation if is_new else None, tuple(parts))
        tables = matches(self._folder, wanted, self._keys, unread=torn.add)
        before = self._voiding if is_new else self._found
        found = _newest_records(tables, before, len(self._keys), now_us)
        changed = found is not self._found
        self._found = found
        read = {part for part in parts if part not in torn and not part.endswith(JOURNAL)}
        self._read = Seen(name, frozenset(read) if is_new else self._read.parts | read)
        return changed

    def selected(self, *, now_us: int, ttl: Ttl) -> Selected:
        """Return the effective record of each key among the records read so far."""
        found = self._found
        places, numbers = np.unique(found["place"].to_numpy(), return_inverse=True)
        decided = decide(numbers, found, len(places), now_us=now_us, ttl=ttl)
        rows = _some(found, decided.rows[decided.rows >= 0])

        def texts(which: Mask) -> pa.Array:
            return self._keys.texts.take(pa.array(places[which]))

        return Selected(
            with_keys(rows, self._keys), texts(decided.expired), texts(decided.refreshed)
        )


def select(
    folder: LedgerFolder, wanted: pa.Array | pa.ChunkedArray, *, now_us: int, ttl: Ttl
) -> Selected:
    """Return the effective record of each wanted key, if any, sorted by key:

    - the newest ok or miss within its time to live;
    - else an "asked" without a later ok, miss or error: the call may have been made, so the row
      is `unknown`;
    - else the newest error or timeout, if no answer is newer, within the time to live of errors.

    "expired" voids every earlier record of its key, "asked" too. A record with a future time counts
    as older than all others (jobs/ledger/resolution.py). Safe beside writers and a compaction.

    Args:
        folder: The ledger's folder.
        wanted: Key texts, in any order; duplicates are allowed.
        now_us: µs since the epoch.
        ttl: Times to live.

    Raises:
        LedgerError: A file has a newer format, or the folder cannot be read.
    """
    search = Search(folder, wanted)
    search.update(now_us)
    selected = search.selected(now_us=now_us, ttl=ttl)
    return replace(selected, answers=selected.answers.sort_by("key"))


def _newest_records(
    tables: Iterable[pa.Table], before: pa.Table, count: int, now_us: int
) -> pa.Table:
    """Return the newest record of each key and outcome; `count` is the number of keys."""
    kept, rows, has_new = [before], before.num_rows, False
    for found in tables:
        has_new |= found.num_rows > 0
        kept.append(found)
        rows += found.num_rows
        if rows > max(ROWS_AT_ONCE, 4 * count):
            kept = [_newest(pa.concat_tables(kept), now_us)]
            rows = kept[0].num_rows
    return _newest(pa.concat_tables(kept), now_us) if has_new else before


def _newest(found: pa.Table, now_us: int) -> pa.Table:
    return _some(found, newest_rows(found["place"].to_numpy(), found, now_us))


def _some(found: pa.Table, rows: Ints) -> pa.Table:
    """Return these rows, each once, in any order; all of them without a copy."""
    return found if len(rows) == found.num_rows else taken(found, rows)
