"""Reads the marks that expire stored answers, for example those of `tidegate refresh`."""

import pyarrow as pa
import pyarrow.compute as pc

from jobs.ledger.answers import SCHEMA
from jobs.ledger.changes.compaction import read_records
from jobs.ledger.generations import Contents, read_contents
from jobs.ledger.plan import OF_REFRESH
from jobs.ledger.store import LedgerFolder

COLUMNS = ["key", "outcome", "answered_at"]
RECORDS = pa.schema([SCHEMA.field(name) for name in COLUMNS])


def expired_marks(folder: LedgerFolder) -> pa.Table:
    """Return the key and the time of each mark. Raises LedgerError.

    Reads the parts of marks, and these columns of compacted files.
    """

    def read(current: Contents) -> pa.Table:
        parts = [part for part in current.parts if part.startswith(OF_REFRESH)]
        records = read_records(folder, current, COLUMNS, parts)
        return pa.concat_tables([RECORDS.empty_table(), *map(_marks, records)])

    return read_contents(folder, read).drop_columns(["outcome"])


def _marks(records: pa.Table) -> pa.Table:
    return records.select(COLUMNS).filter(pc.equal(records["outcome"], "expired")).cast(RECORDS)
