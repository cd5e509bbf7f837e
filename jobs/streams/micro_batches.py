"""Enriches a micro-batch's new files by day, checks them, publishes all in a single commit."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.errors import DeclarationError, PublishConflict, TidegateError
from jobs.process.publish_decision import Quality, held_back_by, kept
from jobs.run.day import run_batch
from jobs.run.plan.preflight import check_input
from jobs.streams.batch_publishing import MicroBatch, complete_records, last_batch, publish_batch
from jobs.streams.delta_source import DeltaSource
from jobs.streams.stream_compaction import StreamCompaction
from jobs.streams.stream_files import query_id
from jobs.streams.stream_sources import FolderSource, StreamSource
from jobs.streams.stream_watermark import StreamWatermark
from jobs.tables.delta.delta_log import kept_open
from jobs.tables.delta.type_check import published_columns, published_table
from jobs.tables.leases.day_leases import Lease, leased
from jobs.tables.records import run_records

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from jobs.declare.enrichment import Enrichment
    from jobs.input.day import InputDay
    from jobs.schema.records import DayRecord

Published = Callable[[int, Sequence["DayRecord"], int], object]


class MicroBatches:
    """The function of `foreachBatch`.

    Args:
        spark: The session of the process; a batch's frame has a copy of it.
        enrichment: As declared.
        checkpoint: Of the query.
        quality: The checks.
        wait: How long to wait for a run that works on the same day, in s.
        published: Called for each published batch with its number, its records, and the number of
            late rows.
    """

    def __init__(
        self,
        spark: SparkSession,
        enrichment: Enrichment,
        checkpoint: Path,
        quality: Quality,
        *,
        wait: float,
        published: Published,
    ) -> None:
        self._spark, self._enrichment, self._checkpoint = spark, enrichment, checkpoint
        self._quality, self._wait, self._published = quality, wait, published
        self.source = open_source(enrichment, checkpoint)
        self._watermark = StreamWatermark(enrichment.event_time, checkpoint)
        self._compaction = StreamCompaction(enrichment)
        self._tables: dict[str, DeltaTable] = {}
        self._began = False  # Spark repeats at most the first batch of a process
        self.error: Exception | None = None  # of the batch that failed, which Spark wraps

    def __call__(self, _frame: DataFrame, number: int) -> None:
        """Process a batch. Skips it if it was published before a kill, so that Spark did not note
        that.
        """
        try:
            batch = MicroBatch(query_id(self._checkpoint), number)
            with kept_open(self._tables):
                last = last_batch(self._enrichment.output.path, batch.query)
                if not self._began and last is not None and last >= number:
                    records = complete_records(self._enrichment, batch)
                    self._refuse_older_checkpoint(batch, last)
                    self._watermark.advance(records)
                else:
                    self._do(batch)
            self._began = True
            self._compaction.batch_ended()
        except Exception as error:
            self.error = error
            raise

    def _refuse_older_checkpoint(self, batch: MicroBatch, last: int) -> None:
        """Raise PublishConflict for a batch that is not the published batch of its number: Spark
        forms another after an older checkpoint was restored.
        """
        if last > batch.number or self._has_new_rows(batch):
            raise PublishConflict(
                f"{self._enrichment.name}: batch {batch.number} is formed anew, but the table has "
                f"this stream's batches up to {last}: an older checkpoint was restored. Delete "
                f"{self._checkpoint} and start the stream again: a new checkpoint leaves out the "
                "files that the table has rows of."
            )

    def _has_new_rows(self, batch: MicroBatch) -> bool:
        new = self.source.batch(batch.number)
        files = (file for day in new.days for file in new.new_files(day) if file.exists())
        return any(new.rows_of([file], None).rows for file in files)

    def _do(self, batch: MicroBatch) -> None:
        with ExitStack() as held:
            leases: list[Lease] = []
            days = self._new_rows(batch, held, leases)  # all days are checked before the first call
            records = [self._enriched(rows, day, run_id) for day, run_id, rows in days]
            # stores verdicts while the commit waits for the disk
            with ThreadPoolExecutor(1, "tidegate-verdicts") as beside:
                keeping = beside.submit(self._keep, records)
                self._refuse_red(batch, records)
                if records:
                    records = publish_batch(records, batch, leases)
                records = [
                    replace(record, warnings=(*record.warnings, *warnings))
                    for record, warnings in zip(records, keeping.result(), strict=True)
                ]
        self._published(batch.number, records, self._watermark.advance(records))

    def _new_rows(
        self, batch: MicroBatch, held: ExitStack, leases: list[Lease]
    ) -> list[tuple[str, str, InputDay]]:
        """Return days with new rows, their run ids, and the rows; their preflight has passed."""
        found: list[tuple[str, str, InputDay]] = []
        files: dict[tuple[str, str], Sequence[Path]] = {}
        enrichment, new = self._enrichment, self.source.batch(batch.number)
        for day in new.days:
            # a new id for each try, so that nothing of a killed try is used
            run_id = f"{batch.runs}{uuid.uuid4().hex[:8]}"
            leases.append(
                held.enter_context(leased(enrichment.output.path, day, run_id, wait=self._wait))
            )
            if of_day := new.new_files(day):
                files[day, run_id] = of_day
        published = published_table(enrichment)
        types = published_columns(published)
        if len(files) > 1:  # a single commit publishes all days: a column has one type in them
            types = new.rows_of([file for few in files.values() for file in few], types).schema
        for (day, run_id), of_day in files.items():
            if (rows := new.rows_of(of_day, types)).rows:
                check_input(enrichment, rows, day, published)
                found.append((day, run_id, rows))
        self._refuse_other_case(found)
        return found

    def _refuse_other_case(self, days: Sequence[tuple[str, str, InputDay]]) -> None:
        """Raise DeclarationError if two days spell a column differently, as no table can."""
        spelled: dict[str, tuple[str, str]] = {}
        for day, _, rows in days:
            for name in rows.names:
                known, first = spelled.setdefault(name.lower(), (name, day))
                if known != name:
                    raise DeclarationError(
                        f"{self._enrichment.name}: input: {name!r} of {day} is {known!r} in the "
                        f"files of {first} in the same batch; write it so, or under another name."
                    )

    def _enriched(self, rows: InputDay, day: str, run_id: str) -> DayRecord:
        """Return the record of the rows of a day, with verdicts."""
        return run_batch(
            self._enrichment, rows, day, run_id, spark=self._spark, checks=self._quality.checks,
        )  # fmt: skip

    def _keep(self, records: Sequence[DayRecord]) -> list[tuple[str, ...]]:
        """Store the verdicts. Returns each record's warnings; its rows are published anyway."""
        return [
            kept(replace(record, warnings=()), self._quality.keep).warnings for record in records
        ]

    def _refuse_red(self, batch: MicroBatch, records: Sequence[DayRecord]) -> None:
        """Hold back the whole batch if a day is red: a single commit publishes all days."""
        reasons = [
            f"{record.facts.day}: {reason}"
            for record in records
            if (reason := held_back_by(record))
        ]
        if reasons:
            for record in records:
                run_records.hold_back(record, reasons[0])
            raise BatchHeldBack(
                f"batch {batch.number} is held back: {reasons[0].rstrip('.')}. Nothing of it is "
                "published; once that is mended, start the stream again: it does this batch anew, "
                "with the ledger's answers."
            )


def open_source(enrichment: Enrichment, checkpoint: Path) -> StreamSource:
    """Return the declared input, as the stream of this checkpoint reads it."""
    kind = DeltaSource if enrichment.input.format == "delta" else FolderSource
    return kind(enrichment, checkpoint)


class BatchHeldBack(TidegateError):  # noqa: N818  # what happened
    """A check holds a micro-batch back, and with it all later batches."""
