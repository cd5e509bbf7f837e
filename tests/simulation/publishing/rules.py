"""What must hold in a night of publishing, checked after each commit, before each removal, and by
readers.

The rules know what each run wrote, and read the logs of the tables by themselves.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.schema.records import DayRecord
from jobs.tables import audit, dead_letters
from jobs.tables.records import run_records
from tests.simulation.night_at_work import scheduler
from tests.simulation.publishing.lease_rules import LeaseRules
from tests.simulation.publishing.logs import Added, Entry, Log
from tests.simulation.publishing.project import BY_MARK, NAME, TABLE, Inputs, Row, Written
from tests.simulation.publishing.reader_rules import ReaderRules
from tests.simulation.publishing.removal_rules import DAY, RemovalRules

Days = dict[str, tuple[str, ...]]  # the runs whose rows readers see, by day


class Rules:
    """One night's judge."""

    def __init__(self) -> None:
        self.runs: dict[str, Written] = {}
        self.leases = LeaseRules()
        self.readers = ReaderRules(self)
        self.removals = RemovalRules(self)
        self.versions: dict[int, Days] = {}  # of the published table
        self.batches: set[int] = set()
        self.said: dict[str, int] = {}  # runs that were said to be published, and their version
        self.committed: dict[str, int] = {}  # runs, and the version that published them
        self.replaced_at: dict[str, float] = {}  # by file, when a later commit took it out
        self.erased: set[int] = set()
        self.days_passed = 0
        # rows of runs that were not said to be published may be lost beside the table
        self.power_was_off = False
        self.log = Log(TABLE)
        self.beside = {
            name: Log(name) for name in (audit.table_of(TABLE), dead_letters.table_of(TABLE))
        }
        self.summary = Log(str(Path(TABLE).with_name(BY_MARK.name)))

    @property
    def now(self) -> float:
        """Virtual seconds, with the days that passed between rounds."""
        return scheduler().now + DAY * self.days_passed

    @property
    def shown(self) -> Days:
        return self.versions[max(self.versions)] if self.versions else {}

    @property
    def version(self) -> int:
        return self.log.version

    def rows_shown(self, day: str, days: Days | None = None) -> list[Row]:
        runs = (self.shown if days is None else days).get(day, ())
        return [row for run in runs for row in self.runs[run].rows]

    def fail(self, *words: object) -> None:
        scheduler().fail(" ".join(map(str, words)))

    # -- commits
    # ----------------------------------------------------------------------------------------------
    def look(self) -> None:
        """Look at what was committed since the last look."""
        before = self.version
        for entry in self.log.new_entries():
            self._judge(entry)
        changed = self.version != before
        for log in self.beside.values():
            for _ in log.new_entries():
                changed = True
        if changed:
            self._check_beside()

    def _judge(self, entry: Entry) -> None:
        """An entry of the published table: a run in place of a day, a batch in addition to its
        days, or no files.
        """
        days, run_id = dict(self.shown), entry.info.get("tidegate.run_id")
        if run_id is not None:
            self._judge_run(entry, run_id, days)
        elif "tidegate.batch" in entry.info:
            self._judge_batch(entry, days)
        elif entry.added or entry.removed:
            self.fail(
                f"a commit of nobody: version {entry.version} of the published table has "
                f"{entry.info}"
            )
        for path in entry.removed:
            self.replaced_at[path] = self.now
        self.versions[entry.version] = days

    def _judge_run(self, entry: Entry, run_id: str, days: Days) -> None:
        run = self.runs[run_id]
        if run.is_red:
            self.fail(f"a red run was published: {run_id}")
        if run_id in self.committed:
            self.fail(
                f"published twice: {run_id} in versions {self.committed[run_id]} and "
                f"{entry.version}"
            )
        self.leases.require_holder(run.day, run_id)
        of_day = [file.path for file in self.log.files.values() if file.day == run.day]
        self._require_equal(f"files of {run_id}", _paths(entry.added, run.day), _with_rows(run))
        self._require_equal(f"files that {run_id} replaces", entry.removed, of_day)
        self.committed[run_id] = entry.version
        days[run.day] = (run_id,) if _with_rows(run) else ()

    def _judge_batch(self, entry: Entry, days: Days) -> None:
        number, runs = int(entry.info["tidegate.batch"]), json.loads(entry.info["tidegate.runs"])
        if number in self.batches:
            self.fail(f"published twice: batch {number}")
        self.batches.add(number)
        self._require_equal(f"files that batch {number} replaces", entry.removed, [])
        wanted = []
        for day, run_id in runs.items():
            run = self.runs[run_id]
            if run.is_red:
                self.fail(f"a red batch was published: {run_id}")
            self.leases.require_holder(day, run_id)
            wanted += _with_rows(run)
            self.committed[run_id] = entry.version
            days[day] = (*days.get(day, ()), run_id)
            self._require_each_row_once(day, days)
        self._require_equal(f"files of batch {number}", [file.path for file in entry.added], wanted)

    def _require_each_row_once(self, day: str, days: Days) -> None:
        found = Counter(row.id for row in self.rows_shown(day, days))
        if twice := [row_id for row_id, count in found.items() if count > 1]:
            self.fail(f"rows twice: {day} has {sorted(twice)[:5]} of runs {days[day]}")

    def _require_equal(self, what: str, found: Iterable[object], wanted: Iterable[object]) -> None:
        if sorted(map(str, found)) != sorted(map(str, wanted)):
            self.fail(
                f"wrong {what}: {sorted(map(str, found))} instead of {sorted(map(str, wanted))}"
            )

    def _check_beside(self) -> None:
        """The audit and the dead letters have all rows of each run that readers see, each once."""
        for place, (name, log) in enumerate(self.beside.items()):
            found: Counter[tuple[str, str]] = Counter()
            for file in log.files.values():
                found[file.day, file.run_id] += file.rows
            for day, runs in self.shown.items():
                for run_id in runs:
                    run = self.runs[run_id]
                    wanted = run.letters if place else len(run.rows)
                    if found[day, run_id] != wanted and not self.may_be_lost(run_id):
                        self.fail(
                            f"wrong {name}: {found[day, run_id]} rows of {run_id}, shown on "
                            f"{day}, not {wanted}"
                        )

    # -- what a run was told
    # -------------------------------------------------------------------------------------------
    def said_published(self, record: DayRecord, *, alone: bool = True) -> None:
        """A publication returned this record, and its run still holds the day. alone: not of a
        stream's batch.
        """
        run_id, day = record.facts.run_id, record.facts.day
        version = self.committed.get(run_id)
        if record.state != "published" or version is None:
            self.fail(f"not published: {run_id} is {record.state}, in version {version}")
        elif record.published_version != version:
            self.fail(
                f"wrong version: {run_id} says {record.published_version}, and it is {version}"
            )
        else:
            self.said[run_id] = version
        kept = run_records.of_run(NAME, day, run_id)
        if kept is None or (kept.state, kept.published_version) != (
            "published",
            record.published_version,
        ):
            self.fail(f"wrong record: of {run_id}: {kept and (kept.state, kept.published_version)}")
        if alone:
            for name, log in self.beside.items():
                others = {file.run_id for file in log.files.values() if file.day == day} - {run_id}
                if others:
                    self.fail(
                        f"wrong {name}: {day} has rows of {sorted(others)} after {run_id} "
                        "was published"
                    )

    def may_be_lost(self, run_id: str) -> bool:
        """Whether a power cut may have taken rows of a run beside the table: it was not said to be
        published.
        """
        return self.power_was_off and run_id not in self.said

    # -- a power cut
    # ----------------------------------------------------------------------------------------------
    def power_was_cut(self) -> None:
        """What was said to be published is shown, unless a later commit replaced it; a commit of
        nobody's word may be gone.
        """
        self.power_was_off = True
        self.log, self.versions, self.committed = Log(TABLE), {}, {}
        self.beside = {name: Log(name) for name in self.beside}
        self.summary = Log(str(self.summary.table))
        self.leases.holders.clear()
        self.batches.clear()
        for entry in self.log.new_entries():
            days = dict(self.shown)
            if run := entry.info.get("tidegate.run_id"):
                self.committed[run] = entry.version
                days[self.runs[run].day] = (run,) if _with_rows(self.runs[run]) else ()
            elif batch := entry.info.get("tidegate.runs"):
                self.batches.add(int(entry.info["tidegate.batch"]))
                for day, run in json.loads(batch).items():
                    self.committed[run] = entry.version
                    days[day] = (*days.get(day, ()), run)
            self.versions[entry.version] = days
        for run_id, version in self.said.items():
            if self.committed.get(run_id) != version:
                self.fail(
                    f"lost by a power cut: {run_id}, said to be version {version}: "
                    f"{self.committed.get(run_id)}"
                )
        for log in self.beside.values():
            for _ in log.new_entries():
                pass
        self._check_contents()

    def _check_contents(self) -> None:
        """Each file that readers see is whole; in the tables beside, of the runs that were said to
        be published.
        """
        for log in (self.log, *self.beside.values()):
            for name, file in log.files.items():
                is_promised = log is self.log or file.run_id in self.said
                if is_promised and _rows_in(log.table / name) != file.rows:
                    self.fail(f"lost by a power cut: rows of {log.table / name}")

    # -- the end
    # ----------------------------------------------------------------------------------------------
    def check_end(self) -> None:
        """After a quiet vacuum: what is on the disk is what is shown, and the records say so."""
        shown = {f"{TABLE}/{name}" for name in self.log.files}
        there = {
            str(path) for path in Path(TABLE).rglob("*.parquet") if "_delta_log" not in path.parts
        }
        self._require_equal("files after a vacuum", there, shown)
        folders = {path.name for path in Path(TABLE, "runs").glob("*")}
        self._require_equal(
            "folders after a vacuum", folders, {Path(name).parent.name for name in self.log.files}
        )
        for day, runs in self.shown.items():
            for run_id in runs[-1:]:
                kept = run_records.of_run(NAME, day, run_id)
                if kept is None or kept.state != "published":
                    self.fail(
                        f"wrong record: {run_id} is shown on {day}, and its record is "
                        f"{kept and kept.state}"
                    )
                elif kept.published_version != self.committed[run_id]:
                    self.fail(
                        f"wrong record: {run_id} says {kept.published_version}: "
                        f"{self.committed[run_id]}"
                    )
                elif kept.rows_published != len(self.rows_shown(day)):
                    self.fail(
                        f"wrong record: of {day} says {kept.rows_published} rows: "
                        f"{len(self.rows_shown(day))}"
                    )
        for path in Path("data").rglob(".*"):
            self.fail(f"left behind: {path}")

    def check_all_rows(self, inputs: Inputs) -> None:
        """A stream has ended: readers see all rows of the input, but those that were erased."""
        shown = {row.id for day in self.shown for row in self.rows_shown(day)}
        missing = {row_id for ids in inputs.files.values() for row_id in ids} - shown - self.erased
        if missing:
            self.fail(f"lost rows: {sorted(missing)[:5]} are shown on no day")


def _rows_in(file: Path) -> int:
    """-1 where the file is torn or gone."""
    with contextlib.suppress(OSError, pa.ArrowInvalid):
        return int(pq.read_metadata(file).num_rows)
    return -1


def _paths(added: Iterable[Added], day: str) -> list[str]:
    return [file.path if file.day == day else f"{file.path} of {file.day}" for file in added]


def _with_rows(run: Written) -> list[str]:
    return [path for path, rows in run.files.items() if rows]
