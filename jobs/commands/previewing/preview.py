"""Runs the first rows of a day through a lookup with a job's operators: real calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from jobs.arrow_values import conform_rows, readable_values
from jobs.clients.client import Client
from jobs.clients.exchanges import EXCHANGES, Exchange
from jobs.clients.registry import client_for
from jobs.clients.request_counter import begin
from jobs.commands.previewing.kept_answers import keeping
from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Key, Lookup
from jobs.input.day import InputDay
from jobs.input.file_rows import naming_unread
from jobs.input.same_values import refuse_old_dates
from jobs.schema import columns as schema
from jobs.storage.parquet_files import batches_in, open_parquet
from jobs.task.plan import PartitionPlan
from jobs.task.rows.arrow_batches import BatchLayout
from jobs.task.runner import PartitionRun


@dataclass(frozen=True)
class PreviewRow:
    """The result of a row.

    Attributes:
        number: Its number, from 1.
        keys: Its key by name.
        exchanges: Requests and responses of all attempts; None for a shared call.
        is_stored: Whether the ledger has the answer, so that no call was made.
        status: Its outcome.
        answer: The answer's columns.
        error: The reason of a failure.
        attempts: The number of attempts.
        latency_ms: The latency of the last attempt.
    """

    number: int
    keys: dict[str, Any]
    exchanges: tuple[Exchange, ...] | None
    is_stored: bool
    status: str
    answer: dict[str, Any]
    error: str | None
    attempts: int
    latency_ms: float | None


def first_rows(day: InputDay, count: int) -> pa.Table:
    found: list[pa.RecordBatch] = []
    for batch in row_batches(day, count):
        found.append(batch)
        if sum(batch.num_rows for batch in found) >= count:
            break
    return pa.Table.from_batches(found, day.schema).slice(0, count)


def row_batches(day: InputDay, size: int = 1 << 16) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a day in batches of at most `size` rows.

    A column that a file lacks is null, as in Spark.

    Raises:
        DeclarationError: Arrow would read other dates than Spark.
        TidegateError: A file cannot be read.
    """
    for path in day.files:
        refuse_old_dates([path])
        with naming_unread(path), open_parquet(path) as file:
            for batch in batches_in(file, size):
                # Spark has no precision below a microsecond
                yield conform_rows(batch, day.schema, safe=False)


def preview_rows(
    enrichment: Enrichment, lookup: Lookup, keys: Sequence[pa.Array], *, discard: bool
) -> Iterator[PreviewRow]:
    """Call for each row whose answer is not stored, and store the answers; yield rows in order.

    Leaving early cancels the running calls. Raises RunStopped and RowFailed like a job.

    Args:
        enrichment: The enrichment.
        lookup: One of its lookups, which submits no jobs.
        keys: The parts of its keys.
        discard: Call for each row, and store nothing.
    """
    names = [f"__key_{number}" for number in range(len(keys))]
    count = len(keys[0])
    identity = {
        schema.SOURCE_FILE: pa.nulls(count, pa.string()),
        schema.SOURCE_ROW: pa.array(range(count), pa.int64()),
    }
    batch = pa.RecordBatch.from_pydict({**identity, **dict(zip(names, keys, strict=True))})
    overheard = _Overheard()
    is_lenient = lookup.when is not None or enrichment.has_chains
    plan = PartitionPlan(
        # a key is null too if the condition does not hold, or if an earlier lookup failed
        lookups=(replace(lookup, on_null_key="skip") if is_lenient else lookup,),
        shares=((lookup.concurrency,),),
        mode="ordered",
        layout=BatchLayout(
            carried=tuple(identity),
            keys=(tuple(names),),
            order_key=(),
            event_time=None,
            max_out_of_orderness_ms=0,
            lookups=(lookup.name,),
            answers=(lookup.written,),
        ),
        progress=None,
        personal=(enrichment.has_personal_key(lookup),),
    )
    of_rows = list(zip(*map(readable_values, keys), strict=True))
    with keeping(enrichment, plan, of_rows, discard=discard) as kept:
        begin(None if kept.meters is None else kept.meters.open())
        for written in PartitionRun(kept, 0, 0, client_for=overheard.client_for).run(iter([batch])):
            for row in written.to_pylist():
                yield _preview_row(lookup, row, of_rows[row[schema.SOURCE_ROW]], overheard)


def with_answers(rows: pa.Table, lookup: Lookup, done: Sequence[PreviewRow]) -> pa.Table:
    """Return the rows with a lookup's answers and status, for keys that read them."""
    for column, written in zip(lookup.columns, lookup.written, strict=True):
        answers = [row.answer[column.name] for row in done]
        rows = rows.append_column(written.name, pa.array(answers, column.arrow_type))
    statuses = pa.array([row.status for row in done], pa.string())
    return rows.append_column(schema.published_status(lookup.name), statuses)


def _preview_row(
    lookup: Lookup, row: dict[str, Any], key: Key, overheard: _Overheard
) -> PreviewRow:
    name = lookup.name
    return PreviewRow(
        number=row[schema.SOURCE_ROW] + 1,
        keys=dict(zip(lookup.keys, key, strict=True)),
        exchanges=None
        if row[schema.source(name)] == "shared"
        else tuple(overheard.of.pop(repr(key), ())),
        is_stored=row[schema.source(name)] == "ledger",
        status=row[schema.status(name)],
        answer={
            column.name: row[written.name]
            for column, written in zip(lookup.columns, lookup.written, strict=True)
        },
        error=row[schema.error(name)],
        attempts=len(row[schema.attempts(name)]),
        latency_ms=row[schema.latency_ms(name)],
    )


class _Overheard:
    """Makes clients that record requests and responses by key."""

    def __init__(self) -> None:
        self.of: dict[str, list[Exchange]] = {}  # by the key's repr: a part may be a list

    def client_for(self, lookup: Lookup, share: int) -> Client:
        client = client_for(lookup, share)
        ask = client.call

        async def call(key: Key, *reason: str) -> Any | None:
            token = EXCHANGES.set(self.of.setdefault(repr(key), []))
            try:
                return await ask(key, *reason)
            finally:
                EXCHANGES.reset(token)

        client.call = call  # type: ignore[method-assign]
        return client
