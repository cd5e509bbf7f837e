"""Reads the marks that expire stored answers, for example those of `tidegate refresh`."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from jobs.ledger.answers import SCHEMA
from jobs.ledger.changes.compaction import open_compacted
from jobs.ledger.generations import COMPACTED, Contents, read_contents
from jobs.ledger.plan import OF_REFRESH
from jobs.ledger.scan import read_parts
from jobs.ledger.store import LedgerFolder

COLUMNS = ["key", "outcome", "answered_at"]
RECORDS = pa.schema([SCHEMA.field(name) for name in COLUMNS])


def expired_marks(folder: LedgerFolder) -> pa.Table:
    """Return the key and the time of each mark. Raises LedgerError.

    Reads the parts of marks, and these columns of compacted files.
    """

    def read(current: Contents) -> pa.Table:
        return pa.concat_tables([RECORDS.empty_table(), *map(_marks, _records(folder, current))])

    return read_contents(folder, read).drop_columns(["outcome"])


def _marks(records: pa.Table) -> pa.Table:
    return records.select(COLUMNS).filter(pc.equal(records["outcome"], "expired")).cast(RECORDS)


def _records(folder: LedgerFolder, current: Contents) -> Iterator[pa.Table]:
    for file in current.generation.files if current.generation else ():
        with open_compacted(folder, file) as opened:
            try:
                yield opened.read(columns=COLUMNS)
            except (pa.ArrowException, OSError) as error:
                raise folder.unreadable(f"{COMPACTED}/{file.name}", error) from error
    marks = [part for part in current.parts if part.startswith(OF_REFRESH)]
    yield from (table for _, table in read_parts(folder, marks) if table is not None)
