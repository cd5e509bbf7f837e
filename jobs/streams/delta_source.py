"""Reads a Delta table as the input of a stream: the files that its commits added, without a jar.

Spark's file source watches the table's log; each file there is a commit. Spark orders them by
modification time, which may be equal for two commits. So a batch covers whole version ranges: all
versions after the last version of the batches before it, up to its own last version.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError, naming
from jobs.input.day import InputDay, of_table
from jobs.input.delta import DeltaInput
from jobs.input.delta_commits import LOG, NAME, Commit, commit_version, read_commit
from jobs.storage import durable
from jobs.storage.urls import for_spark
from jobs.streams.published_sources import PublishedSources
from jobs.streams.stream_files import files_before, files_of_batch
from jobs.streams.stream_sources import Batch, Watched
from jobs.tables.records.published_runs import last_published

NONE_BEFORE = -1  # version before the first batch
FOLLOWED = "delta_table.json"  # in the checkpoint: id of the table


class DeltaSource:
    """The commits of a Delta table, partitioned by the day, as batches."""

    def __init__(self, enrichment: Enrichment, checkpoint: Path) -> None:
        self._enrichment, self._declared = enrichment, enrichment.input
        self._checkpoint = checkpoint
        self._published = PublishedSources(enrichment)
        self._last_number = self._last_version = NONE_BEFORE  # of the last requested batch

    def watched(self) -> Watched:
        """Return the commits in the table's log."""
        self._require_same_table(self._opened())
        return Watched(for_spark(f"{Path(self._declared.path).absolute()}/{LOG}"), NAME)

    def batch(self, number: int) -> Batch:
        before = self._last_before(number)
        last = max([before, *map(commit_version, files_of_batch(self._checkpoint, number))])
        self._last_number, self._last_version = number, last
        table = self._opened(last)
        self._require_same_table(table)
        return _DeltaBatch(self._enrichment, table, before, self._published)

    def _last_before(self, number: int) -> int:
        if self._last_number == number - 1 >= 0:
            return self._last_version
        return max(map(commit_version, files_before(self._checkpoint, number)), default=NONE_BEFORE)

    def _opened(self, version: int | None = None) -> DeltaInput:
        declared = self._declared
        with naming(self._enrichment.name):
            return DeltaInput.at(declared.path, declared.partition, version, every=declared.every)

    def _require_same_table(self, table: DeltaInput) -> None:
        """Refuse another table at the same place: the stream would skip its versions as seen."""
        file = self._checkpoint / FOLLOWED
        if not durable.is_there(file):
            durable.make_folder(self._checkpoint)
            durable.write(file, json.dumps({"id": table.id}).encode())
        elif json.loads(file.read_text(encoding="utf-8"))["id"] != table.id:
            raise DeclarationError(
                f"{self._enrichment.name}: input: {table.root} is another table than the one that "
                "this stream has read; delete the checkpoint "
                f"{self._checkpoint} to begin anew."
            )


@dataclass(frozen=True)
class _DeltaBatch:
    """The versions after `before`, up to `table.version`; all rows if `before` is NONE_BEFORE."""

    enrichment: Enrichment
    table: DeltaInput
    before: int
    published: PublishedSources
    commits: dict[int, Commit] = field(default_factory=dict)  # those read, by version

    @property
    def days(self) -> Sequence[str]:
        if self.before == NONE_BEFORE:
            with naming(self.enrichment.name):
                return self.table.days()
        return sorted(
            {
                day
                for change in self._commits_after(self.before)
                for day in (*change.added, *change.removed)
            }
        )

    def new_files(self, day: str) -> Sequence[Path]:
        last = max(self.before, self._published_version(day))  # whose rows are published
        added = (
            self._live_files(day)
            if last == NONE_BEFORE
            else self._added_files(self._commits_after(last), day)
        )
        new = self.published.without(added, day)
        self._require_there(new, day)
        return new

    def rows_of(self, files: Sequence[Path], published: pa.Schema | None) -> InputDay:
        return of_table(files, self.table, published, self.enrichment.output.path)

    def _live_files(self, day: str) -> list[Path]:
        """Return the day's files. Raises DeclarationError if a vector deletes rows of them."""
        name = self.enrichment.name
        try:
            with naming(name):
                return [Path(file.place) for file in self.table.files(day)]
        except DeclarationError as error:  # the version of a batch that has begun stays
            raise DeclarationError(
                f"{error} Then run the day, `tidegate run {name} --day {day}`, and start the "
                "stream again."
            ) from error

    def _commits_after(self, version: int) -> list[Commit]:
        versions = range(version + 1, self.table.version + 1)
        for number in versions:
            if number not in self.commits:
                with naming(self.enrichment.name):
                    self.commits[number] = read_commit(self.table, number)
        return [self.commits[version] for version in versions]

    def _published_version(self, day: str) -> int:
        """Return the input version that the day's published rows come from. A run of the day may
        have read further than the stream.
        """
        record = last_published(self.enrichment.name, day, table=self.enrichment.output.path)
        if (
            record is None
            or record.facts.input_version is None
            or record.facts.input_table != self.table.id
        ):
            return NONE_BEFORE
        return record.facts.input_version

    def _added_files(self, changes: Sequence[Commit], day: str) -> list[Path]:
        """Return added files. Raises DeclarationError for removed rows that may not be skipped."""
        removing = next((change.version for change in changes if day in change.removed), None)
        if removing is not None and not self.enrichment.input.skip_change_commits:
            name, table = self.enrichment.name, self.table
            # a run reads the last version, which may have the day's rows again
            if day in DeltaInput.at(table.root, table.partition, every=table.every).days():
                does = "deletes or changes rows"
                run = f"`tidegate run {name} --day {day}`"
                cure = f"run the day, {run}, and start the stream again, or"
            else:
                does, cure = "deletes all rows", "no run can replace what is published of it:"
            raise DeclarationError(
                f"{name}: input: version {removing} of {table.root} {does} of {day}, and a stream "
                f"only adds rows; {cure} declare Input(skip_change_commits=True)."
            )
        return [
            file
            for change in changes
            if day not in change.removed
            for file in change.added.get(day, ())
        ]

    def _require_there(self, files: Sequence[Path], day: str) -> None:
        name = self.enrichment.name
        if gone := next((file for file in files if not file.exists()), None):
            raise DeclarationError(
                f"{name}: input: {gone} was deleted before the stream read it, as vacuum does with "
                f"a file that was rewritten; run the day, `tidegate run {name} --day {day}`, and "
                "start the stream again."
            )
