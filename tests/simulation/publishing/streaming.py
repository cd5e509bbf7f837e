"""Plays a stream: Spark's side of `foreachBatch`, which does a batch again after a kill."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from jobs.input.day import InputDay
from jobs.schema.records import DayRecord
from jobs.streams.micro_batches import BatchHeldBack, MicroBatches
from jobs.tables.leftovers import delete_what_crashes_left
from tests.simulation.publishing import project
from tests.simulation.publishing.night import Act
from tests.simulation.publishing.project import Written
from tests.simulation.publishing.runs import save_run
from tests.simulation.publishing.world import Quality, World


def stream(world: World, act: Act) -> None:
    """A stream until nothing is new."""
    name = f"stream{world.scheduler.next_number()}"
    world.runs[name] = "at work"
    world.scheduler.me().process.state["is red"] = act.is_red
    with world.told(name):
        delete_what_crashes_left(world.enrichment)
        with world.folder.unseen():
            project.note_query()
        batches = MicroBatches(
            None,  # type: ignore[arg-type]  # nothing asks the session
            world.enrichment,
            Path(project.CHECKPOINT),
            Quality(),
            wait=30.0,
            published=partial(_note_published, world),
        )
        try:
            while (number := _next_batch(world)) is not None:
                batches(None, number)  # type: ignore[arg-type]
                with world.folder.unseen():
                    project.note_done(number)
                world.scheduler.sleep(world.draws.random())
        except BatchHeldBack:
            world.scheduler.say(name, "held back")
        else:
            world.runs[name] = "published"


def _next_batch(world: World) -> int | None:
    with world.folder.unseen():
        return project.next_batch(world.inputs.files)


def write_batch(world: World, rows: InputDay, day: str, run_id: str) -> DayRecord:
    """In place of `run_batch`, which needs Spark."""
    state = world.scheduler.me().process.state
    written = Written(run_id, day, len(world.runs) + 1, is_red=bool(state.pop("is red", False)))
    world.runs[run_id] = "of a batch"
    sources = {str(path): world.inputs.files[str(path)] for path in rows.files}
    return save_run(world, written, project.rows_of(sources, written.number), sources)


def _note_published(world: World, _number: int, records: Sequence[DayRecord], _late: int) -> None:
    for record in records:
        world.runs[record.facts.run_id] = record.state
        with world.folder.unseen():
            world.rules.said_published(record, alone=False)
