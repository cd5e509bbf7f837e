"""Finds the rows that a run of `Input(rows="changed")` enriches (new, changed, or past their
`ttl`), and the published rows that stay. Arrow compares them in the driver, without Spark.
"""

import contextlib
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from jobs.declare.enrichment import Enrichment
from jobs.errors import TidegateError
from jobs.input.day import FileFacts, InputDay
from jobs.input.row_comparison import Flags, ParquetRows, Places, differ, matching, repeated
from jobs.input.row_ids import chosen, read_row_ids
from jobs.input.staged_files import FOLDER as STAGED
from jobs.run.changes.published_rows import PublishedRows
from jobs.run.engines.stages import Stage, ThreadStage
from jobs.run.plan.column_checks import check_columns
from jobs.run.plan.preflight import find_day
from jobs.schema.columns import OUTCOMES
from jobs.schema.records import DayFacts, DayMetrics, DayRecord, LookupMetrics, RowChanges
from jobs.storage.urls import below, is_url
from jobs.storage.work_folders import work_place
from jobs.tables.delta.copied_rows import keep_rows
from jobs.tables.delta.delta_log import table_at

Clock = Callable[[], int]  # µs since the epoch


@dataclass(frozen=True)
class ChangedRows:
    """The rows of a table without days that a run enriches.

    Attributes:
        input_day: The rows.
        changes: Numbers of new, changed, expired, gone and kept rows.
        compared: The facts of the input's files when they were compared.
        stay: The published files, each with its rows that stay.
    """

    input_day: InputDay
    changes: RowChanges
    compared: FileFacts
    stay: tuple[tuple[str, pa.BooleanArray], ...] = ()


def find_changes(
    enrichment: Enrichment,
    input_day: InputDay,
    day: str,
    *,
    ignore_ttl: bool = False,
    stage: Stage | None = None,
    clock: Clock = lambda: time.time_ns() // 1000,
) -> ChangedRows:
    """Compare the input with what is published. Writes the rows to enrich beside the output,
    unless all rows are enriched.

    All rows are new if nothing is published yet, or if the lookup that published them was declared
    differently.

    Args:
        enrichment: As declared.
        input_day: The rows of the input.
        day: Names them.
        ignore_ttl: Use answers of any age.
        stage: Has tasks on other machines write the rows; by default this process does.
        clock: Tells the time.

    Raises:
        DeclarationError: A row's id is null, or several rows share it; or the rows cannot be
            written.
    """
    return Comparison.of(enrichment, input_day, day, ignore_ttl=ignore_ttl, now_us=clock()).found(
        stage
    )


def hand_over(changed: ChangedRows, path: Path) -> None:
    """Save the found rows for the program that is started next."""
    path.write_bytes(pickle.dumps(changed))


def taken_over(path: Path, input_day: InputDay) -> ChangedRows | None:
    """Return the rows that the starter of this program found; None if it left none, or if the
    input has changed since.
    """
    if not path.exists():
        return None
    changed: ChangedRows = pickle.loads(path.read_bytes())  # noqa: S301  # our file, in a folder that only we can enter
    return changed if changed.compared == input_day.facts else None


def with_kept_rows(facts: DayFacts, changed: ChangedRows, stage: Stage) -> DayFacts:
    """Return the facts of a written run with the rows that stay, which tasks copied beside its
    files.

    Raises:
        TidegateError: Not all of the rows were copied.
    """
    kept = keep_rows(changed.stay, facts.rows_folder, stage.run)
    rows = sum(file.rows for file in kept)
    if rows != changed.changes.kept:
        raise TidegateError(
            f"{rows:,} of {changed.changes.kept:,} unchanged rows were copied; "
            "nothing is published."
        )
    written = (*facts.written, *kept) if is_url(facts.folder) else ()
    kept_files = tuple(file.place for file in kept)
    return replace(facts, changes=changed.changes, kept_files=kept_files, written=written)


def compare(
    enrichment: Enrichment,
    day: str,
    *,
    ignore_ttl: bool = False,
    elsewhere: bool = False,
    clock: Clock = lambda: time.time_ns() // 1000,
) -> ChangedRows | DayRecord | None:
    """Find what a run would enrich. If a run would change no row and no verdict, return the
    published record instead, with the figures of a run without rows.

    Writes nothing but copies of the input.

    Args:
        enrichment: As declared.
        day: Names the rows.
        ignore_ttl: Use answers of any age.
        elsewhere: Tasks run on other machines; None is returned where they find and write the rows
            to enrich.
        clock: Tells the time.

    Raises:
        DeclarationError: The input is wrong.
    """
    input_day = find_day(enrichment, day, elsewhere=elsewhere)
    check_columns(enrichment, input_day.names)
    comparison = Comparison.of(enrichment, input_day, day, ignore_ttl=ignore_ttl, now_us=clock())
    published = comparison.published
    with contextlib.suppress(pa.ArrowException):
        if (
            published is not None
            and published.are_judged_as_now(enrichment)
            and comparison.finds_nothing()
        ):
            record = published.record
            changes = RowChanges(0, 0, 0, 0, comparison.ids.num_rows, comparison.over)
            return replace(
                record,
                facts=replace(record.facts, changes=changes),
                figures=_nothing_done(record.figures),
            )
    return None if elsewhere else comparison.found()


def _nothing_done(before: DayMetrics) -> DayMetrics:
    none: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
    lookups = (
        LookupMetrics(lookup.name, none, 0, 0, 0.0, 0.0, None, None) for lookup in before.lookups
    )
    return DayMetrics(0, 0, 0, tuple(lookups))


@dataclass(frozen=True)
class Comparison:
    """Input rows and published rows, both numbered.

    Attributes:
        ids: The row ids of the input.
        published: The published rows; None if they cannot be compared.
        published_ids: Their row ids.
        now_us: The time of the comparison, in µs since the epoch.
        ignore_ttl: Whether published answers of any age are kept.
        over: How many publications the day has had.
        compared: The facts of the input files.
    """

    enrichment: Enrichment
    input_day: InputDay
    day: str
    ids: pa.Table
    published: PublishedRows | None
    published_ids: pa.Table
    now_us: int
    ignore_ttl: bool
    over: int
    compared: FileFacts

    @classmethod
    def of(
        cls, enrichment: Enrichment, input_day: InputDay, day: str, *, ignore_ttl: bool, now_us: int
    ) -> Self:
        """Read both sides. Raises DeclarationError for ids that are null or repeat."""
        compared = input_day.facts  # before they are read
        ids = read_row_ids(enrichment, input_day)
        partition = f"{enrichment.input.partition}={day}"
        table = table_at(enrichment.output.path)
        over = 0 if table is None else table.transaction_version(partition) or 0
        published, there = PublishedRows.of(enrichment, day), ids.schema.empty_table()
        if published is not None:
            try:
                there = published.columns(ids.schema)
            # a file is lost or torn, or its ids have another type, which `check_types` refuses
            except (pa.ArrowException, FileNotFoundError):
                published = None
            # published by a run of all rows
            if repeated(there) or any(column.null_count for column in there.columns):
                published = None
        return cls(
            enrichment, input_day, day, ids, published, there, now_us, ignore_ttl, over, compared
        )

    @cached_property
    def pairs(self) -> tuple[Places, Places]:
        return matching(self.ids, self.published_ids)

    def found(self, stage: Stage | None = None) -> ChangedRows:
        if self.published is not None:
            # if values cannot be compared, all rows count as new
            with contextlib.suppress(pa.ArrowException):
                return self.changes(stage)
        return ChangedRows(
            self.input_day, RowChanges(self.ids.num_rows, 0, 0, 0, 0, self.over), self.compared
        )

    def finds_nothing(self) -> bool:
        known, _ = self.pairs
        if not len(known) == self.ids.num_rows == self.published_ids.num_rows:
            return False
        return not self._expired.any() and not self._changed.any()

    def changes(self, stage: Stage | None = None) -> ChangedRows:
        (known, there), changed = self.pairs, self._changed
        expired = self._expired & ~changed
        wanted = np.ones(self.ids.num_rows, np.bool_)
        wanted[known] = changed | expired
        stay = np.zeros(self.published_ids.num_rows, np.bool_)
        stay[there] = ~(changed | expired)
        counted = RowChanges(
            new=self.ids.num_rows - len(known),
            changed=int(changed.sum()),
            expired=int(expired.sum()),
            gone=self.published_ids.num_rows - len(known),
            kept=int(stay.sum()),
            over=self.over,
        )
        assert self.published is not None
        by_file = tuple((file, pa.array(flags)) for file, flags in self.published.by_file(stay))
        table, partition = self.enrichment.output.path, self.enrichment.input.partition
        work = work_place(table, on_store=stage is not None and is_url(table))
        folder = below(work, STAGED, f"{partition}={self.day}")
        rows = chosen(self.input_day, wanted, folder, (stage or ThreadStage()).run)
        return ChangedRows(rows, counted, self.compared, by_file)

    @cached_property
    def _changed(self) -> Flags:
        """Which of the pairs differ."""
        changed = np.zeros(len(self.pairs[0]), np.bool_)
        for differs in self._differences():
            changed |= differs
        return changed

    def _differences(self) -> Iterator[Flags]:
        assert self.published is not None
        of_input = ParquetRows(self.input_day.files)
        fields = {field.name.lower(): field for field in self.published.input_columns}
        fields |= {field.name.lower(): field for field in self.input_day.schema}
        ids = {name.lower() for name in self.ids.column_names}
        for types in (pa.schema([field]) for name, field in fields.items() if name not in ids):
            one, other = of_input.columns(types).column(0), self.published.columns(types).column(0)
            yield differ(one, self.pairs[0], other, self.pairs[1])

    @cached_property
    def _expired(self) -> Flags:
        assert self.published is not None
        expired = self.published.expired(
            self.enrichment, now_us=self.now_us, ignore_ttl=self.ignore_ttl
        )
        found: Flags = expired[self.pairs[1]]
        return found
