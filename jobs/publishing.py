"""Publishing a day: one Delta commit that takes the day's old files out and puts the run's files in.

Readers see the old day or the new one, never half of one. The files are those that the checks judged; they may hold
more columns than the table shows. What is left over from runs that were never published goes by `vacuum`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction, create_table_with_add_actions

from jobs import records, schema
from jobs.errors import PublishConflict
from jobs.schema import DayFacts, DayRecord


def publish(record: DayRecord) -> DayRecord:
    """Make this run's files the day that readers see; first the audit rows, then the table. Returns the record, saved.

    Raises PublishConflict when a verdict holds the day back, or another run published the same day meanwhile. A crash
    before the commit leaves readers what they had.
    """
    red = [verdict for verdict in record.verdicts if verdict.holds_back]
    facts = record.facts
    if red:
        raise PublishConflict(f"{facts.day} is held back: {red[0].check}: {red[0].sentence}")
    _publish_audit(facts)
    version = _commit(record)
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    return records.save(dataclasses.replace(record, state="published", published_version=version, published_at=now))


def published_columns(facts: DayFacts) -> list[str]:
    """What consumers see, besides the partition column."""
    columns = list(facts.input_columns)
    for lookup in facts.declared.lookups:
        columns += [name for name, _ in lookup.returns]
        columns += [schema.published_status(lookup.name), schema.published_answered_at(lookup.name)]
    return columns


def _commit(record: DayRecord) -> int:
    facts = record.facts
    root, partition = facts.declared.table, facts.declared.partition
    actions = [_add_action(Path(file), Path(root).resolve(), facts) for file in facts.files]
    actions = [action for action in actions if action is not None]
    transaction = f"{partition}={facts.day}"
    if not DeltaTable.is_deltatable(root):
        try:
            create_table_with_add_actions(
                root, _delta_schema(facts), actions, mode="error", partition_by=[partition],
                name=facts.declared.enrichment, commit_properties=_properties(record, transaction, 1),
            )  # fmt: skip
        except DeltaError:  # another day's first run made the table meanwhile; any other cause fails below again
            pass
        else:
            return 0
    table = DeltaTable(root)
    _add_columns(table, _delta_schema(facts))
    before = table.transaction_version(transaction) or 0
    try:
        table.create_write_transaction(
            actions, mode="overwrite", schema=table.schema(), partition_by=[partition],
            partition_filters=[(partition, "=", facts.day)], commit_properties=_properties(record, transaction, before
            + 1),
        )  # fmt: skip
    except CommitFailedError as error:
        raise PublishConflict(
            f"another run published {facts.day} of {facts.declared.enrichment} meanwhile; this one did not. "
            "Nothing is lost: readers see the other run's day."
        ) from error
    return DeltaTable(root).version()


def _properties(record: DayRecord, transaction: str, version: int) -> CommitProperties:
    metadata = {
        "tidegate.run_id": record.facts.run_id,
        "tidegate.rows": str(record.figures.rows_out),
        "tidegate.declaration": record.facts.declared.fingerprint,
    }
    # a transaction of the day makes the second of two first commits of one day fail, where Delta would double it
    return CommitProperties(custom_metadata=metadata, app_transactions=[Transaction(transaction, version)])


def _add_action(file: Path, root: Path, facts: DayFacts) -> AddAction | None:
    rows = pq.read_metadata(file).num_rows
    if rows == 0:
        return None
    stat = file.stat()
    return AddAction(
        path=quote(str(file.relative_to(root))),
        size=stat.st_size,
        partition_values={facts.declared.partition: facts.day},
        modification_time=int(stat.st_mtime * 1000),
        data_change=True,
        stats=f'{{"numRecords": {rows}}}',
    )


def _delta_schema(facts: DayFacts) -> Schema:
    written = pq.read_schema(facts.files[0])
    columns = pa.schema([written.field(name).with_nullable(True) for name in published_columns(facts)])
    fields = Schema.from_arrow(columns).fields
    return Schema([*fields, Field(facts.declared.partition, PrimitiveType("date"))])


def _add_columns(table: DeltaTable, wanted: Schema) -> None:
    """New columns join the table, null before this day. A column whose type changed is refused, by name."""
    known = {field.name: field for field in table.schema().fields}
    new = []
    for field in wanted.fields:
        if field.name not in known:
            new.append(field)
        elif known[field.name].type != field.type:
            raise PublishConflict(
                f"column {field.name!r} is {field.type} in this run and {known[field.name].type} in the table; "
                "give it another name, or publish to another table."
            )
    if new:
        table.alter.add_columns(new)


def _publish_audit(facts: DayFacts) -> None:
    """The audit columns, by row identity, in a table of their own; nothing is asked of a service again."""
    files = [file for file in facts.files if pq.read_metadata(file).num_rows]
    if not files:
        return
    dataset = ds.dataset(files, format="parquet")
    names = [*facts.declared.row_id, *schema.ROW_COLUMNS]
    for lookup in facts.declared.lookups:
        names += schema.audit_columns(lookup.name)
    names = list(dict.fromkeys(names))
    partition = facts.declared.partition
    columns = {name: ds.field(name) for name in names}
    columns["run_id"] = ds.scalar(facts.run_id)
    columns[partition] = ds.scalar(dt.date.fromisoformat(facts.day))
    reader = dataset.scanner(columns=columns).to_reader()
    root = f"{facts.declared.table}__audit"
    replaced = {"predicate": f"{partition} = '{facts.day}'"} if DeltaTable.is_deltatable(root) else {}
    write_deltalake(root, reader, mode="overwrite", partition_by=[partition], schema_mode="merge", **replaced)
