"""`compact`: merges the many small parts of a ledger into a few sorted files; loses no answer."""

from jobs.commands.ledgers import DeclaredLedger
from jobs.ledger.changes.compaction import Compacted
from jobs.ledger.changes.compaction import compact as compact_folder
from jobs.ledger.working_folders import remove_abandoned


def compact(ledger: DeclaredLedger) -> Compacted | None:
    """Compact a ledger and drop records without effect. Safe beside running jobs.

    Answers beyond their time to live stay, because remap and replay use them. Returns None for an
    empty ledger. Raises LedgerError.
    """
    if ledger.folder.is_empty():
        return None
    done = compact_folder(ledger.folder)
    remove_abandoned(ledger.folder)  # folders of runs that were killed days ago
    return done
