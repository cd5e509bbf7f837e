"""Plays who only looks, until the round is over: readers of the table and of the folders, and the
commands that show how the days are.
"""

from collections.abc import Sequence
from urllib.parse import unquote

import pyarrow.parquet as pq

from jobs.tables.delta.delta_log import table_at
from jobs.tables.leases.day_leases import at_work
from jobs.tables.records import run_records
from jobs.tables.records.published_runs import last_published
from jobs.tables.shown import shown_days
from tests.simulation.publishing.project import NAME, TABLE
from tests.simulation.publishing.world import World


def read(world: World) -> None:
    """A reader who takes his time between the table's log and its files."""
    while not world.is_over:
        opened_at = world.rules.now
        table = table_at(TABLE)
        if table is not None:
            version, files = table.version(), table.file_uris()
            world.scheduler.sleep(world.draws.choice((0.0, 0.5, 5.0)) * world.draws.random())
            _read_files(world, version, files, opened_at)
        if world.night.shows_folders:
            with world.folder.unseen():
                world.rules.readers.check_folders()
        world.scheduler.sleep(0.3 * world.draws.random())


def _read_files(world: World, version: int, files: Sequence[str], opened_at: float) -> None:
    found: list[tuple[str, int, float]] = []
    try:
        for uri in sorted(files):
            rows = pq.read_table(unquote(uri), columns=["id", "price"], partitioning=None)
            day = world.rules.readers.day_of_file(uri)
            pairs = zip(*(column.to_pylist() for column in rows.columns), strict=True)
            found += ((day, *row) for row in pairs)
    except FileNotFoundError as error:
        if not world.rules.readers.may_be_gone(opened_at):
            world.fail(f"a missing file: of version {version}: {error}")
    else:
        world.rules.readers.check_read(version, found)


def show_status(world: World) -> None:
    """`tidegate status` and `check`, again and again."""
    while not world.is_over:
        with world.told("status"):
            run_records.load(NAME)
            if torn := run_records.torn(NAME):
                world.fail(f"torn records: {torn}")
            with world.rules.leases.judged() as check:
                check(at_work(TABLE))
            for sentence in shown_days.lost_days(world.enrichment, run_records.load(NAME)):
                world.fail(f"lost: {sentence}")
            for day in [*world.rules.shown]:
                version = world.rules.version
                record = last_published(NAME, day, table=TABLE)
                # a folder of records that cannot be listed counts as empty
                is_known = record is not None or not world.has_errors
                if is_known and version == world.rules.version:
                    world.rules.readers.check_record_of_readers(day, record)
        world.scheduler.sleep(0.2 * world.draws.random())
