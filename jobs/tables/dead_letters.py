"""The dead letters, `<table>__dead_letters`: rows whose lookup failed under the policy
`dead_letter`, with the reason.

The rows themselves stay in the published day, with their status and without an answer; no row is
dropped. The table is made from the run's files, without calls. It has only letters of published
runs; the letters of a held-back day are in its record and its files.
"""

from collections.abc import Callable

import pyarrow as pa
from pyarrow import fs

from jobs.declare.values.calendar import column_value
from jobs.declare.values.table_conflicts import LETTERS
from jobs.schema.records import DayFacts
from jobs.storage.parquet_files import naming_torn_file
from jobs.storage.stored_files import open_filesystem
from jobs.tables.delta import by_run
from jobs.tables.delta.delta_log import table_at
from jobs.tables.delta.published_files import require_partition
from jobs.tables.rows_beside import OWN_COLUMNS


def table_of(table: str) -> str:
    return f"{table}{LETTERS}"


def write(facts: DayFacts, *, again: bool = True) -> Callable[[], object]:
    """Add the letters of this run to the table of letters, as `by_run.write` describes."""
    return by_run.write(table_of(facts.declared.table), facts, facts.letter_files, again=again)


def of_day(table: str, partition: str, day: str) -> pa.Table:
    found = table_at(table_of(table))
    if found is None:
        return pa.table({field.name: pa.array([], field.type) for field in OWN_COLUMNS})
    require_partition(found, partition)
    filesystem, path = open_filesystem(table_of(table))
    # deltalake's filesystem is written in Python: Arrow's threads may still free its buffers when
    # the interpreter ends, which aborts the process (apache/arrow#34314)
    with naming_torn_file(table_of(table)):
        return found.to_pyarrow_table(
            filesystem=fs.SubTreeFileSystem(path, filesystem),
            filters=[(partition, "=", column_value(day))],
        )
