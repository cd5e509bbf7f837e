"""Plays the commands that people give beside the runs: `forget` and `vacuum`."""

from collections.abc import Collection, Sequence
from datetime import timedelta

from jobs.commands import vacuum as commands
from jobs.ledger.keys import key_text
from jobs.tables.delta.asked_keys import KeysOf, files_of_days
from jobs.tables.erasing import without_rows
from jobs.tables.records.published_runs import last_published
from tests.simulation.publishing import project
from tests.simulation.publishing.night import Act
from tests.simulation.publishing.project import LOOKUP, NAME, TABLE, Written, day_of
from tests.simulation.publishing.world import World


def erase(world: World, act: Act) -> None:
    """`forget`, as it removes rows of a published day. Who was killed publishes the day again, also
    where no row is left.
    """
    number, run_id = world.begin_run("forget-")
    day = day_of(act.day)
    with world.told(run_id), world.leased(day, run_id) as lease:
        record = last_published(NAME, day, table=TABLE)
        files = sorted(file for of, file in files_of_days(world.enrichment) if of == day)
        if record is None:
            if files:
                world.fail(f"no record: of the run that published {day}: {world.rules.shown}")
            return
        if not files and act.day not in world.erasing:
            return
        shown = world.rules.rows_shown(day)
        gone = {row.id for row in shown if (row.id * 17 + number) % 10 < 10 * act.share}
        gone |= world.erasing.get(act.day, set())
        world.erasing[act.day] = gone
        world.rules.erased |= gone
        world.rules.runs[run_id] = _without(world, Written(run_id, day, number), files, gone)
        keys = KeysOf(LOOKUP, ("id",), {key_text((str(number),), hidden=False) for number in gone})
        removed = without_rows(record, files, keys, run_id=run_id, lease=lease)
        world.runs[run_id] = "published"
        del world.erasing[act.day]
        if removed != (wanted := sum(row.id in gone for row in shown)):
            world.fail(f"wrong count: {run_id} removed {removed} rows, not {wanted}")


def _without(
    world: World, written: Written, files: Sequence[str], gone: Collection[int]
) -> Written:
    """What a run writes that keeps the other rows of these files."""
    for place, file in enumerate(files):
        if rows := [row for row in world.rows_in(file) if row.id not in gone]:
            path = project.folder_of_rows(written) / f"part-{place:05}.parquet"
            written.files[str(path.relative_to(TABLE))] = rows
    return written


def vacuum(world: World, act: Act) -> None:
    with world.told("vacuum"):
        world.rules.removals.vacuum_begins(act.days)
        commands.vacuum(world.enrichment, older_than=timedelta(days=act.days))
