"""Checks before Spark starts: declaration against input, secrets, services, table."""

import functools
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.extras import require_extra
from jobs.errors import DeclarationError
from jobs.input.day import InputDay, find_input
from jobs.input.row_ids import id_columns
from jobs.input.same_values import refuse_old_dates
from jobs.run.engines.engine import LOCAL, LocalEngine, chosen_engine
from jobs.run.plan.column_checks import (
    check_chained,
    check_columns,
    check_event_time,
    check_files_columns,
)
from jobs.run.plan.service_checks import check_service, check_service_limits
from jobs.storage.stored_files import has_files
from jobs.storage.urls import absolute, below, is_circle, is_url
from jobs.storage.work_folders import RUNS, work_folder, work_place
from jobs.tables.records import run_records

if TYPE_CHECKING:
    from jobs.tables.delta.type_check import OpenTable

PATTERN = re.compile(r"[*?\[\]{}\\]")
PERCENT = re.compile("%[0-9A-Fa-f]{2}")


def preflight(
    enrichment: Enrichment,
    day: str,
    *,
    engine: str | None = None,
    elsewhere: bool = False,
    calls: bool = True,
) -> InputDay:
    """Check everything that needs neither Spark nor a call.

    Args:
        enrichment: The enrichment.
        day: The day.
        engine: As in `steps`.
        elsewhere: As in `find_day`.
        calls: Whether the run makes calls, so that its services must be there.

    Raises:
        DeclarationError: The declaration, its input or its environment is wrong.
        RunStopped: A service is down; it may recover before a restart.
    """
    # imports deltalake, which definitions load without
    from jobs.tables.delta.type_check import published_table

    published = published_table(enrichment)
    input_day = find_day(enrichment, day, published, elsewhere=elsewhere)
    check_input(enrichment, input_day, day, published, engine=engine, calls=calls)
    return input_day


def find_day(
    enrichment: Enrichment,
    day: str,
    published: "OpenTable | None" = None,
    *,
    elsewhere: bool = False,
) -> InputDay:
    """Find the input of a day, with the types of the published table, as `find_input`."""
    from jobs.tables.delta.type_check import published_columns, published_table

    columns = published_columns(published or published_table(enrichment))
    return find_input(enrichment, day, columns, elsewhere=elsewhere)


def check_input(
    enrichment: Enrichment,
    input_day: InputDay,
    day: str,
    published: "OpenTable | None" = None,
    *,
    engine: str | None = None,
    calls: bool = True,
) -> None:
    """Check found files before a run: all files of a day, or the files of a micro-batch."""
    for step in steps(enrichment, input_day, day, engine, published, calls=calls):
        step()


def run_folder(enrichment: Enrichment, run_id: str, *, on_store: bool = False) -> str:
    """Return the folder of a run's files, outside the days' folders: on the disk, or on the store
    that holds the table.
    """
    return absolute(below(work_place(enrichment.output.path, on_store=on_store), RUNS, run_id))


def require_new_run(enrichment: Enrichment, run_id: str, *, on_store: bool = False) -> None:
    """Raise DeclarationError if a run of this id has written before."""
    folder = run_folder(enrichment, run_id, on_store=on_store)
    if has_files(folder):
        raise DeclarationError(
            f"run-id {run_id!r} was used before: {folder} exists. Give each run a new id."
        )


def steps(
    enrichment: Enrichment,
    input_day: InputDay | None,
    day: str | None,
    engine: str | None = None,
    published: "OpenTable | None" = None,
    *,
    calls: bool = True,
) -> Iterator[Callable[[], object]]:
    """Yield the checks before a run in order. Each raises DeclarationError or RunStopped.

    Args:
        enrichment: The declaration.
        input_day: None if the input cannot be read: checks that need it are left out.
        day: The day.
        engine: That of the run; by default the engine that the environment chooses.
        published: Opens the published table, if the caller uses it too.
        calls: Whether the run makes any, so that its services are checked.
    """
    if is_url(enrichment.output.path):
        yield lambda: require_extra("s3", f"{enrichment.name}: output: {enrichment.output.path}")
    if input_day is not None and day is not None:
        yield from steps_of_day(enrichment, input_day, day, engine, published)
    if calls:
        yield lambda: check_ledger(enrichment)
    for lookup in enrichment.lookups if calls else ():
        yield functools.partial(
            check_service, enrichment, lookup, None if input_day is None else input_day.schema
        )
    yield functools.partial(check_service_limits, enrichment)


def steps_of_day(
    enrichment: Enrichment,
    input_day: InputDay,
    day: str,
    engine: str | None = None,
    published: "OpenTable | None" = None,
) -> Iterator[Callable[[], object]]:
    """Yield the checks of a day's files and columns, as in `steps`."""
    # they import deltalake, which definitions load without
    from jobs.tables.delta.type_check import check_types
    from jobs.tables.derived.summary_sql import check_summaries
    from jobs.tables.shown.shown_elsewhere import check_shown

    yield lambda: check_paths(enrichment, input_day)
    yield lambda: check_columns(enrichment, input_day.names)
    yield lambda: check_files_columns(enrichment, input_day.names)
    if enrichment.input.only_changed:
        yield lambda: refuse_old_dates(input_day.files)
        yield lambda: id_columns(enrichment, input_day)
    yield lambda: check_event_time(enrichment, input_day.schema)
    yield lambda: check_types(enrichment, input_day, published)
    yield lambda: check_shown(enrichment, input_day)
    yield lambda: check_summaries(enrichment, input_day, day)
    yield lambda: check_chained(enrichment, input_day)
    yield lambda: _check_engine(enrichment, input_day, engine)


def check_paths(enrichment: Enrichment, input_day: InputDay) -> None:
    """Check that the files of input, output and ledger can be opened by their paths."""
    output = absolute(str(work_folder(enrichment.output.path)))
    paths = [("input", absolute(file)) for file in input_day.files if not is_url(file)]
    paths.append(("output", output))
    wrong = [
        f"{where}: {path} has {found[0]!r}, which Spark takes for a pattern. Rename it."
        for where, path in paths
        if (found := PATTERN.search(path))
    ]
    ledger = [] if enrichment.ledger is None else [("ledger", enrichment.ledger.path)]
    for where, path in (("output", output), *ledger):
        if is_circle(path):
            wrong.append(f"{where}: {path} is a circle of links. Remove one of them.")
        elif Path(path).is_file():
            wrong.append(f"{where}: {path} is a file. Name a folder, or move the file.")
    if found := PERCENT.search(output):
        wrong.append(
            f"output: {output} has {found[0]!r}, which Delta takes for one character. Rename it."
        )
    DeclarationError.raise_for(wrong, enrichment.name)


def check_ledger(enrichment: Enrichment) -> None:
    """Raise DeclarationError if a ledger's folder is gone to which earlier runs wrote answers.

    A volume that is not mounted looks like a new ledger, and a run would pay for all answers again.
    On a store nothing tells a prefix that is gone from an empty one, and a missing bucket is an
    error.
    """
    if enrichment.ledger is None or is_url(enrichment.ledger.path):
        return
    folder = enrichment.ledger.path
    if Path(folder).exists():
        return
    stored = sum(
        figures.stored or 0
        for record in run_records.load(enrichment.name)
        if record.facts.declared.ledger == folder
        for figures in record.figures.lookups
    )
    if stored:
        raise DeclarationError(
            f"{enrichment.name}: ledger: {folder} is not there, but earlier runs stored "
            f"{stored:,} answers in it, and this run would pay for them again. Mount its volume or "
            "restore a backup. If you deleted it on purpose, make an empty folder: "
            f"mkdir -p {shlex.quote(folder)}"
        )


def _check_engine(enrichment: Enrichment, input_day: InputDay, option: str | None) -> None:
    """Raise DeclarationError for what the chosen engine cannot run."""
    if chosen_engine(option) == LOCAL:
        try:
            check_columns(enrichment, input_day.names)
        except DeclarationError:  # already reported
            return
        require_extra("spark", "the local engine")
        # imports pyspark, which checks for Spark do not need
        from jobs.run.rows.local_rows import LocalRows

        LocalRows.of(LocalEngine("check"), enrichment, input_day)
