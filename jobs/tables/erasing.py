"""Removes rows from a published day: writes the day again without them and publishes the result."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.schema import DayRecord
from jobs.storage.stored_files import parquet_source
from jobs.storage.work_folders import work_folder
from jobs.tables import publishing
from jobs.tables.asked_keys import ROWS_AT_ONCE, KeysOf, asked

if TYPE_CHECKING:
    from jobs.tables.leases import Lease


def without_rows(record: DayRecord, sources: Iterable[str], keys: KeysOf, *, run_id: str, lease: Lease) -> int:
    """Publish the day of this record without the rows of these keys; its verdicts stay. Returns the number of removed
    rows.

    sources: the day's published files. The record may name more: files without rows are in no version, and vacuum
    removes them. Readers see the day with the rows or without them. A crash leaves unpublished files, which vacuum
    removes. Raises PublishConflict if another run published the day meanwhile.
    """
    facts = record.facts
    folder = Path(work_folder(facts.declared.table), "runs", run_id).resolve()
    folder.mkdir(parents=True)
    files, kept, gone = [], 0, 0
    for number, source in enumerate(sorted(sources)):
        target = folder / f"part-{number:05}.parquet"
        _copy(source, target, keys)
        rows = pq.read_metadata(target).num_rows
        kept, gone = kept + rows, gone + pq.read_metadata(parquet_source(source)).num_rows - rows
        if rows:
            files.append(str(target))
        else:
            target.unlink()
    figures = dataclasses.replace(record.figures, rows_out=kept)
    new_facts = dataclasses.replace(facts, run_id=run_id, folder=str(folder), files=tuple(files), windows=())
    written = dataclasses.replace(record, facts=new_facts, figures=figures, state="written", reason="")
    publishing.publish(written, lease)
    return gone


def _copy(source: str, target: Path, keys: KeysOf) -> None:
    """Copy the file without these rows."""
    with (
        pq.ParquetFile(parquet_source(source)) as opened,
        pq.ParquetWriter(target, opened.schema_arrow, compression="snappy") as writer,
    ):
        batches = opened.iter_batches(ROWS_AT_ONCE)
        for batch, found in zip(batches, asked(source, keys), strict=True):
            writer.write_batch(batch.filter(pa.array([not one for one in found], pa.bool_())))
