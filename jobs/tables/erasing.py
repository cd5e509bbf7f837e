"""Removes rows from a published day: writes the day again without them and publishes the result."""

import dataclasses
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.arrow_values import counts_by_value
from jobs.schema import columns as schema
from jobs.schema.records import DayRecord, LookupMetrics
from jobs.storage.parquet_files import parquet_source
from jobs.storage.work_folders import RUNS, work_folder
from jobs.tables import publishing
from jobs.tables.delta.asked_keys import KeysOf, asked
from jobs.tables.delta.copied_rows import copy_rows
from jobs.tables.leases.day_leases import Lease
from jobs.tables.records import run_records


def without_rows(
    record: DayRecord, sources: Iterable[str], keys: KeysOf, *, run_id: str, lease: Lease
) -> int:
    """Publish the day of this record without the rows of these keys; its verdicts stay.

    Readers see the day with the rows or without them. A crash leaves unpublished files, which
    vacuum removes.

    Args:
        record: The published run. It may name more files than `sources`: files without rows are in
            no version, and vacuum removes them.
        sources: The day's published files.
        keys: The keys whose rows are removed.
        run_id: Id of the run that publishes.
        lease: The lease of the day.

    Returns:
        The number of removed rows.

    Raises:
        PublishConflict: Another run published the day meanwhile.
    """
    facts = record.facts
    folder = Path(work_folder(facts.declared.table), RUNS, run_id).resolve()
    new_facts = dataclasses.replace(facts, run_id=run_id, folder=str(folder))
    files, kept, gone = _copy_others(sources, Path(new_facts.rows_folder), keys)
    lookups = tuple(_without_calls(lookup, files) for lookup in record.figures.lookups)
    figures = dataclasses.replace(record.figures, rows_out=kept, lookups=lookups)
    written = dataclasses.replace(
        record,
        facts=dataclasses.replace(
            new_facts,
            files=files,
            windows=(),
            changes=None,
            kept_files=(),
            audit_files=(),
            letter_files=(),
        ),
        figures=figures,
        state="written",
        reason="",
        published_version=None,
        published_at=None,
        counts_too="",
    )
    # first, so that a kill after the commit leaves readers' rows with a record
    publishing.publish(run_records.save(written), lease)
    return gone


def _copy_others(
    sources: Iterable[str], folder: Path, keys: KeysOf
) -> tuple[tuple[str, ...], int, int]:
    """Copy the rows of other keys to a new folder.

    Returns:
        The files, and the numbers of copied rows and of rows left out.
    """

    def others(rows: pa.RecordBatch) -> pa.Array:
        return pa.array([not is_asked for is_asked in asked(rows, keys)], pa.bool_())

    folder.mkdir(parents=True)
    files, kept, gone = [], 0, 0
    for number, source in enumerate(sorted(sources)):
        target = folder / f"part-{number:05}.parquet"
        rows = copy_rows(source, target, others)
        kept, gone = kept + rows, gone + pq.read_metadata(parquet_source(source)).num_rows - rows
        if rows:
            files.append(str(target))
        else:
            target.unlink()
    return tuple(files), kept, gone


def _without_calls(lookup: LookupMetrics, files: Iterable[str]) -> LookupMetrics:
    """Return the figures of rows that a run published again: it called and paid nothing."""
    counts: Counter[str] = Counter()
    for file in files:
        for column in pq.ParquetFile(file).read([schema.status(lookup.name)]).columns:
            counts += counts_by_value(column)
    outcomes = {outcome: counts[outcome] for outcome in lookup.outcomes}
    return LookupMetrics(
        lookup.name, outcomes, 0, 0, 0.0, 0.0, None, None, oldest_answer_at=lookup.oldest_answer_at
    )
