"""Plays one night of jobs: its runs, what people and machines do beside them, and at last quiet runs
until no day waits.
"""

import gc
import itertools
import shutil
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from jobs.commands.vendor_jobs import cancel_job, find_jobs, forget_job
from jobs.errors import RunWaits, TidegateError
from jobs.ledger.changes.compaction import compact
from jobs.ledger.changes.erasure import forget
from jobs.ledger.keys import key_text
from jobs.run.enrich import write_out
from jobs.run.keys.preparation import prepare_keys
from jobs.run.keys.vendor_jobs.waiting_days import look_again
from jobs.run.keys.vendor_jobs.waits import WaitingDay, Waits
from jobs.task.output_files import TaskResult
from tests.simulation import clock, night_at_work
from tests.simulation.outcome import Outcome, Over
from tests.simulation.play import LONGEST_COMMAND, LONGEST_RUN, NIGHTS_PER_COLLECTION
from tests.simulation.processes import Killed, Process
from tests.simulation.spark import Spark, StageFailed
from tests.simulation.vendor_jobs import key_rules
from tests.simulation.vendor_jobs.declared import (
    enrichment_of,
    folder_of,
    frame_of,
    plan_of,
)
from tests.simulation.vendor_jobs.night import GIVE_UP, Act, JobsNight
from tests.simulation.vendor_jobs.world import World

WAITS, OK, WITH_ERRORS = "waits", "ok", "ok, with errors"
LOOKS_AGAIN, LOOKS_AT_LEAST = 45.0, 300.0  # s, growing
ENOUGH = 1_000_000  # items of a budget
DIE_WITHIN = 40.0  # s after which a dead run counts no more
SLACK = 600.0  # s, beside give_up, until a job is over for the ledger

_played = itertools.count(1)


class Stage:
    """The root thread, which plays the acts in a night's world."""

    def __init__(self, world: World) -> None:
        self.world, self.scheduler, self.night = world, world.scheduler, world.night
        self._commands: list[Process] = []
        self._put_back = 0.0  # s by which the clock was set back in all

    # -- a run -------------------------------------------------------------------------------------
    def start_run(self, day: int) -> Process:
        name = f"run{len(self.world.runs) + 1}"
        self.world.runs[name] = "runs"
        return self.scheduler.spawn(name, self._run, name, day)

    def _run(self, name: str, day: int) -> None:
        """The driver of a run, below its planning and above its publishing."""
        world, texts = self.world, self.world.texts[day]
        spark = Spark(name, world.faults, 1, world.rules.task_begins)
        world.sparks[self.scheduler.me().process] = spark
        folder, sent = world.folder / name, list[TaskResult]()
        plan = plan_of(self.night, name, str(folder / "meters"), clock.utc_now().isoformat())
        waits = Waits(WaitingDay("reviews", f"day{day}"))
        try:
            frame = frame_of(texts, spark)
            with prepare_keys(
                frame,
                plan,
                scratch=str(folder / "scratch"),
                here=True,
                sent=sent,
                waits=waits,  # type: ignore[arg-type]
            ) as session:
                written = write_out(frame, session.plan, str(folder / "files"), sent)  # type: ignore[arg-type]
        except RunWaits as error:
            world.runs[name] = WAITS
            self.scheduler.say("waits", error)
        except (TidegateError, StageFailed) as error:
            world.runs[name] = f"failed: {type(error).__name__}: {error}"
            self.scheduler.say("run failed", world.runs[name])
        except Exception as error:  # noqa: BLE001  # no run may end by any other
            world.runs[name] = f"broke: {error!r}"
            self.scheduler.fail(f"{name} broke: {error!r}\n{traceback.format_exc()}")
        else:
            world.runs[name] = OK
            if not world.rules.check_day(name, texts, written.files):
                world.runs[name] = WITH_ERRORS

    def _finish(self, process: Process, limit: float) -> None:
        if not self.scheduler.wait_for(process, limit):
            self.scheduler.fail(f"{process} has not ended\n{self.scheduler.describe()}")
            raise Over
        workers = self.world.sparks[process].workers if process in self.world.sparks else ()
        for killed in (process, *workers):
            self.scheduler.kill(killed)

    # -- acts --------------------------------------------------------------------------------------
    def play_round(self, acts: Sequence[Act]) -> None:
        began, runs = self.scheduler.now, list[Process]()
        for act in acts:
            self.scheduler.sleep(began + act.at - self.scheduler.now)
            self.scheduler.say("ACT", act.does, act.day)
            if act.does == "run":
                runs.append(self.start_run(act.day))
            elif act.does == "kill":
                living = [run for run in runs if not run.has_ended]
                if living:
                    self.world.kill(living[int(act.share * len(living))])
            elif act.does == "power cut":
                self._cut_power()
            elif act.does == "set clock":
                self._set_clock(86_400 * act.share)
            else:
                self._commands.append(self._command(act))
        for run in runs:
            self._finish(run, LONGEST_RUN)
        for command in self._commands:
            self._finish(command, LONGEST_COMMAND)
        self._commands.clear()

    def _cut_power(self) -> None:
        self.world.faults.struck["power cut"] += 1
        for process in self.scheduler.processes[1:]:
            self.world.kill(process)
        self.world.disk.cut_power(self.world.draws)

    def _set_clock(self, seconds: float) -> None:
        self.world.faults.struck["clock set"] += 1
        self.scheduler.clock_offset += seconds
        self._put_back += max(0.0, -seconds)
        self.world.rules.clock_was_set = True

    def _command(self, act: Act) -> Process:
        work: Callable[[], object]
        match act.does:
            case "compact":
                work = lambda: compact(folder_of(self.night), grace=timedelta(seconds=60))  # noqa: E731
            case "look":
                work = lambda: look_again(enrichment_of(self.night), f"day{act.day}")  # noqa: E731
            case "forget":
                work = lambda: self._forget(act.share)  # noqa: E731
            case _:
                work = lambda: self._change_job(act)  # noqa: E731
        return self.scheduler.spawn(act.does, self._as_command, act.does, work)

    def _as_command(self, name: str, work: Callable[[], object]) -> None:
        """A command may refuse or fail in one sentence."""
        try:
            self.scheduler.say(name, "did:", work())
        except TidegateError as error:
            self.scheduler.say(name, "failed:", error)
        except Exception as error:  # noqa: BLE001  # no command may end by any other
            self.scheduler.fail(f"{name} broke: {error!r}\n{traceback.format_exc()}")

    def _change_job(self, act: Act) -> str:
        """A person cancels a job, or lets go of it."""
        tokens = sorted(found.job.token for found in find_jobs("nights", are_open=True))
        if not tokens:
            return ""
        token = tokens[int(act.share * len(tokens))]
        return cancel_job("nights", token) if act.does == "cancel" else forget_job("nights", token)

    def _forget(self, share: float) -> None:
        """Not beside runs, which may write such an answer (docs/ledger.md)."""
        if self._is_at_work():
            return
        rules, draws = self.world.rules, self.world.draws
        texts = sorted({text for day in self.world.texts for text in day if text is not None})
        texts = draws.sample(texts, max(1, int(len(texts) * share))) if texts else []
        rules.forgets(texts)
        runs = len(self.world.runs)
        keys = [key_text((text,), hidden=self.night.personal) for text in texts]
        forget(folder_of(self.night), keys)
        if len(self.world.runs) == runs and not self._is_at_work():
            key_rules.check_forgotten(self.world.disk, self.night, texts)
        rules.forgets(texts)

    def _is_at_work(self) -> bool:
        me = self.scheduler.me().process
        return any(
            not process.has_ended and process is not me for process in self.scheduler.processes[1:]
        )

    # -- the end of the night ----------------------------------------------------------------------
    def play_quiet_end(self) -> None:
        """Each day that anybody still wants ends; then nothing is left to ask."""
        world = self.world
        world.faults.is_quiet = True
        if self.night.budget:  # somebody raises it
            world.rules.bills.budget = ENOUGH
            self.night = replace(self.night, budget=ENOUGH)
        self.scheduler.sleep(DIE_WITHIN + self._put_back)
        days = [day for day in range(self.night.days) if day not in self.night.abandoned]
        settled = [day for day in days if self._run_until_over(day) == OK]
        requests, accepted = world.vendor.requests, len(world.vendor.accepted())
        for day in settled:
            if (state := self._quiet_run(day)) != OK:
                self.scheduler.fail(f"day {day} was written, and is now: {state}")
        if len(world.vendor.accepted()) != accepted:
            self.scheduler.fail("a job was submitted, when all was known")
        if world.rules.is_all_known() and world.vendor.requests != requests:
            self.scheduler.fail(f"{world.vendor.requests - requests} requests, when all was known")
        world.rules.bills.check_bills()
        world.rules.bills.check_budget()
        if self.night.personal:
            key_rules.check_hidden(world.disk, self.night)

    def _run_until_over(self, day: int) -> str:
        """Run a day again and again; at most all tries of its keys take as long as give_up each."""
        rounds = (self.night.retries + 2) * max(1, self.night.keys // self.night.max_items)
        until = self.scheduler.now + rounds * (2 * GIVE_UP + SLACK)
        pause = LOOKS_AGAIN
        while (state := self._quiet_run(day)) not in (OK, WITH_ERRORS):
            if state != WAITS and "refused" not in state:
                self.scheduler.fail(f"day {day}, without faults: {state}")
                raise Over
            if self.scheduler.now > until:
                self.scheduler.fail(f"day {day} waits for more than {rounds} times give_up")
                raise Over
            self.scheduler.sleep(pause)
            pause = min(1.5 * pause, LOOKS_AT_LEAST)
        return state

    def _quiet_run(self, day: int) -> str:
        run = self.start_run(day)
        self._finish(run, LONGEST_RUN)
        return self.world.runs[run.name]


def play(night: JobsNight, base: Path, *, trace: bool = False) -> Outcome:
    """Play the night in a folder of its own below `base`."""
    folder = base / f"night{night.seed}"
    world = World(night, folder, trace=trace)
    stage, scheduler = Stage(world), world.scheduler
    try:
        for acts, pause in zip(night.rounds, night.pauses, strict=True):
            stage.play_round(acts)
            scheduler.sleep(pause)
        stage.play_quiet_end()
    except (Over, Killed):
        pass
    outcome = Outcome.of(
        scheduler,
        world.faults,
        charges=len(world.vendor.accepted()),
        file_operations=world.disk.operations,
        runs=world.runs,
    )
    scheduler.finish()
    vars(world.disk).clear()  # Arrow refers to the disk, and gc does not see it
    night_at_work.end()
    shutil.rmtree(folder, ignore_errors=True)
    if next(_played) % NIGHTS_PER_COLLECTION == 0:
        gc.collect()
    return outcome
