"""Reads the marks that expire stored answers, for example those of `tidegate refresh`."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.ledger.answers import SCHEMA
from jobs.ledger.changes.compaction import open_compacted
from jobs.ledger.generations import COMPACTED, CompactedFile, Contents, read_contents
from jobs.ledger.plan import OF_REFRESH
from jobs.ledger.scan import read_parts
from jobs.ledger.store import LedgerFolder

EXPIRED = "expired"
COLUMNS = ["key", "outcome", "answered_at"]
_OUTCOME = SCHEMA.names.index("outcome")


def expired_marks(folder: LedgerFolder) -> pa.Table:
    """Return the key and the time of each mark. Raises LedgerError.

    Reads the parts of marks, and the row groups of compacted files that may have marks.
    """
    found = read_contents(folder, lambda current: pa.concat_tables(_records(folder, current)))
    return found.filter(pc.equal(found["outcome"], EXPIRED)).drop_columns(["outcome"])


def _records(folder: LedgerFolder, current: Contents) -> Iterator[pa.Table]:
    yield SCHEMA.empty_table().select(COLUMNS)
    for file in current.generation.files if current.generation else ():
        yield from _read_compacted(folder, file)
    marks = [part for part in current.parts if part.startswith(OF_REFRESH)]
    yield from (
        table.select(COLUMNS) for _, table in read_parts(folder, marks) if table is not None
    )


def _read_compacted(folder: LedgerFolder, file: CompactedFile) -> Iterator[pa.Table]:
    with open_compacted(folder, file) as opened:
        groups = [
            number
            for number in range(opened.metadata.num_row_groups)
            if _may_have_marks(opened, number)
        ]
        if groups:
            try:
                rows = opened.read_row_groups(groups, columns=COLUMNS)
            except (pa.ArrowException, OSError) as error:
                raise folder.unreadable(f"{COMPACTED}/{file.name}", error) from error
            yield rows.select(COLUMNS).cast(pa.schema([SCHEMA.field(name) for name in COLUMNS]))


def _may_have_marks(file: pq.ParquetFile, group: int) -> bool:
    statistics = file.metadata.row_group(group).column(_OUTCOME).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min <= EXPIRED <= statistics.max)
