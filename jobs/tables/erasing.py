"""A published day without some of its rows: written again without them, and published in place of the day."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.schema import DayRecord
from jobs.tables import publishing
from jobs.tables.asked_keys import asked

if TYPE_CHECKING:
    from jobs.tables.leases import Lease


@dataclass(frozen=True)
class Erased:
    """rows: how many the day lost. identities: the values of their row_id columns, as text."""

    record: DayRecord
    rows: int
    identities: frozenset[str]


def without_rows(
    record: DayRecord, sources: Iterable[Path], lookup: str, keys: Collection[str], *, run_id: str, lease: Lease
) -> Erased:
    """Publish the day of this record without the rows that asked one of the keys; its verdicts stand.

    sources: the day's files that readers see. The record may name more: those without a row are in no version, and
    vacuum takes them. Readers see the day with the rows or without them. A crash leaves files that no reader sees and
    vacuum takes. Raises PublishConflict when another run published the day meanwhile.
    """
    facts = record.facts
    folder = Path(facts.declared.table, "runs", run_id).resolve()
    folder.mkdir(parents=True)
    files, rows, identities = [], 0, set[str]()
    for number, source in enumerate(sorted(sources)):
        target = folder / f"part-{number:05}.parquet"
        gone = _copy(source, target, lookup, keys)
        if pq.read_metadata(target).num_rows:
            files.append(str(target))
        else:
            target.unlink()
        rows += gone.num_rows
        spelt = {column.lower(): column for column in gone.column_names}
        for column in facts.declared.row_id:
            identities.update(map(str, gone[spelt[column.lower()]].to_pylist()))
    figures = dataclasses.replace(record.figures, rows_out=record.figures.rows_out - rows)
    new_facts = dataclasses.replace(facts, run_id=run_id, folder=str(folder), files=tuple(files))
    written = dataclasses.replace(record, facts=new_facts, figures=figures, state="written", reason="")
    return Erased(publishing.publish(written, lease), rows, frozenset(identities))


def _copy(source: Path, target: Path, lookup: str, keys: Collection[str]) -> pa.Table:
    """The file without these rows; returns them."""
    with pq.ParquetFile(source) as opened:
        gone = [opened.schema_arrow.empty_table()]
        with pq.ParquetWriter(target, opened.schema_arrow, compression="snappy") as writer:
            batches = opened.iter_batches(1 << 16)
            for batch, found in zip(batches, asked(source, lookup, keys), strict=True):
                mask = pa.array(found, pa.bool_())
                gone.append(pa.Table.from_batches([batch.filter(mask)]))
                writer.write_batch(batch.filter(pa.array([not one for one in found], pa.bool_())))
    return pa.concat_tables(gone)
