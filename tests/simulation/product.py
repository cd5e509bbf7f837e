"""Loads the product's modules that the nights drive, and puts the simulation below them."""

import functools
import logging
import sys
import types
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

import jobs.clients.http.http_client
import jobs.commands.expiry
import jobs.ledger.changes.compaction
import jobs.ledger.changes.erasure
import jobs.run.coordinator.run_leases
import jobs.run.engines.engine
import jobs.run.engines.spark_coordinator
import jobs.run.engines.spark_facts
import jobs.run.enrich
import jobs.run.keys.day_keys
import jobs.run.keys.preparation
import jobs.run.rows.keyed_rows
import jobs.run.settling
import jobs.storage.stored_files
import jobs.task.output_files
from jobs.ledger.answers import columns_table
from jobs.ledger.journal import Journal
from jobs.ledger.store import LedgerFolder
from jobs.limits.store_url import limits_url, open_store
from jobs.run.coordinator.run_leases import RunLeases, leased_limits
from jobs.run.keys.key_rows import read_key_rows
from jobs.schema.records import RunBill
from jobs.task.output_files import TaskFiles, TaskResult
from tests.simulation import clock, frames, installation
from tests.simulation.file_access import ROOT
from tests.simulation.night_at_work import scheduler


@functools.cache
def install() -> None:
    """Once for the process, which then runs nights and nothing else."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None  # of objects of killed processes
    _watch()
    installation.install(
        {
            jobs.storage.stored_files.open_filesystem: _filesystem_of,
            jobs.run.engines.spark_facts.setting: lambda _spark, _name, default="": (
                default or "simulated"
            ),
            jobs.run.engines.spark_coordinator.open_coordinator: lambda spark: spark.coordinator(),
            jobs.run.engines.engine._stage_here: lambda engine, _address, _attempts: (
                frames.TableStage(engine.spark)
            ),
            jobs.run.keys.day_keys.find_keys: lambda prepared, plan, place, _day: read_key_rows(
                prepared, replace(plan, reads=frames.RowsOfParts(prepared.parts)), place
            ),
            jobs.run.coordinator.run_leases.run_leases: _leases_of_process,
        }
    )
    jobs.run.settling.run_records = types.SimpleNamespace(  # type: ignore[assignment]  # they are in the user's home
        bill_of=_bill_of, of_run=lambda *_facts: None
    )
    assert leased_limits.__kwdefaults__ is not None
    leased_limits.__kwdefaults__["now"] = clock.utc_now
    jobs.run.enrich.ROWS_AT_ONCE = frames.ROWS_PER_BATCH


_real_filesystem_of = jobs.storage.stored_files.open_filesystem


def _filesystem_of(place: str) -> Any:
    return (
        (scheduler().file_system, place) if place.startswith(ROOT) else _real_filesystem_of(place)
    )


LEASES = "leases"  # state of a driver


def _leases_of_process(name: str) -> RunLeases:
    """run_leases, which keeps them in a variable of its module."""
    state = scheduler().me().process.state
    if LEASES not in state:
        state[LEASES] = RunLeases(open_store(limits_url()), name)
    leases: RunLeases = state[LEASES]  # type: ignore[assignment]
    leases.check()
    return leases


def _bill_of(run_id: str) -> RunBill | None:
    return scheduler().bills.get(run_id)


def _watch() -> None:
    """Tell the night's rules what the product was told is stored, and which rows leave a task."""
    write_part, append, write = LedgerFolder.write_part, Journal.append, TaskFiles.write

    def watched_write(
        self: LedgerFolder, run_id: str, name: str, answers: Any, *, lasting: bool = False
    ) -> str:
        scheduler().rules.are_stored_now(self.lookup, answers)
        part = write_part(self, run_id, name, answers, lasting=lasting)
        scheduler().rules.stored(self.lookup, answers)
        return part

    def watched_append(self: Journal, columns: Sequence[Sequence[Any]]) -> None:
        records = columns_table(columns)
        lookup = str(self._path).removeprefix(f"{ROOT}ledger/").split("/")[0]
        scheduler().rules.are_stored_now(lookup, records)
        append(self, columns)
        scheduler().rules.stored(lookup, records)

    def watched_rows(
        self: TaskFiles, batches: Iterator[pa.RecordBatch], task: int, *, attempt: int = 0
    ) -> TaskResult:
        return write(self, scheduler().rules.watched(batches), task, attempt=attempt)

    LedgerFolder.write_part = watched_write  # type: ignore[method-assign]
    Journal.append = watched_append  # type: ignore[method-assign]
    TaskFiles.write = watched_rows  # type: ignore[method-assign]
