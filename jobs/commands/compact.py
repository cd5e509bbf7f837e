"""`compact`: the many small parts of a ledger become a few sorted files; no answer is lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.ledger.abandoned import remove_abandoned
from jobs.ledger.compaction import Compacted, clean_up

if TYPE_CHECKING:
    from jobs.commands.ledgers import Kept


@dataclass(frozen=True)
class CompactedLookup:
    lookup: str
    folder: str
    done: Compacted
    runs_removed: int  # that were killed days ago, and had left behind what they needed


def compact(ledgers: Iterable[Kept]) -> list[CompactedLookup]:
    """Compact each; what cannot speak for its key any more is dropped. Safe beside running jobs.

    Answers that outlived their time to live stay: remap and replay still use them. Raises LedgerError.
    """
    return [
        CompactedLookup(one.lookup.name, one.folder.path, clean_up(one.folder), remove_abandoned(one.folder))
        for one in ledgers
        if not one.folder.is_empty()
    ]
