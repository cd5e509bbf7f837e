"""What is known of a run before Spark starts: tables of which nothing changed, the changed rows of others, and whether
the run is short.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.errors import TidegateError
from jobs.input.sizes import measure_files
from jobs.schema import DayRecord
from jobs.storage.locked_folders import temporary_folder

if TYPE_CHECKING:
    from jobs.declare.enrichment import Enrichment
    from jobs.run.changes.changed_rows import ChangedRows

SMALL_INPUT = 1 << 20  # bytes
FEW_ROWS = 20_000


@dataclass(frozen=True)
class BeforeSpark:
    """Of one run. changed: by day, what the Spark program need not find again."""

    enrichment: Enrichment
    ignore_ttl: bool
    changed: dict[str, ChangedRows] = field(default_factory=dict)

    def unchanged_record(self, day: str) -> DayRecord | None:
        """The record of a table without days of which the run would change no row; else None."""
        if not self.enrichment.input.only_changed:
            return None
        from jobs.run.changes.changed_rows import compare  # loads Arrow, which other runs do beside Spark's start

        with contextlib.suppress(TidegateError):  # the Spark program says so
            found = compare(self.enrichment, day, ignore_ttl=self.ignore_ttl)
            if isinstance(found, DayRecord):
                return found
            self.changed[day] = found
        return None

    def is_short(self, days: Sequence[str]) -> bool:
        """Whether the run is known to have few rows."""
        if self.enrichment.input.only_changed:
            rows = [self.changed[day].input_day.rows for day in days if day in self.changed]
            return len(rows) == len(days) and sum(rows) <= FEW_ROWS
        size = measure_files(self.enrichment.input, days)
        return size is not None and size <= SMALL_INPUT

    @contextlib.contextmanager
    def handed_over(self) -> Iterator[list[str]]:
        """Options by which the Spark program finds what changed; for one `with`."""
        if not self.changed:
            yield []
            return
        from jobs.run.changes.changed_rows import hand_over

        with temporary_folder() as folder:
            for day, changed in self.changed.items():
                hand_over(changed, Path(folder, day))
            yield ["--compared", str(folder)]
