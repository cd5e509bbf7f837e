"""What the ledger knows of the keys that a run wants: the newest record of each that still holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from jobs.ledger.declared import Ttl
    from jobs.ledger.store import LedgerFolder


@dataclass(frozen=True)
class ReadFigures:
    """How much of what is stored was read. Rows of which the key alone was read count in rows_looked_at only."""

    files: int = 0
    row_groups: int = 0
    rows: int = 0
    row_groups_looked_at: int = 0
    rows_looked_at: int = 0
    rows_read: int = 0
    skipped: tuple[str, ...] = ()  # torn or foreign files


@dataclass(frozen=True)
class Selected:
    """answers: one row per key that needs no call, with the columns of SCHEMA, sorted by key.

    outlived: keys whose newest answer is older than the time to live. refreshed: keys whose answer was declared
    expired. Both are asked anew, as is every key that is not here at all.
    """

    answers: pa.Table
    outlived: int
    refreshed: int
    read: ReadFigures


def select(folder: LedgerFolder, wanted: pa.Array | pa.ChunkedArray, *, now_us: int, ttl: Ttl) -> Selected:
    """The record of each wanted key that speaks for it, if one does:

    - the newest ok or miss, unless its time to live has run out;
    - else an "asked" that no ok, miss or error came after: the call may have been made, the row is `unknown`;
    - else the newest error or timeout within the time to live of errors.

    "expired" voids every record of its key up to its own time, "asked" too. wanted: key texts, in any order, doubles
    allowed. Raises LedgerError for a newer format or a folder that cannot be read.
    """
    raise NotImplementedError
