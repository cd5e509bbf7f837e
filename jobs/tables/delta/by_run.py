"""Tables beside the published table with rows of runs, partitioned by day and run.

Removing a run touches no file of another run. A run's rows are written before its day is published;
afterwards the rows of other runs of the day are removed.
"""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import quote

from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from jobs.schema.columns import RUN_ID
from jobs.schema.records import DayFacts, WrittenFile
from jobs.storage.new_files import copy_file
from jobs.storage.parquet_files import read_schema
from jobs.storage.urls import below
from jobs.tables.delta.added_columns import add_columns
from jobs.tables.delta.delta_log import commit_hooks, commit_on_top, opened, saying_format
from jobs.tables.delta.written_files import (
    NewFile,
    add_actions,
    create_table,
    end_of_run,
    table_columns,
)

RUN = RUN_ID
AT_ONCE = 8  # copies
NO_STATISTICS = {"delta.dataSkippingNumIndexedCols": "0"}  # keeps values out of the table's log


def write(
    table: str, facts: DayFacts, files: Sequence[WrittenFile], *, again: bool = True
) -> Callable[[], object]:
    """Add these files of a run, if any, beside those of other runs.

    Args:
        table: Path or URL of the table beside the published table.
        facts: The run and its day.
        files: With the rows, without the columns of the day and the run.
        again: Whether the run may have written before, so that its rows are removed first.

    Returns:
        A function that removes the rows of the other runs from the day.
    """
    if not files:
        return partial(keep_only, table, facts)
    current = remove(table, facts) if again else opened(table)
    partition, run = facts.declared.partition, facts.run_id
    folder = f"{partition}={quote(facts.day)}/{RUN}={quote(run)}"
    names = [f"{folder}/{file.place.rpartition('/')[2]}" for file in files]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(
            pool.map(
                copy_file, (file.place for file in files), (below(table, name) for name in names)
            )
        )
    end = end_of_run(facts)
    new = [
        NewFile(name, file.bytes, end, file.rows) for name, file in zip(names, files, strict=True)
    ]
    actions = add_actions(new, {partition: facts.day, RUN: run})
    written, in_run = read_schema(files[0].place), Field(RUN, PrimitiveType("string"))
    columns = table_columns(written, facts, in_run)

    def commit() -> None:
        if current is None:
            create_table(
                table, columns, actions, saying_format(),
                partition_by=[partition, RUN], settings=NO_STATISTICS,
            )  # fmt: skip
            return
        current.create_write_transaction(
            [*actions], mode="append", schema=current.schema(), partition_by=[partition, RUN],
            post_commithook_properties=commit_hooks(table, current),
        )  # fmt: skip
        # else the next deletion would take this commit for a conflict
        current.update_incremental()

    if current is not None:
        add_columns(current, columns)
    commit_on_top(current, commit)
    return partial(_delete, current, partition, facts.day, "<>", run)


def remove(table: str, facts: DayFacts) -> DeltaTable | None:
    """Remove the rows of this run. Returns the table, if it exists."""
    return _delete(opened(table), facts.declared.partition, facts.day, "=", facts.run_id)


def keep_only(table: str, facts: DayFacts) -> None:
    _delete(opened(table), facts.declared.partition, facts.day, "<>", facts.run_id)


def keep_published(
    table: str, partition: str, published: Collection[tuple[str, str]], unknown: Collection[str]
) -> None:
    """Keep the rows of these days and runs, and remove all others. Never call it during a
    publication.

    Args:
        table: The path or URL of the table.
        partition: Its partition column.
        published: Days and runs whose rows stay.
        unknown: Days of which all rows stay.
    """
    delta = opened(table)
    if delta is not None:
        for found in delta.partitions():
            day, run = str(found[partition]), str(found[RUN])
            if day not in unknown and (day, run) not in published:
                _delete(delta, partition, day, "=", run)


def _delete(
    table: DeltaTable | None, partition: str, day: str, comparison: str, run_id: str
) -> DeltaTable | None:
    if table is not None:
        run = run_id.replace("'", "''")
        where = f"\"{partition}\" = '{day}' AND {RUN} {comparison} '{run}'"
        commit_on_top(table, lambda: table.delete(where))
    return table
