"""`compact`: merges the many small parts of a ledger into a few sorted files; loses no answer."""

from collections.abc import Iterable
from dataclasses import dataclass

from jobs.commands.ledgers import Kept
from jobs.ledger.changes.compaction import Compacted
from jobs.ledger.changes.compaction import compact as compact_folder
from jobs.ledger.working_folders import remove_abandoned


@dataclass(frozen=True)
class CompactedLookup:
    lookup: str
    folder: str
    done: Compacted


def compact(ledgers: Iterable[Kept]) -> list[CompactedLookup]:
    """Compact each ledger and drop records without effect. Safe beside running jobs.

    Answers beyond their time to live stay, because remap and replay use them. Raises LedgerError.
    """
    done = []
    for ledger in ledgers:
        if not ledger.folder.is_empty():
            done.append(
                CompactedLookup(
                    ledger.lookup.name, ledger.folder.path, compact_folder(ledger.folder)
                )
            )
            remove_abandoned(ledger.folder)  # folders of runs that were killed days ago
    return done
