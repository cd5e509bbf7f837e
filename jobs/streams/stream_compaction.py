"""Compacts a running stream's ledger: batches add parts, which lookups would read whole."""

import time
from collections.abc import Callable
from datetime import timedelta

from jobs.declare.enrichment import Enrichment
from jobs.ledger.changes.compaction import compact
from jobs.ledger.declared_folder import declared_folder

BATCHES = 100  # of two parts or more each; a lookup reads a hundred parts in a tenth of a second
SHARE = 0.05  # of the time, at most: a compaction rewrites all answers
# how long compacted parts stay for other runs that have listed them; a stream writes many thousands
# of parts a day
GRACE = timedelta(hours=2)


class StreamCompaction:
    """Compacts the ledgers of an enrichment after every hundred batches, or later if that would
    take more than a twentieth of the time.
    """

    def __init__(
        self, enrichment: Enrichment, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        folders = [declared_folder(enrichment, lookup) for lookup in enrichment.lookups]
        self._folders = [folder for folder in folders if folder is not None]
        self._clock = clock
        self._batches = 0
        self._not_before = clock()

    def batch_ended(self) -> None:
        """Compact if it is time. Raises LedgerError; no answer is lost then."""
        self._batches += 1
        began = self._clock()
        if self._batches < BATCHES or began < self._not_before:
            return
        for folder in self._folders:
            if not folder.is_empty():
                compact(folder, grace=GRACE)
        ended = self._clock()
        self._batches, self._not_before = 0, ended + (ended - began) / SHARE
