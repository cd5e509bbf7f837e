"""Finds out before Spark starts which tables did not change, which rows of the others changed,
which days wait for jobs of vendors, and whether the run is short.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.declare.coroutine_lookup import CoroutineLookup
from jobs.declare.function_lookup import AsyncFunctionLookup
from jobs.declare.inputs import TABLES
from jobs.declare.vendor_jobs import JobLookup, places_of_jobs
from jobs.errors import DeclarationError, TidegateError
from jobs.input.day import files_in
from jobs.schema.records import DayRecord
from jobs.storage.locked_folders import temporary_folder
from jobs.storage.stored_files import StoredFile, version_of
from jobs.storage.urls import is_url

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment
    from jobs.run.changes.changed_rows import ChangedRows

SMALL_INPUT = 1 << 20  # bytes
FEW_ROWS = 20_000


@dataclass(frozen=True)
class BeforeSpark:
    """What is known of a run before Spark starts.

    Attributes:
        enrichment: As declared.
        ignore_ttl: Use answers of any age.
        elsewhere: Spark's tasks run on other machines.
        changed: By day, the changed rows, which the Spark program need not find again.
        files: By day, the input's files, where a look at them is cheap.
    """

    enrichment: Enrichment
    ignore_ttl: bool
    elsewhere: bool = False
    changed: dict[str, ChangedRows] = field(default_factory=dict)
    files: dict[str, list[StoredFile]] = field(default_factory=dict)

    def unchanged_record(self, day: str) -> DayRecord | None:
        """Return the record of a table without days if the run would change no row; or None."""
        if not self.enrichment.input.only_changed:
            return None
        # imports Arrow, which other runs do while Spark starts
        from jobs.run.changes.changed_rows import compare

        with contextlib.suppress(TidegateError):  # the Spark program says so
            places = self.enrichment.input.path, self.enrichment.output.path
            elsewhere = self.elsewhere and any(map(is_url, places))
            found = compare(self.enrichment, day, ignore_ttl=self.ignore_ttl, elsewhere=elsewhere)
            if isinstance(found, DayRecord):
                return found
            if found is not None:
                self.changed[day] = found
        return None

    def waits_for(self, day: str, *, may_submit: bool) -> str:
        """Return which jobs of vendors the day still waits for, after a look; empty if none.

        may_submit: Whether a run of the day may submit items. Raises TidegateError if the look
        fails.
        """
        if not any(isinstance(lookup, JobLookup) for lookup in self.enrichment.lookups):
            return ""
        from jobs.run.keys.vendor_jobs.waiting_days import look_again  # imports aiohttp, Arrow

        return look_again(self.enrichment, day, may_submit=may_submit)

    @property
    def has_jobs(self) -> bool:
        """Whether jobs can be submitted without Spark."""
        return not self.enrichment.input.only_changed and bool(
            places_of_jobs(self.enrichment.lookups)
        )

    @property
    def runs_code_of_users(self) -> bool:
        """Whether a lookup may print, or block or end its process."""
        of_users = (AsyncFunctionLookup, CoroutineLookup)
        return any(isinstance(lookup, of_users) for lookup in self.enrichment.lookups)

    def list_files(self, days: Sequence[str]) -> None:
        """Note the files of these days, for `is_short` and `files_version`."""
        declared = self.enrichment.input
        # requests to a store, or the log of a table, would tell
        if declared.only_changed or is_url(declared.path) or declared.format in TABLES:
            return
        with contextlib.suppress(DeclarationError):  # the run says so
            self.files.update({day: files_in(declared, day) for day in days})

    def files_version(self, day: str) -> str:
        """Return the version of the day's files as they were listed; empty if they were not."""
        return version_of(self.files[day]) if day in self.files else ""

    def is_short(self, days: Sequence[str]) -> bool:
        """Return whether the run is known to have few rows."""
        if self.enrichment.input.only_changed:
            rows = [self.changed[day].input_day.rows for day in days if day in self.changed]
            return len(rows) == len(days) and sum(rows) <= FEW_ROWS
        sizes = [sum(file.size for file in self.files[day]) for day in days if day in self.files]
        return len(sizes) == len(days) and sum(sizes) <= SMALL_INPUT

    @contextlib.contextmanager
    def handed_over(self) -> Iterator[list[str]]:
        """Yield options by which the Spark program finds the changed rows."""
        if not self.changed:
            yield []
            return
        from jobs.run.changes.changed_rows import hand_over

        with temporary_folder() as folder:
            for day, changed in self.changed.items():
                hand_over(changed, Path(folder, day))
            yield ["--compared", str(folder)]
