"""Plays one night of publishing: runs, streams, readers and people on one table, and at last a
quiet night.
"""

import contextlib
import datetime as dt
import gc
import os
import pathlib
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.commands import vacuum
from jobs.errors import DayTaken, PublishConflict, TidegateError
from jobs.input.day import InputDay
from jobs.ledger.keys import key_text
from jobs.process.publish_decision import publish_or_hold_back
from jobs.run.changes.changed_rows import ChangedRows, with_kept_rows
from jobs.run.engines.stages import ProcessStage
from jobs.schema.records import DayRecord, RowChanges
from jobs.streams.micro_batches import BatchHeldBack, MicroBatches
from jobs.tables.delta.asked_keys import KeysOf, files_of_days
from jobs.tables.delta.delta_log import table_at
from jobs.tables.derived.summaries import summarize
from jobs.tables.erasing import without_rows
from jobs.tables.leases import day_leases as leases
from jobs.tables.leases.day_leases import at_work
from jobs.tables.leftovers import delete_what_crashes_left
from jobs.tables.records import run_records
from jobs.tables.records.published_runs import last_published
from jobs.tables.shown import shown_days, shown_elsewhere
from jobs.tables.shown.shown_as_parquet import refuse_foreign
from tests.simulation import night_at_work
from tests.simulation.faults import Faults
from tests.simulation.play import Outcome, Over
from tests.simulation.publishing import folder as folders
from tests.simulation.publishing import project
from tests.simulation.publishing.folder import Folder
from tests.simulation.publishing.night import Act, PublishingNight
from tests.simulation.publishing.power import Synced
from tests.simulation.publishing.project import LOOKUP, NAME, TABLE, Inputs, Row, Written, day_of
from tests.simulation.publishing.rules import Rules
from tests.simulation.scheduler import EPOCH, Killed, Process, Scheduler

LONGEST = 3600.0  # s; of whatever is done in a round
ORPHANS_LIVE = 5.0  # s at most
# s by which the night's clock is ahead of that of the real files, so that none is of the future
AHEAD = 600.0
WAITS = (0.0, 0.3, 30.0)  # s; of a run for another of its day
ONE_BY_ONE = ProcessStage(1, lambda: False)


class ProgramEnded(TidegateError):  # noqa: N818  # what happened
    """The Spark program of a run was killed."""


class Quality:
    """Keeps verdicts in no time."""

    checks = batch_checks = "tests.simulation:checks"

    def unready(self, _enrichment: str) -> str:
        return ""

    def keep(self, _record: DayRecord) -> None:
        night_at_work.scheduler().sleep(0.01)

    def render(self, *_: object) -> None:
        pass


class Stage:
    """One night's world. The root thread plays the acts."""

    def __init__(
        self, night: PublishingNight, path: pathlib.Path, *, real_time: float, trace: bool
    ) -> None:
        self.night = night
        self.scheduler = Scheduler(f"publishing:{night.seed}", preempts=night.preempts, trace=trace)
        night_at_work.begin(self.scheduler)
        self.scheduler.clock_offset = real_time + AHEAD - EPOCH
        self.faults = Faults(
            night.chances, night.left_out, self.scheduler.stream, self.scheduler.say
        )
        self.folder = self.scheduler.folder = Folder(path, self.faults, night.latency)
        self.folder.fails_between = night.fails_between
        self.rules = self.scheduler.rules = Rules()
        self.folder.removes = self.rules.removes
        self.folder.committed = self._committed
        self.scheduler.stage = self
        self.draws = self.scheduler.stream("people")
        self.synced = Synced()
        self.folder.synced = self.synced.note
        self.inputs = Inputs()
        self.enrichment = project.declared(
            shows_folders=night.shows_folders, makes_summaries=night.makes_summaries
        )
        self.runs: dict[str, str] = {}
        # ids by day, until they are erased: who was killed does it again
        self._erasing: dict[int, set[int]] = {}
        self._working: list[Process] = []
        self._looking: list[Process] = []
        self._is_over = False  # the round

    def _committed(self, call: str) -> None:
        self.rules.look()
        if call == "vacuum":
            self.rules.check_files()

    # -- runs
    # ----------------------------------------------------------------------------------------------
    def _run(self, act: Act) -> None:
        """A run of a day, from its lease to its summaries."""
        number = len(self.runs) + 1
        run_id, day = f"run{number}", day_of(act.day)
        self.runs[run_id] = "at work"
        with self._told(run_id), self._leased(day, run_id) as lease:
            if self.night.shows_folders:
                refuse_foreign(self.enrichment)
            written = Written(
                run_id, day, number, is_red=act.is_red, has_new_column=self._has_new_column(number)
            )
            work = partial(
                self._changed if act.does == "changed run" else self._write, written, act
            )
            record = self._in_a_child(written, lease.file, work)
            record = publish_or_hold_back(record, Quality().keep, lease)
            self.runs[run_id] = record.state
            if record.state == "published":
                with self.folder.unseen():
                    self.rules.said_published(record)
                for summary in self.enrichment.summaries:
                    summarize(self.enrichment, summary, day)
            elif not act.is_red:
                self.scheduler.fail(f"held back: {run_id} without a red verdict: {record.reason}")

    def _has_new_column(self, number: int) -> bool:
        return bool(self.night.new_column_from) and number >= self.night.new_column_from

    def _enrichment_of(self, written: Written) -> Any:
        if not written.has_new_column:
            return self.enrichment
        night = self.night
        return project.declared(
            shows_folders=night.shows_folders,
            makes_summaries=night.makes_summaries,
            has_new_column=True,
        )

    def _leased(self, day: str, run_id: str) -> contextlib.AbstractContextManager[leases.Lease]:
        return leases.leased(TABLE, day, run_id, wait=self.draws.choice(WAITS))

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """How the body may end: in its own way, or in one sentence."""
        try:
            yield
        except (DayTaken, PublishConflict, ProgramEnded) as error:
            self.runs[name] = f"{type(error).__name__}: {error}"
            self.scheduler.say(name, type(error).__name__)
        except (TidegateError, OSError) as error:  # the command says either in a sentence
            self.runs[name] = f"failed: {error}"
            self.scheduler.say(name, "failed")
            if "error before a file operation" not in self.faults.struck:
                self.scheduler.fail(f"{name} failed: {error}\n{traceback.format_exc()}")
        except Exception as error:  # noqa: BLE001  # nobody may end by any other
            self.scheduler.fail(f"{name} broke: {error!r}\n{traceback.format_exc()}")

    def _in_a_child(
        self, written: Written, lease: int | None, work: Callable[[], DayRecord]
    ) -> DayRecord:
        """The Spark program of a run, which inherits its lease, writes the files and saves the
        record.
        """
        assert lease is not None
        inherited = os.dup(lease)
        done: list[DayRecord] = []

        def in_child() -> None:
            try:
                done.append(work())
            except (TidegateError, OSError) as error:
                self.scheduler.say(written.run_id, "failed in its child")
                if "error before a file operation" not in self.faults.struck:
                    self.scheduler.fail(f"{written.run_id} failed in its child: {error!r}")
            finally:
                os.close(inherited)

        child = self.scheduler.spawn(f"{written.run_id}.spark", in_child)
        self.rules.children[written.day] = child, written.run_id
        me = self.scheduler.me().process
        me.on_exit.append(lambda: self._orphaned(child))
        self.scheduler.wait_for(child, LONGEST)
        if not done:
            raise ProgramEnded
        return done[0]

    def _orphaned(self, child: Process) -> None:
        """Its run was killed: the guard ends it a little later."""
        self.scheduler.after(
            ORPHANS_LIVE * self.draws.random() ** 2, lambda: self.scheduler.kill(child)
        )

    def _write(self, written: Written, act: Act) -> DayRecord:
        files = self.inputs.of_day(written.day)
        return self._saved(written, project.rows_of(files, written.number), files)

    def _saved(
        self,
        written: Written,
        rows: Sequence[Row],
        sources: Any,
        changed: ChangedRows | None = None,
    ) -> DayRecord:
        self.rules.runs[written.run_id] = written
        self.scheduler.sleep(self.draws.choice((0.0, 0.1, 2.0)) * self.draws.random())
        parts = self.draws.choice((1, 2, 3))
        folder = Path(TABLE, "runs", written.run_id)
        project.write_files(written, [rows[part::parts] for part in range(parts)], folder=folder)
        record = project.find_record(self._enrichment_of(written), written, sources, self._today())
        record = project.with_figures(record, rows)
        if changed is not None:
            record = replace(record, facts=with_kept_rows(record.facts, changed, ONE_BY_ONE))
        return run_records.save(record)

    def _today(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(EPOCH + self.scheduler.now, dt.UTC)

    def _changed(self, written: Written, act: Act) -> DayRecord:
        """A run that keeps some of the rows that readers see, and enriches the rest of the
        input.
        """
        day = written.day
        table = table_at(TABLE)
        over = 0 if table is None else table.transaction_version(f"date={day}") or 0
        files = {
            file: self._rows_in(file) for of, file in files_of_days(self.enrichment) if of == day
        }
        keeps = {
            row.id
            for rows in files.values()
            for row in rows
            if (row.id * 31 + written.number) % 10 >= 10 * act.share
        }
        stay, kept = [], []
        for file, rows in sorted(files.items()):
            stay.append((file, pa.array([row.id in keeps for row in rows])))
            kept += [row for row in rows if row.id in keeps]
        sources = self.inputs.of_day(day)
        new = [row for row in project.rows_of(sources, written.number) if row.id not in keeps]
        counts = RowChanges(len(new), 0, 0, 0, len(kept), over)
        changed = ChangedRows(None, counts, (), tuple(stay))  # type: ignore[arg-type]  # the input is not asked for
        record = self._saved(written, new, sources, changed)
        for file in record.facts.kept_files:
            rows = [kept.pop(0) for _ in range(pq.read_metadata(file).num_rows)]
            written.files[str(Path(file).relative_to(Path(TABLE).resolve()))] = rows
        return record

    def _rows_in(self, file: str) -> list[Row]:
        name = str(Path(file).resolve().relative_to(Path(TABLE).resolve()))
        return self.rules.runs[name.split("/")[1]].files[name]

    def _erase(self, act: Act) -> None:
        """`forget`, as it removes rows of a published day."""
        number = len(self.runs) + 1
        run_id, day = f"forget-{number}", day_of(act.day)
        self.runs[run_id] = "at work"
        with self._told(run_id), self._leased(day, run_id) as lease:
            record = last_published(NAME, day, table=TABLE)
            files = sorted(file for of, file in files_of_days(self.enrichment) if of == day)
            if record is None or not files:
                if files:
                    self.scheduler.fail(
                        f"no record: of the run that published {day}: {self.rules.shown}"
                    )
                return
            gone = {
                row.id
                for row in self.rules.rows_shown(day)
                if (row.id * 17 + number) % 10 < 10 * act.share
            }
            gone |= self._erasing.get(act.day, set())
            self._erasing[act.day] = gone
            self.rules.erased |= gone
            rows_gone = sum(row.id in gone for row in self.rules.rows_shown(day))
            written = Written(run_id, day, number)
            for place, file in enumerate(files):
                rows = [row for row in self._rows_in(file) if row.id not in gone]
                if rows:
                    written.files[f"runs/{run_id}/part-{place:05}.parquet"] = rows
            self.rules.runs[run_id] = written
            keys = KeysOf(LOOKUP, ("id",), {key_text((str(one),), hidden=False) for one in gone})
            removed = without_rows(record, files, keys, run_id=run_id, lease=lease)
            self.runs[run_id] = "published"
            del self._erasing[act.day]
            if removed != rows_gone:
                self.scheduler.fail(
                    f"wrong count: {run_id} removed {removed} rows, not {rows_gone}"
                )

    # -- streams
    # ----------------------------------------------------------------------------------------------
    def _stream(self, act: Act) -> None:
        """A stream until nothing is new: Spark's side of `foreachBatch`, which does a batch again
        after a kill.
        """
        name = f"stream{self.scheduler.next_number()}"
        self.runs[name] = "at work"
        self.scheduler.me().process.state["is red"] = act.is_red
        with self._told(name):
            delete_what_crashes_left(self.enrichment)
            with self.folder.unseen():
                project.note_query()
            batches = MicroBatches(
                None,
                self.enrichment,
                Path(project.CHECKPOINT),
                Quality(),
                wait=30.0,
                published=self._batch_published,
            )  # type: ignore[arg-type]  # nothing asks the session
            try:
                while (number := self._next_batch()) is not None:
                    batches(None, number)  # type: ignore[arg-type]
                    with self.folder.unseen():
                        project.note_done(number)
                    self.scheduler.sleep(self.draws.random())
            except BatchHeldBack:
                self.scheduler.say(name, "held back")
            else:
                self.runs[name] = "published"

    def _next_batch(self) -> int | None:
        with self.folder.unseen():
            return project.next_batch(self.inputs.files)

    def write_batch(self, rows: InputDay, day: str, run_id: str) -> DayRecord:
        """In place of `run_files`, which needs Spark."""
        state = self.scheduler.me().process.state
        written = Written(run_id, day, len(self.runs) + 1, is_red=bool(state.pop("is red", False)))
        self.runs[run_id] = "of a batch"
        sources = {str(path): self.inputs.files[str(path)] for path in rows.files}
        return self._saved(written, project.rows_of(sources, written.number), sources)

    def _batch_published(self, _number: int, records: Sequence[DayRecord], _late: int) -> None:
        for record in records:
            self.runs[record.facts.run_id] = record.state
            with self.folder.unseen():
                self.rules.said_published(record, alone=False)

    # -- who looks on
    # ----------------------------------------------------------------------------------------------
    def _vacuum(self, days: int) -> None:
        with self._told("vacuum"):
            self.rules.vacuum_begins(days)
            vacuum.vacuum(self.enrichment, older_than=timedelta(days=days))

    def _read(self) -> None:
        """A reader who takes his time between the table's log and its files."""
        while not self._is_over:
            opened_at = self.rules.now
            table = table_at(TABLE)
            if table is not None:
                version, files = table.version(), table.file_uris()
                self.scheduler.sleep(self.draws.choice((0.0, 0.5, 5.0)) * self.draws.random())
                self._read_files(version, files, opened_at)
            if self.night.shows_folders:
                with self.folder.unseen():
                    self.rules.check_folders()
            self.scheduler.sleep(0.3 * self.draws.random())

    def _read_files(self, version: int, files: Sequence[str], opened_at: float) -> None:
        found: list[tuple[str, int, float]] = []
        try:
            for uri in sorted(files):
                rows = pq.read_table(unquote(uri), columns=["id", "price"], partitioning=None)
                day = self.rules.day_of_file(uri)
                found += (
                    (day, *row)
                    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)
                )
        except FileNotFoundError as error:
            if not self.rules.may_be_gone(opened_at):
                self.scheduler.fail(f"a missing file: of version {version}: {error}")
        else:
            self.rules.check_read(version, found)

    def _status(self) -> None:
        while not self._is_over:
            with self._told("status"):
                run_records.load(NAME)
                if torn := run_records.torn(NAME):
                    self.scheduler.fail(f"torn records: {torn}")
                at_work(TABLE)
                for sentence in shown_days.lost_days(self.enrichment):
                    self.scheduler.fail(f"lost: {sentence}")
            self.scheduler.sleep(0.2 * self.draws.random())

    # -- acts
    # ----------------------------------------------------------------------------------------------
    def play_round(self, acts: Sequence[Act]) -> None:
        began, self._is_over = self.scheduler.now, False
        for act in acts:
            self.scheduler.sleep(began + act.at - self.scheduler.now)
            self.scheduler.say("ACT", act.does, act.day)
            self._play(act)
        self._finish(self._working)
        self._is_over = True
        self._finish(self._looking)

    def _play(self, act: Act) -> None:
        if act.does == "arrive":
            self.inputs.arrive(day_of(act.day), self.draws.choice((0, 1, 5, 20)))
        elif act.does == "kill":
            living = [process for process in self._working if not process.has_ended]
            if living:
                self.faults.struck["kill of a process"] += 1
                self.scheduler.kill(living[int(act.share * len(living))])
        elif act.does == "power cut":
            self._cut_power()
        elif act.does in ("read", "status"):
            look = self._read if act.does == "read" else self._status
            self._looking.append(self.scheduler.spawn(act.does, look))
        elif act.does != "stream" or not self._is_streaming():
            self._working.append(self.scheduler.spawn(act.does, self._work_of(act)))

    def _cut_power(self) -> None:
        """The machine goes down: nobody lives, and what was not synced may be lost."""
        self.faults.struck["power cut"] += 1
        for process in self.scheduler.processes[1:]:
            self.scheduler.kill(process)
        self.scheduler.sleep(0.1)
        self.synced.cut(Path("data"), self.draws, spare=("raw", "_stream"))
        self.rules.power_was_cut()

    def _work_of(self, act: Act) -> Callable[[], None]:
        if act.does == "vacuum":
            return partial(self._vacuum, act.days)
        return partial({"stream": self._stream, "erase": self._erase}.get(act.does, self._run), act)

    def _is_streaming(self) -> bool:
        return any(process.name == "stream" and not process.has_ended for process in self._working)

    def _finish(self, processes: list[Process]) -> None:
        for process in processes:
            if not self.scheduler.wait_for(process, LONGEST):
                self.scheduler.fail(
                    f"{process} has not ended in an hour\n{self.scheduler.describe()}"
                )
                raise Over
        processes.clear()

    def pass_days(self, days: int) -> None:
        self.scheduler.sleep(ORPHANS_LIVE)  # nobody is at work now
        if days and Path("data").exists():
            self.scheduler.say("days pass", days)
            folders.age(Path("data"), days)
            self.rules.days_passed += days
            self.synced.note_all(Path("data"))

    # -- the end of the night
    # ------------------------------------------------------------------------------------------
    def play_quiet_end(self) -> None:
        """What was left undone is done now; then what is on the disk is what is shown."""
        self.faults.is_quiet = True
        self.pass_days(0)
        self.inputs.arrive(day_of(0), 3)
        self._quietly(Act("run", 0.0))
        if any(act.does == "stream" for acts in self.night.rounds for act in acts):
            self._quietly(Act("stream", 0.0))
            self.rules.check_all_rows(self.inputs)
        for day in [*self._erasing]:
            self._quietly(Act("erase", 0.0, day=day))
        self._quietly(Act("read", 0.0))
        for _ in range(2):  # a folder that a vacuum takes files from is as young as that
            self.pass_days(9)
            self._quietly(Act("vacuum", 0.0, days=7))
        self.rules.check_end()
        for sentence in (
            *shown_days.lost_days(self.enrichment),
            *shown_elsewhere.lagging(self.enrichment.facts()),
        ):
            self.scheduler.fail(f"at the end: {sentence}")
        if self.night.shows_folders:
            self.rules.check_folders(only_last=True)
        if holders := at_work(TABLE):
            self.scheduler.fail(f"leases at the end: {holders}")

    def _quietly(self, act: Act) -> None:
        before = len(self.runs)
        if act.does == "read":
            self._is_over = True
            self.scheduler.after(1.0, lambda: None)
        self._play(act)
        self._finish(self._working)
        self._finish(self._looking)
        if (
            act.does in ("run", "stream")
            and (state := [*self.runs.values()][before]) != "published"
        ):
            self.scheduler.fail(f"a quiet {act.does}: {state}")


def play(night: PublishingNight, base: pathlib.Path, *, trace: bool = False) -> Outcome:
    """Play the night in a folder of its own below `base`."""
    path = base / f"night{night.seed}"
    path.mkdir()
    os.chdir(path)
    stage = Stage(night, path, real_time=time.time(), trace=trace)
    scheduler = stage.scheduler
    try:
        for acts, days in zip(night.rounds, night.ages, strict=True):
            stage.play_round(acts)
            stage.pass_days(days)
        stage.play_quiet_end()
    except (Over, Killed):
        pass
    outcome = Outcome(
        failures=list(scheduler.failures),
        digest=scheduler.digest,
        faults=stage.faults.struck,
        charges=len(stage.rules.committed),
        steps=scheduler.steps,
        file_operations=stage.folder.operations,
        seconds=scheduler.now,
        runs=stage.runs,
        trace=scheduler.trace or [],
        fault_numbers=stage.faults.numbers,
    )
    scheduler.finish()
    night_at_work.end()
    os.chdir(base)
    shutil.rmtree(path, ignore_errors=True)
    gc.collect()
    return outcome
