"""Selects the effective record of each key that a run needs.

Files are read one by one (a few parts at once), so that memory holds the wanted keys, the hits and one file. The footer
of a compacted file locates the row groups that may contain a wanted key; their keys are read, and the other columns
only of row groups with a hit.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from jobs.declare.ledger_settings import Ttl
from jobs.errors import LedgerError
from jobs.ledger.answers import SCHEMA, taken
from jobs.ledger.generations import Contents, contents
from jobs.ledger.resolution import decide, newest_rows
from jobs.ledger.scan import FOUND, REST, ROWS_AT_ONCE, KeySet, matches
from jobs.ledger.store import LedgerFolder

VANISHED_AT_MOST = 5  # times that compactions may delete files during one read


@dataclass(frozen=True)
class Selected:
    """answers: one row per key that needs no call, in SCHEMA, sorted by key.

    expired: keys whose newest answer is older than the time to live. refreshed: keys whose answer was refreshed. Both
    need a call, as does every key without a record.
    """

    answers: pa.Table
    expired: pa.Array
    refreshed: pa.Array


def select(folder: LedgerFolder, wanted: pa.Array | pa.ChunkedArray, *, now_us: int, ttl: Ttl) -> Selected:
    """The effective record of each wanted key, if there is one:

    - the newest ok or miss within its time to live;
    - else an "asked" without a later ok, miss or error: the call may have been made, so the row is `unknown`;
    - else the newest error or timeout, if no answer is newer, within the time to live of errors.

    "expired" voids every record of its key up to its own time, "asked" too. A record with a future time counts
    as older than all others (jobs/ledger/resolution.py). wanted: key texts, in any order, doubles
    allowed. Safe beside writers and a compaction. Raises LedgerError for a newer format or a folder that cannot be
    read.
    """
    keys = KeySet(wanted)
    for _ in range(VANISHED_AT_MOST):
        try:
            found = _find(folder, contents(folder), keys, now_us)
        except FileNotFoundError:  # a compaction deleted it some time after its compaction: list again
            continue
        decided = decide(found["place"].to_numpy(), found, len(keys), now_us=now_us, ttl=ttl)
        speaks = decided.rows[decided.rows >= 0]
        places = np.flatnonzero(decided.rows >= 0)
        rows = taken(found, speaks)
        columns = [keys.texts.take(pa.array(places)), *(rows[name] for name in REST)]
        return Selected(
            pa.table(columns, schema=SCHEMA),
            keys.texts.filter(pa.array(decided.expired)),
            keys.texts.filter(pa.array(decided.refreshed)),
        )
    raise LedgerError(f"ledger {folder.root!r}: its files vanish while they are read; is it being deleted?")


def _find(folder: LedgerFolder, there: Contents, keys: KeySet, now_us: int) -> pa.Table:
    """The newest record of each key and outcome, by the key's index in `keys`. Raises FileNotFoundError."""
    kept, rows = [FOUND.empty_table()], 0
    for found in matches(folder, there, keys):
        kept.append(found)
        rows += found.num_rows
        if rows > max(ROWS_AT_ONCE, 4 * len(keys)):
            kept = [_newest(pa.concat_tables(kept), now_us)]
            rows = kept[0].num_rows
    return _newest(pa.concat_tables(kept), now_us)


def _newest(found: pa.Table, now_us: int) -> pa.Table:
    return taken(found, newest_rows(found["place"].to_numpy(), found, now_us))
