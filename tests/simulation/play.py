"""Plays one night: its runs, what people and machines do beside them, and at last a quiet run that
calls nothing.
"""

import asyncio
import gc
import itertools
import os
import pathlib
import shutil
import traceback
from collections.abc import Sequence
from typing import Any

from jobs.errors import TidegateError
from jobs.limits.store_url import LIMITS_URL, OFF
from jobs.run.enrich import write_out
from jobs.run.keys.preparation import prepare_keys
from jobs.task.output_files import TaskResult
from tests.simulation import night_at_work
from tests.simulation.commands import Commands
from tests.simulation.day_plans import bill_of, draw_rows, frame_of, plan_of
from tests.simulation.declared import lookups_of
from tests.simulation.disk import Disk
from tests.simulation.faults import Faults
from tests.simulation.file_access import ArrowFiles, DiskPath, FileSystem
from tests.simulation.night_facts import DeclaredRun
from tests.simulation.nights import RUNS, Act, Night
from tests.simulation.outcome import Outcome, Over
from tests.simulation.processes import Killed, Process
from tests.simulation.product import LEASES
from tests.simulation.rules import Rules
from tests.simulation.scheduler import Scheduler
from tests.simulation.sockets import Network
from tests.simulation.spark import Spark, StageFailed
from tests.simulation.storage import ObjectStore
from tests.simulation.vendor import Vendor

LONGEST_RUN = 1800.0  # s
LONGEST_COMMAND = 600.0
ORPHANS_LIVE = 25.0  # s at most
CLAIMS_EXPIRE = 31.0  # a dead run's claims count no more
# the names in Python 3.11, and from 3.12 on
TASKS_OF_ALL_LOOPS = {"_all_tasks", "_scheduled_tasks"}
NIGHTS_PER_COLLECTION = 30  # of garbage, as each costs a tenth of a night

_played = itertools.count(1)


class Stage:
    """One night's world. The root thread plays the acts."""

    def __init__(self, night: Night, folder: pathlib.Path, *, trace: bool) -> None:
        self.night, self.folder = night, folder
        self.scheduler = Scheduler(
            str(night.seed), preempts=night.preempts, trace=trace, folder=f"{folder}/"
        )
        night_at_work.begin(self.scheduler)
        self.faults = Faults(
            night.chances, night.left_out, self.scheduler.stream, self.scheduler.say
        )
        self.faults.is_quiet = not night.rounds
        self.limits_file = folder / "limits.sqlite"
        self.scheduler.limits_away = night.store_away
        os.environ[LIMITS_URL] = (
            f"file://{self.limits_file}" if night.limits not in ("off", "alone") else OFF
        )
        self.scheduler.network = Network(self.faults)
        storage = ObjectStore if night.storage == "s3" else Disk
        self.disk = storage(night.latency, self.faults)
        self.disk.fails_between, self.disk.aim = night.fails_between, night.aim
        self.disk.may_kill = _may_die_at_a_file
        self.scheduler.file_system = FileSystem(ArrowFiles(self.disk))
        if isinstance(self.disk, Disk):
            DiskPath.disk = self.disk
        self.vendor = self.scheduler.vendor = Vendor(self.faults, honours_keys=night.honours_keys)
        self.vendor.down = (night.lookups[0], *night.down)
        self.rules = self.scheduler.rules = Rules(night, self.vendor)
        self.facts = self.rules.facts
        self.draws = self.scheduler.stream("people")
        self.days = [draw_rows(night), draw_rows(night, day=1)]
        self.runs: dict[str, str] = {}
        self._sparks: dict[Process, Spark] = {}
        self._orphans: dict[Process, bool] = {}
        self._commands = Commands(night, self.rules, self.disk, self.days, self.draws)
        self._others: list[Process] = []
        self._put_back = 0.0  # s by which the clock was set back in all

    # -- a run
    # ----------------------------------------------------------------------------------------------
    def start_run(self, act: Act) -> Process:
        name = f"run{len(self.runs) + 1}"
        self.runs[name] = "runs"
        lookups = lookups_of(self.night, act)
        self.facts.runs[name] = DeclaredRun(self.scheduler.now, act, lookups)
        return self.scheduler.spawn(name, self._run, name, act)

    def _run(self, name: str, act: Act) -> None:
        """The driver of a run, below its planning and above its publishing."""
        process = self.scheduler.me().process
        spark = Spark(name, self.faults, self.night.tasks, self.rules.task_begins)
        self._sparks[process] = spark
        folder, rows = self.folder / name, self.days[act.day]
        if act.does == "replay":  # of a day's dead letters
            rows = rows[: max(1, int(len(rows) * act.share))]
        bill = self.scheduler.bills[name] = bill_of(self.night, name, act, str(folder / "meters"))
        try:
            sent: list[TaskResult] = []
            frame = frame_of(rows, self.night, spark)
            plan = plan_of(self.night, name, act, bill)
            scratch, files = str(folder / "scratch"), str(folder / "files")
            with prepare_keys(frame, plan, scratch=scratch, here=True, sent=sent) as session:  # type: ignore[arg-type]
                written = write_out(frame, session.plan, files, sent)  # type: ignore[arg-type]
        except (TidegateError, StageFailed) as error:
            self.runs[name] = f"failed: {type(error).__name__}: {error}"
            self.scheduler.say("run failed", self.runs[name])
            self.rules.check_failure(error, act)
        except Exception as error:  # noqa: BLE001  # no run may end by any other
            self.runs[name] = f"broke: {error!r}"
            self.scheduler.fail(f"{name} broke: {error!r}\n{traceback.format_exc()}")
        else:
            self.runs[name] = "ok"
            self.rules.check_requests(name, spark.workers, sent)
            self.rules.rows.check_day(name, rows, written.files, is_quiet=self.faults.is_quiet)
        leases: Any = process.state.get(LEASES)
        if leases is not None:  # as at the end of a day, and at the exit of its driver
            leases.end_run(bill)
            leases.close()

    def finish_run(self, run: Process) -> None:
        if not self.scheduler.wait_for(run, LONGEST_RUN):
            self.scheduler.fail(f"{run} has not ended in half an hour\n{self.scheduler.describe()}")
            raise Over
        if not self._orphans.pop(run, False):
            self._kill_run(run)

    def _kill_run(self, run: Process, *, leaves_orphans: bool = False) -> None:
        """Kill its driver; its workers with it, or some time later."""
        self.scheduler.kill(run)
        for worker in self._sparks[run].workers if run in self._sparks else ():
            if leaves_orphans:
                self.scheduler.after(
                    ORPHANS_LIVE * self.draws.random(),
                    lambda worker=worker: self.scheduler.kill(worker),
                )
            else:
                self.scheduler.kill(worker)
        self._orphans[run] = leaves_orphans

    # -- acts
    # ----------------------------------------------------------------------------------------------
    def play_round(self, acts: Sequence[Act]) -> None:
        began, runs = self.scheduler.now, []
        for act in acts:
            self.scheduler.sleep(began + act.at - self.scheduler.now)
            self.scheduler.say("ACT", act.does, act.lookup)
            if act.does in RUNS:
                runs.append(self.start_run(act))
            elif act.does == "kill run":
                self._kill_run(runs[int(act.share * len(runs))], leaves_orphans=act.grace < 1.0)
            elif act.does == "power cut":
                self._cut_power()
            elif act.does == "set clock":
                self.faults.struck["clock set"] += 1
                self.scheduler.clock_offset += 86_400 * act.share
                self._put_back += max(0.0, -86_400 * act.share)
                self.facts.clock_was_set = True
                # a mark of before the clock was set may seem newer than one after it
                self.facts.older_values = True
            else:
                self._others.append(self._commands.start(act))
        for run in runs:
            self.finish_run(run)
        for other in self._others:
            self._finish_command(other)

    def _finish_command(self, command: Process) -> None:
        if not self.scheduler.wait_for(command, LONGEST_COMMAND):
            self.scheduler.fail(
                f"{command} has not ended in ten minutes\n{self.scheduler.describe()}"
            )
            raise Over

    def _cut_power(self) -> None:
        self.faults.struck["power cut"] += 1
        for process in self.scheduler.processes[1:]:
            self.scheduler.kill(process)
        self.disk.cut_power(self.draws)
        self.scheduler.starts += 1
        self.rules.power_was_cut()

    # -- the end of the night
    # ------------------------------------------------------------------------------------------
    def play_quiet_end(self) -> None:
        """What was left undone is done now; then nothing is left to pay."""
        self.faults.is_quiet = True
        self.scheduler.limits_away = (0.0, 0.0)
        self.vendor.down = ("", 0.0, 0.0)
        self.scheduler.sleep(CLAIMS_EXPIRE + self._put_back)  # until no record is from the future
        first = self._quiet_run()
        if self.night.compacts_at_end:
            for lookup in self.night.lookups:
                self._finish_command(self._commands.compact(lookup, 10.0))
        bill = len(self.vendor.invoice)
        name = self._quiet_run()
        if self.runs[first] == "ok" and len(self.vendor.invoice) != bill:
            self.scheduler.fail(
                f"{name} made {len(self.vendor.invoice) - bill} calls, when all was known"
            )
        self.check_bills()

    def _quiet_run(self) -> str:
        run = self.start_run(Act("run", 0.0))
        self.finish_run(run)
        state = self.runs[run.name]
        is_spent = "BudgetExhausted" in state and self.rules.limits.is_used_up(self.limits_file)
        if state != "ok" and not is_spent:
            self.scheduler.fail(f"{run}, without faults: {state}")
        return run.name

    def check_bills(self) -> None:
        for run in self._sparks:
            workers = self._sparks[run].workers
            self.rules.limits.check_bill(run.name, workers, self.folder / run.name / "meters")
            self.rules.check_cap(run.name, workers)
        self.rules.limits.check_books(self.limits_file)


def _may_die_at_a_file(process: Process) -> bool:
    return process.name in ("compact", "forget", "refresh") or ".t" in process.name


def play(night: Night, base: pathlib.Path, *, trace: bool = False) -> Outcome:
    """Play the night in a folder of its own below `base`."""
    folder = base / f"night{night.seed}"
    stage = Stage(night, folder, trace=trace)
    scheduler = stage.scheduler
    try:
        for acts in night.rounds:
            stage.play_round(acts)
        stage.play_quiet_end()
    except (Over, Killed):
        pass
    outcome = Outcome.of(
        scheduler,
        stage.faults,
        charges=len(stage.vendor.invoice),
        file_operations=stage.disk.operations,
        runs=stage.runs,
    )
    scheduler.finish()
    for process in scheduler.processes:
        if (meter := process.state.get("meter")) is not None:
            meter.close()  # type: ignore[attr-defined]
    vars(stage.disk).clear()  # Arrow refers to the disk, and gc does not see it
    night_at_work.end()
    for name in vars(asyncio.tasks).keys() & TASKS_OF_ALL_LOOPS:
        vars(asyncio.tasks)[name].clear()  # of dead loops; each look at a loop's tasks reads all
    shutil.rmtree(folder, ignore_errors=True)
    if next(_played) % NIGHTS_PER_COLLECTION == 0:
        gc.collect()
    return outcome
