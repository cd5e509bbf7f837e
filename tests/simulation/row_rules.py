"""The rules for the rows that leave a task, and for the rows of a day."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.run.keys.key_texts import TEXT
from jobs.run.keys.prefetch_task import PLACE
from jobs.schema import columns as schema
from tests.simulation.day_plans import Row
from tests.simulation.declared import is_marked
from tests.simulation.night_at_work import scheduler
from tests.simulation.night_facts import ANSWERED, NightFacts, run_of, text_of
from tests.simulation.scheduler import EPOCH


class RowRules:
    """Looks at the rows of one night."""

    def __init__(self, facts: NightFacts) -> None:
        self._facts, self._night, self._vendor = facts, facts.night, facts.vendor

    def watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches that leave a task: each called answer in them is stored."""
        run = run_of(scheduler().me().process)
        for batch in batches:
            for place, lookup in enumerate(self._night.lookups):
                for key in _called(batch, place, lookup):
                    if (run, lookup, key) not in self._facts.stored_by:
                        scheduler().fail(f"left its task before it was stored: {lookup} {key}")
            yield batch

    def check_day(
        self, run: str, rows: Sequence[Row], files: Sequence[str], *, is_quiet: bool
    ) -> None:
        """Each row once, in order, with the value of a charged call."""
        night = scheduler()
        by_number = {row.number: row for row in rows}
        found = pa.concat_tables(
            [pq.read_table(file, partitioning=None) for file in files]
        ).to_pylist()
        if sorted(row["id"] for row in found) != sorted(by_number):
            night.fail(f"{run}: {len(found)} rows instead of {len(rows)}, or one twice")
            return
        if self._night.mode == "ordered":
            for part in range(self._night.tasks):
                order = [row["_input_seq"] for row in found if row["_partition"] == part]
                if order != sorted(order):
                    night.fail(f"{run}: task {part} is out of order: {order}")
        for row in found:
            for lookup in self._night.lookups:
                key, first = by_number[row["id"]].keys[lookup], self._night.chain.get(lookup)
                if first is not None and row[f"_{first}_status"] not in self._night.asked_after:
                    key = None  # its condition does not hold
                self._check_value(run, row, lookup, key, is_quiet=is_quiet)

    def _check_value(
        self, run: str, row: dict[str, Any], lookup: str, key: str | None, *, is_quiet: bool
    ) -> None:
        night, status, declared = scheduler(), row[f"_{lookup}_status"], self._facts.runs[run]
        (column,) = declared.lookups[lookup].written
        value = row[column.name]
        if key is None:
            if status != "skipped":
                night.fail(f"{run}: {lookup} without a key is {status}")
            return
        newest = self._vendor.versions[lookup, (key,)]
        versions = (
            range(newest + 1)
            if self._facts.older_values or self._facts.last_power_cut >= 0
            else [newest]
        )
        truths = [self._vendor.answer(lookup, (key,), version) for version in versions]
        if status == "ok" and value not in [truth["v"] for truth in truths if truth is not None]:
            night.fail(f"{run}: wrong value: {lookup} {key} is {value!r}, not one of {truths}")
        if status == "miss" and None not in truths:
            night.fail(f"{run}: {lookup} {key} is a miss, not {truths}")
        if status in ANSWERED and not self._vendor.was_charged(lookup, (key,)):
            night.fail(f"{run}: {lookup} {key} has an answer and was never charged")
        tried = [
            attempt for attempt in row[f"_{lookup}_attempts"] or () if not attempt["throttled"]
        ]
        answered_at = row[schema.published_answered_at(lookup)]
        if status in ANSWERED and declared.lives is not None and not self._facts.clock_was_set:
            age = declared.began_at - (answered_at.timestamp() - EPOCH)
            if age > declared.lives:
                night.fail(
                    f"{run}: {lookup} {key} is {age:.0f} s old, and lives {declared.lives:.0f} s"
                )
        if len(tried) > 1 + declared.lookups[lookup].retry.retries:
            night.fail(f"{run}: {lookup} {key} was tried {len(tried)} times")
        if (
            declared.refuses_odd
            and status == "ok"
            and any("odd" in (truth or ()) for truth in truths)
            and lookup != "score"
        ):
            night.fail(f"{run}: {lookup} {key} is ok, and error_when calls its answer an error")
        if status == "not_asked" and declared.act.does != "remap":
            self._check_not_asked(run, lookup, key)
        in_doubt = is_marked(declared.lookups[lookup]) and status in ("unknown", "error", "timeout")
        if is_quiet and status not in ANSWERED and not in_doubt:
            night.fail(
                f"{run}: {lookup} {key} is {status} without a fault: {row[f'_{lookup}_error']}"
            )

    def _check_not_asked(self, run: str, lookup: str, key: str) -> None:
        """Only a vendor that is down is not asked, and what it answered before counts."""
        text, declared = text_of((key,)), self._facts.runs[run]
        if not self._vendor.faults.struck["vendor down"] or lookup != self._night.lookups[0]:
            scheduler().fail(f"{run}: {lookup} {key} is not asked without an outage")
        stored_at = self._facts.stored_at.get((lookup, text))
        if stored_at is None or self._facts.is_open_again(declared, lookup, (key,), stored_at):
            return
        if stored_at < declared.began_at or (run, lookup, text) in self._facts.stored_by:
            scheduler().fail(
                f"{run}: {lookup} {key} is not asked, and its answer was stored at {stored_at:.4f}"
            )


def _called(batch: pa.RecordBatch, place: int, lookup: str) -> Iterator[str]:
    """The keys whose answers a batch of rows, or of prefetched keys, got by a call."""
    if f"_{lookup}_source" not in batch.schema.names:
        return
    calls = zip(
        batch[f"_{lookup}_source"].to_pylist(), batch[f"_{lookup}_status"].to_pylist(), strict=True
    )
    if PLACE in batch.schema.names:
        places = batch[PLACE].to_pylist()
        keys = [
            text if at == place else None
            for text, at in zip(batch[TEXT].to_pylist(), places, strict=True)
        ]
    elif f"_{lookup}_key" in batch.schema.names:
        keys = [text_of(tuple(key.values())) for key in batch[f"_{lookup}_key"].to_pylist()]
    else:
        return
    for key, (source, status) in zip(keys, calls, strict=True):
        if key is not None and source == "call" and status in ANSWERED:
            yield key
