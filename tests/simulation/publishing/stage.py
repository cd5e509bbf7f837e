"""Plays one night of publishing: runs, streams, readers and people on one table, and at last a
quiet night.
"""

import gc
import os
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from jobs.tables.leases.day_leases import at_work
from jobs.tables.records import run_records
from jobs.tables.shown import shown_days, shown_elsewhere
from tests.simulation import night_at_work
from tests.simulation.outcome import Outcome, Over
from tests.simulation.processes import Killed, Process
from tests.simulation.publishing import folder as folders
from tests.simulation.publishing import onlookers, people, runs, streaming
from tests.simulation.publishing.night import Act, PublishingNight
from tests.simulation.publishing.project import NAME, TABLE, day_of
from tests.simulation.publishing.runs import LONGEST, ORPHANS_LIVE
from tests.simulation.publishing.world import World

WORKERS: dict[str, Callable[[World, Act], None]] = {
    "run": runs.run,
    "changed run": runs.run,
    "stream": streaming.stream,
    "erase": people.erase,
    "vacuum": people.vacuum,
}
ONLOOKERS = {"read": onlookers.read, "status": onlookers.show_status}


class Stage:
    """The root thread, which plays the acts in a night's world."""

    def __init__(self, world: World) -> None:
        self.world, self.scheduler = world, world.scheduler
        self._working: list[Process] = []
        self._looking: list[Process] = []

    def play_round(self, acts: Sequence[Act]) -> None:
        began, self.world.is_over = self.scheduler.now, False
        for act in acts:
            self.scheduler.sleep(began + act.at - self.scheduler.now)
            self.scheduler.say("ACT", act.does, act.day)
            self._play(act)
        self._finish(self._working)
        self.world.is_over = True
        self._finish(self._looking)

    def _play(self, act: Act) -> None:
        world = self.world
        if act.does == "arrive":
            world.inputs.arrive(day_of(act.day), world.draws.choice((0, 1, 5, 20)))
        elif act.does == "kill":
            living = [process for process in self._working if not process.has_ended]
            if living:
                world.faults.struck["kill of a process"] += 1
                self.scheduler.kill(living[int(act.share * len(living))])
        elif act.does == "power cut":
            self._cut_power()
        elif act.does in ONLOOKERS:
            look = partial(ONLOOKERS[act.does], world)
            self._looking.append(self.scheduler.spawn(act.does, look))
        elif act.does != "stream" or not self._is_streaming():
            work = partial(WORKERS[act.does], world, act)
            self._working.append(self.scheduler.spawn(act.does, work))

    def _cut_power(self) -> None:
        """The machine goes down: nobody lives, and what was not synced may be lost."""
        self.world.faults.struck["power cut"] += 1
        for process in self.scheduler.processes[1:]:
            self.scheduler.kill(process)
        self.scheduler.sleep(0.1)
        self.world.synced.cut(Path("data"), self.world.draws, spare=("raw", "_stream"))
        self.world.rules.power_was_cut()

    def _is_streaming(self) -> bool:
        return any(process.name == "stream" and not process.has_ended for process in self._working)

    def _finish(self, processes: list[Process]) -> None:
        for process in processes:
            if not self.scheduler.wait_for(process, LONGEST):
                self.world.fail(f"{process} has not ended in an hour\n{self.scheduler.describe()}")
                raise Over
        processes.clear()

    def pass_days(self, days: int) -> None:
        self.scheduler.sleep(ORPHANS_LIVE)  # nobody is at work now
        if days and Path("data").exists():
            self.scheduler.say("days pass", days)
            folders.age(Path("data"), days)
            self.world.rules.days_passed += days
            self.world.synced.note_all(Path("data"))

    # -- the end of the night
    # ------------------------------------------------------------------------------------------
    def play_quiet_end(self) -> None:
        """What was left undone is done now; then what is on the disk is what is shown."""
        world, rules = self.world, self.world.rules
        world.faults.is_quiet = True
        self.pass_days(0)
        world.inputs.arrive(day_of(0), 3)
        self._quietly(Act("run", 0.0))
        if any(act.does == "stream" for acts in world.night.rounds for act in acts):
            self._quietly(Act("stream", 0.0))
            rules.check_all_rows(world.inputs)
        for day in [*world.erasing]:
            self._quietly(Act("erase", 0.0, day=day))
        self._quietly(Act("read", 0.0))
        self._quietly(Act("status", 0.0))
        for _ in range(2):  # a folder that a vacuum takes files from is as young as that
            self.pass_days(9)
            self._quietly(Act("vacuum", 0.0, days=7))
        rules.check_end()
        lagging = shown_elsewhere.lagging(world.enrichment.facts())
        for sentence in (*shown_days.lost_days(world.enrichment, run_records.load(NAME)), *lagging):
            world.fail(f"at the end: {sentence}")
        if world.night.shows_folders:
            rules.readers.check_folders(only_last=True)
        if holders := at_work(TABLE):
            world.fail(f"leases at the end: {holders}")

    def _end_looking(self) -> None:
        self.world.is_over = True

    def _quietly(self, act: Act) -> None:
        before = len(self.world.runs)
        self.world.is_over = False
        self.scheduler.after(1.0, self._end_looking)
        self._play(act)
        self._finish(self._working)
        self._finish(self._looking)
        if act.does in ("run", "stream"):
            state = [*self.world.runs.values()][before]
            if state != "published":
                self.world.fail(f"a quiet {act.does}: {state}")


def play(night: PublishingNight, base: Path, *, trace: bool = False) -> Outcome:
    """Play the night in a folder of its own below `base`."""
    path = base / f"night{night.seed}"
    path.mkdir()
    os.chdir(path)
    world = World(night, path, real_time=time.time(), trace=trace)
    stage, scheduler = Stage(world), world.scheduler
    try:
        for acts, days in zip(night.rounds, night.ages, strict=True):
            stage.play_round(acts)
            stage.pass_days(days)
        stage.play_quiet_end()
    except (Over, Killed):
        pass
    outcome = Outcome.of(
        scheduler,
        world.faults,
        charges=len(world.rules.committed),
        file_operations=world.folder.operations,
        runs=world.runs,
    )
    scheduler.finish()
    night_at_work.end()
    os.chdir(base)
    shutil.rmtree(path, ignore_errors=True)
    gc.collect()
    return outcome
