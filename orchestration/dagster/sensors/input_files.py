"""Notices new and changed input files, and runs the days they belong to again."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster import RunsFilter

from jobs.declare.values.calendar import day_begin, hours_between, is_day
from jobs.input.day import files_in
from jobs.schema.records import DayFacts, UnwrittenRun
from jobs.storage.stored_files import version_of
from jobs.tables.records import run_records
from orchestration.common.deadlines import yesterday
from orchestration.dagster.assets.day_status import is_left_over, unfinished_runs
from orchestration.dagster.declared import Declared

# how many days or hours are watched, back from the last one that ended; a change in an older one
# waits for a backfill
DAYS, HOURS = 7, 24
QUIET = 120.0  # s; younger files may still be written


@dataclass(frozen=True)
class DayFiles:
    files: int
    bytes: int
    newest: float  # s since the epoch
    version: str


def find_day_files(declared: Declared, day: str) -> DayFiles | None:
    found = files_in(declared.enrichment.input, day)
    if not found:
        return None
    return DayFiles(
        len(found),
        sum(file.size for file in found),
        max(file.changed_ns for file in found) / 1e9,
        version_of(found),
    )


class InputScan:
    """Looks at the last days of an input for new files, and requests runs of its readers.

    A day of the last DAYS is run when its files are new to us, or changed since its last run began.
    Yesterday is left to the schedule, if any, until the schedule has run it. An enrichment that no
    run ever began is left to a person, because its calls may cost money, and so are days that a run
    of several days did not begin.
    """

    def __init__(
        self,
        instance: dg.DagsterInstance,
        readers: Sequence[Declared],
        known: Mapping[str, str],
        now: dt.datetime,
    ) -> None:
        self._instance = instance
        self._readers = readers
        self._known = known  # day -> version of the day's files
        self._now = now
        self.seen: dict[str, str] = {}
        self.events: list[dg.AssetMaterialization] = []
        self.requests: list[dg.RunRequest] = []

    def at_days(self) -> None:
        for day in self._last_days():
            readers = [reader for reader in self._readers if reader.days.has_partition_key(day)]
            found = find_day_files(readers[0], day) if readers else None
            if found is None or self._is_new(readers, day, found):
                continue
            # keep the version noted before, so that the next look tries this day again
            self.seen |= {day: self._known[day]} if day in self._known else {}

    def _last_days(self) -> list[str]:
        """Return the watched names in declared order, then hours, then days; the last two newest
        first.
        """
        ended = [yesterday(reader.enrichment, self._now) for reader in self._readers]
        by_name = [
            reader.enrichment.input.every
            for reader in self._readers
            if not isinstance(reader.enrichment.input.every, str)
        ]
        found = list(dict.fromkeys(name for names in by_name for name in names))
        if hour := max((day for day in ended if is_day(day, "hour")), default=None):
            begin = day_begin(hour, "UTC")
            found += hours_between(
                begin - dt.timedelta(hours=HOURS - 1), begin + dt.timedelta(hours=1)
            )[::-1]
        if day := max((ended_day for ended_day in ended if is_day(ended_day)), default=None):
            found += [
                (dt.date.fromisoformat(day) - dt.timedelta(days=back)).isoformat()
                for back in range(DAYS)
            ]
        return found

    def _is_new(self, readers: Sequence[Declared], day: str, found: DayFiles) -> bool:
        """Note the files and request runs; return False, and do nothing, if the files are
        known, still young, or their day is at work.
        """
        settled = self._now.timestamp() - found.newest >= QUIET
        at_work = any(unfinished_runs(self._instance, reader, day) for reader in readers)
        if self._known.get(day) == found.version or not settled or at_work:
            return False
        self.seen[day] = found.version
        self.events.append(
            dg.AssetMaterialization(
                readers[0].raw_key,
                description="New or changed files.",
                partition=day,
                metadata={
                    "files": found.files,
                    "bytes": found.bytes,
                    "newest": dg.MetadataValue.timestamp(found.newest),
                },
                tags={"dagster/data_version": found.version},
            )
        )
        for reader in readers:
            began, version = _last_begun(reader, day)
            was_read = (
                version == found.version
                if version
                else began >= found.newest or self._is_left_over(reader, day, found)
            )
            if not was_read and self._may_run(reader, day):
                # files may become again as they were before the last run, which starts with others
                key = f"{reader.name} {day} {found.version} after {began}"
                self.requests.append(
                    dg.RunRequest(key, job_name=reader.job_name, partition_key=day)
                )
        return True

    def _is_left_over(self, reader: Declared, day: str, found: DayFiles) -> bool:
        since = dt.datetime.fromtimestamp(found.newest, dt.UTC)
        return is_left_over(self._instance, reader, day, since)

    def _may_run(self, reader: Declared, day: str) -> bool:
        if not run_records.any_run(reader.name):
            return False
        if reader.enrichment.schedule is None or day != yesterday(reader.enrichment, self._now):
            return True
        of_day = RunsFilter(job_name=reader.job_name, tags={"dagster/partition": day})
        return bool(self._instance.get_runs(of_day, limit=1))


def _last_begun(reader: Declared, day: str) -> tuple[float, str]:
    """Return when the day's last run began, also one that failed, and the version of its files."""
    runs: list[DayFacts | UnwrittenRun] = [*run_records.unwritten(reader.name, day)]
    runs += [record.facts for record in run_records.load(reader.name, day)]
    begun = [
        (dt.datetime.fromisoformat(run.started_at).timestamp(), run.files_version) for run in runs
    ]
    # without a version: runs of older versions, and runs that ended before they looked at the files
    return max([pair for pair in begun if pair[1]] or begun, default=(0.0, ""))
