"""Expires stored answers, by records in the ledger that are newer than they are."""

import time
import uuid
from collections.abc import Sequence

from jobs.ledger.answers import StoredAnswer
from jobs.ledger.plan import OF_REFRESH
from jobs.ledger.store import LedgerFolder

ROWS_PER_PART = 100_000


def expire_keys(folder: LedgerFolder, keys: Sequence[str]) -> int:
    """Expire all records of these keys. Returns the number of keys. Raises LedgerError."""
    now, run_id = time.time_ns() // 1000, f"{OF_REFRESH}{uuid.uuid4().hex}"
    for number, start in enumerate(range(0, len(keys), ROWS_PER_PART)):
        records = [
            StoredAnswer(key, "expired", None, now, run_id)
            for key in keys[start : start + ROWS_PER_PART]
        ]
        folder.write_part(run_id, f"0-0-{number}", records, lasting=True)
    return len(keys)
