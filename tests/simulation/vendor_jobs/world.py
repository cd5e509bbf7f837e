"""What all acts of a night of jobs share: its vendor, its faults, its disk, its judge."""

import os
from pathlib import Path

from jobs.limits.store_url import LIMITS_URL, OFF
from tests.simulation import night_at_work
from tests.simulation.disk import Disk
from tests.simulation.faults import Faults
from tests.simulation.file_access import ArrowFiles, DiskPath, FileSystem
from tests.simulation.processes import Process
from tests.simulation.scheduler import Scheduler
from tests.simulation.sockets import Network
from tests.simulation.spark import Spark
from tests.simulation.vendor_jobs.connection import VendorConnection
from tests.simulation.vendor_jobs.declared import draw_texts
from tests.simulation.vendor_jobs.dialects import DIALECTS
from tests.simulation.vendor_jobs.night import JobsNight
from tests.simulation.vendor_jobs.rules import BEGUN, JobRules
from tests.simulation.vendor_jobs.vendor import JobVendor

COMMANDS = ("compact", "forget", "forget job", "cancel", "look")


class World:
    """One night's world.

    Attributes:
        runs: How each run ended, by its name.
        sparks: By driver.
    """

    def __init__(self, night: JobsNight, folder: Path, *, trace: bool) -> None:
        self.night, self.folder = night, folder
        self.scheduler = Scheduler(
            f"jobs:{night.seed}", preempts=night.preempts, trace=trace, folder=f"{folder}/"
        )
        night_at_work.begin(self.scheduler)
        self.scheduler.world = self  # type: ignore[attr-defined]
        self.draws = self.scheduler.stream("people")
        self.faults = Faults(
            night.chances, night.left_out, self.scheduler.stream, self.scheduler.say
        )
        self.limits_file = folder / "limits.sqlite"
        os.environ[LIMITS_URL] = f"file://{self.limits_file}" if night.budget else OFF
        self.scheduler.network = Network(self.faults, VendorConnection)
        self.disk = Disk(night.latency, self.faults)
        self.disk.fails_between, self.disk.aim = night.fails_between, night.aim
        self.disk.may_kill, self.disk.kill = self._may_kill, self.kill
        self.scheduler.file_system = FileSystem(ArrowFiles(self.disk))  # type: ignore[attr-defined]
        DiskPath.disk = self.disk
        self.locks: dict[str, tuple[int, Process]] = {}  # by path
        self.vendor = JobVendor(self.faults, DIALECTS[night.dialect], night.takes_long, night.hides)
        self.scheduler.vendor = self.vendor  # type: ignore[attr-defined]
        self.rules = JobRules(night, self.vendor, self.disk, self.limits_file)
        self.scheduler.rules = self.rules  # type: ignore[attr-defined]
        self.texts = [draw_texts(night, day) for day in range(night.days)]
        self.runs: dict[str, str] = {}
        self.sparks: dict[Process, Spark] = {}

    @staticmethod
    def _may_kill(process: Process) -> bool:
        return process.name != "root"

    def kill(self, process: Process) -> None:
        """Kill a process; a driver with its workers."""
        if process.has_ended:
            return
        if process in self.sparks:
            self.faults.struck[f"kill of a run: {self.rules.reached.get(process, BEGUN)}"] += 1
        self.scheduler.kill(process)
        for worker in self.sparks[process].workers if process in self.sparks else ():
            self.scheduler.kill(worker)

    def is_busy(self) -> bool:
        """Whether a run or a command is at work."""
        return any(not process.has_ended for process in self.scheduler.processes[1:])
