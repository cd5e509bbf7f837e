"""Plays a run of a day, from its lease to its summaries; its Spark program is a child process."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.errors import TidegateError
from jobs.process.publish_decision import publish_or_hold_back
from jobs.run.changes.changed_rows import ChangedRows, with_kept_rows
from jobs.run.engines.stages import ProcessStage
from jobs.schema.records import DayRecord, RowChanges
from jobs.tables.delta.asked_keys import files_of_days
from jobs.tables.delta.delta_log import table_at
from jobs.tables.derived.summaries import summarize
from jobs.tables.records import run_records
from jobs.tables.shown.shown_as_parquet import refuse_foreign
from tests.simulation.processes import Process
from tests.simulation.publishing import project
from tests.simulation.publishing.night import Act
from tests.simulation.publishing.project import TABLE, Row, Written, day_of
from tests.simulation.publishing.world import ProgramEnded, Quality, World

LONGEST = 3600.0  # s; of whatever is done in a round
ORPHANS_LIVE = 5.0  # s at most
ONE_BY_ONE = ProcessStage(1, lambda: False)


def run(world: World, act: Act) -> None:
    """A run of a day, from its lease to its summaries."""
    number, run_id = world.begin_run("run")
    day = day_of(act.day)
    with world.told(run_id), world.leased(day, run_id) as lease:
        if world.night.shows_folders:
            refuse_foreign(world.enrichment)
        written = Written(
            run_id, day, number, is_red=act.is_red, has_new_column=_has_new_column(world, number)
        )
        work = partial(_write_changed if act.does == "changed run" else _write, world, written, act)
        record = _in_a_child(world, written, lease.file, work)
        record = publish_or_hold_back(record, Quality().keep, lease)
        world.runs[run_id] = record.state
        if record.state == "published":
            with world.folder.unseen():
                world.rules.said_published(record)
            for summary in world.enrichment.summaries:
                summarize(world.enrichment, summary, day)
        elif not act.is_red:
            world.fail(f"held back: {run_id} without a red verdict: {record.reason}")


def _has_new_column(world: World, number: int) -> bool:
    return bool(world.night.new_column_from) and number >= world.night.new_column_from


def _in_a_child(
    world: World, written: Written, lease: int | None, work: Callable[[], DayRecord]
) -> DayRecord:
    """The Spark program of a run, which inherits its lease, writes the files and saves the
    record.
    """
    assert lease is not None
    inherited = os.dup(lease)
    done: list[DayRecord] = []

    def in_child() -> None:
        try:
            done.append(work())
        except (TidegateError, OSError) as error:
            world.scheduler.say(written.run_id, "failed in its child")
            if not world.has_errors:
                world.fail(f"{written.run_id} failed in its child: {error!r}")
        finally:
            os.close(inherited)

    child = world.scheduler.spawn(f"{written.run_id}.spark", in_child)
    world.rules.leases.children[written.day] = child, written.run_id
    me = world.scheduler.me().process
    me.on_exit.append(lambda: _orphaned(world, child))
    world.scheduler.wait_for(child, LONGEST)
    if not done:
        raise ProgramEnded
    return done[0]


def _orphaned(world: World, child: Process) -> None:
    """Its run was killed: the guard ends it a little later."""
    world.scheduler.after(
        ORPHANS_LIVE * world.draws.random() ** 2, lambda: world.scheduler.kill(child)
    )


def _write(world: World, written: Written, _act: Act) -> DayRecord:
    files = world.inputs.of_day(written.day)
    return save_run(world, written, project.rows_of(files, written.number), files)


def save_run(
    world: World,
    written: Written,
    rows: Sequence[Row],
    sources: Any,
    changed: ChangedRows | None = None,
) -> DayRecord:
    """Write a run's files and its record, as the Spark program does."""
    world.rules.runs[written.run_id] = written
    world.scheduler.sleep(world.draws.choice((0.0, 0.1, 2.0)) * world.draws.random())
    parts = world.draws.choice((1, 2, 3))
    folder = project.folder_of_rows(written)
    project.write_files(written, [rows[part::parts] for part in range(parts)], folder=folder)
    record = project.find_record(_declared(world, written), written, sources, world.today())
    record = project.with_figures(record, rows)
    if changed is not None:
        record = replace(record, facts=with_kept_rows(record.facts, changed, ONE_BY_ONE))
    return run_records.save(record)


def _declared(world: World, written: Written) -> Any:
    if not written.has_new_column:
        return world.enrichment
    return project.declared(
        shows_folders=world.night.shows_folders,
        makes_summaries=world.night.makes_summaries,
        has_new_column=True,
    )


def _write_changed(world: World, written: Written, act: Act) -> DayRecord:
    """A run that keeps some of the rows that readers see, and enriches the rest of the input."""
    day = written.day
    table = table_at(TABLE)
    over = 0 if table is None else table.transaction_version(f"date={day}") or 0
    files = {file: world.rows_in(file) for of, file in files_of_days(world.enrichment) if of == day}
    keeps = {
        row.id
        for rows in files.values()
        for row in rows
        if (row.id * 31 + written.number) % 10 >= 10 * act.share
    }
    stay, kept = [], []
    for file, rows in sorted(files.items()):
        stay.append((file, pa.array([row.id in keeps for row in rows])))
        kept += [row for row in rows if row.id in keeps]
    sources = world.inputs.of_day(day)
    new = [row for row in project.rows_of(sources, written.number) if row.id not in keeps]
    counts = RowChanges(len(new), 0, 0, 0, len(kept), over)
    changed = ChangedRows(None, counts, (), tuple(stay))  # type: ignore[arg-type]  # the input is not asked for
    record = save_run(world, written, new, sources, changed)
    for file in record.facts.kept_files:
        rows = [kept.pop(0) for _ in range(pq.read_metadata(file).num_rows)]
        written.files[str(Path(file).relative_to(Path(TABLE).resolve()))] = rows
    return record
