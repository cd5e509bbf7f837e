"""Loads the product's modules that nights of publishing drive, and puts the simulation
below them.
"""

import contextlib
import datetime as dt
import fcntl
import functools
import os
from collections.abc import Iterator
from typing import Any

import deltalake
import deltalake.transaction
from deltalake import DeltaTable
from deltalake.table import TableAlterer

import jobs.commands.vacuum
import jobs.run.day
import jobs.run.plan.preflight
import jobs.streams.batch_publishing
import jobs.streams.micro_batches
import jobs.tables.delta.delta_log
import jobs.tables.leases.day_leases
import jobs.tables.publishing
from tests.simulation import clock, installation
from tests.simulation.night_at_work import scheduler
from tests.simulation.product import install as install_below
from tests.simulation.publishing import streaming
from tests.simulation.publishing.folder import flock, fsync, listen, step_before, stepped
from tests.simulation.publishing.world import AHEAD

READS = ("__init__", "update_incremental", "history", "get_add_actions", "file_uris")
COMMITS = ("create_write_transaction", "delete", "vacuum")


class NightTime(dt.datetime):
    """Which knows the night's time of day."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> "NightTime":
        return cls.fromtimestamp(clock.time(), tz)


@functools.cache
def install() -> None:
    """Once for the process, which then runs nights and nothing else."""
    install_below()
    _step_deltalake()
    night_time = installation.stand_in(dt, datetime=NightTime)
    jobs.tables.publishing.dt = jobs.streams.batch_publishing.dt = night_time  # type: ignore[assignment]
    jobs.tables.leases.day_leases.datetime = NightTime  # type: ignore[misc]
    below = installation.REPLACED[id(os)]  # which stands in the modules already
    below.fsync, below.pwrite = fsync, step_before(os.pwrite, "pwrite")
    installation.replace_everywhere(
        {
            fcntl: installation.stand_in(fcntl, flock=flock),
            deltalake.write_deltalake: stepped(deltalake.write_deltalake, "write", commits=True),
            deltalake.transaction.create_table_with_add_actions: stepped(
                deltalake.transaction.create_table_with_add_actions,
                "create with files",
                commits=True,
            ),
            jobs.tables.delta.delta_log.checkpoint_settings: _checkpoints,
            jobs.tables.leases.day_leases.leased: _watched(jobs.tables.leases.day_leases.leased),
            jobs.run.day.run_batch: _written_by_the_stage,
            jobs.run.plan.preflight.check_input: lambda *_: None,
        }
    )
    # the times of files are real, and behind the night's
    jobs.commands.vacuum.LONGEST_WRITE += AHEAD
    listen()


def _step_deltalake() -> None:
    for name in (*READS, *COMMITS):
        setattr(
            DeltaTable,
            name,
            stepped(getattr(DeltaTable, name), name.strip("_"), commits=name in COMMITS),
        )
    create, partitions = DeltaTable.create.__func__, DeltaTable.partitions  # type: ignore[attr-defined]
    DeltaTable.create = classmethod(stepped(create, "create", commits=True))  # type: ignore[method-assign, assignment]
    TableAlterer.add_columns = stepped(TableAlterer.add_columns, "add columns", commits=True)  # type: ignore[method-assign]

    def in_order(self: DeltaTable, *arguments: Any) -> list[dict[str, Any]]:
        return sorted(partitions(self, *arguments), key=str)

    DeltaTable.partitions = in_order  # type: ignore[method-assign, assignment]


def _checkpoints(_table: str) -> dict[str, str]:
    """A new table sums up its log as often as the night says."""
    interval = scheduler().world.night.sums_up
    return {"delta.checkpointInterval": str(interval)} if interval else {}


def _watched(leased: Any) -> Any:
    """Tell the night's rules who holds which day."""

    @contextlib.contextmanager
    def watched(
        table: str, day: str, run_id: str, **wait: float
    ) -> Iterator[jobs.tables.leases.day_leases.Lease]:
        rules = scheduler().rules.leases
        with rules.asking(day), leased(table, day, run_id, **wait) as lease:
            rules.taken(day, run_id)
            try:
                yield lease
            finally:
                rules.left(day)

    return watched


def _written_by_the_stage(
    _enrichment: object, rows: Any, day: str, run_id: str, **_: object
) -> Any:
    return streaming.write_batch(scheduler().world, rows, day, run_id)
