"""What all acts of a night of publishing share: its people, its faults, its table, its judge."""

import contextlib
import datetime as dt
import traceback
from collections.abc import Iterator
from pathlib import Path

from jobs.errors import DayTaken, PublishConflict, TidegateError
from jobs.schema.records import DayRecord
from jobs.tables.leases import day_leases as leases
from tests.simulation import night_at_work
from tests.simulation.faults import Faults
from tests.simulation.publishing import project
from tests.simulation.publishing.folder import Folder
from tests.simulation.publishing.night import PublishingNight
from tests.simulation.publishing.power import Synced
from tests.simulation.publishing.project import TABLE, Inputs, Row
from tests.simulation.publishing.rules import Rules
from tests.simulation.scheduler import EPOCH, Scheduler

# s by which the night's clock is ahead of that of the real files, so that none is of the future
AHEAD = 600.0
WAITS = (0.0, 0.3, 30.0)  # s; of a run for another of its day


class ProgramEnded(TidegateError):  # noqa: N818  # what happened
    """The Spark program of a run was killed."""


class Quality:
    """Keeps verdicts in no time."""

    checks = "tests.simulation:checks"

    def unready(self, _declared: object) -> str:
        return ""

    def keep(self, _record: DayRecord) -> None:
        night_at_work.scheduler().sleep(0.01)

    def render(self, *_: object) -> None:
        pass


class World:
    """One night's world.

    Attributes:
        runs: How each run ended, by its id.
        erasing: Ids by the number of a day, until they are erased: who was killed does it again.
        is_over: The round is over: readers end.
    """

    def __init__(
        self, night: PublishingNight, path: Path, *, real_time: float, trace: bool
    ) -> None:
        self.night = night
        self.scheduler = Scheduler(f"publishing:{night.seed}", preempts=night.preempts, trace=trace)
        night_at_work.begin(self.scheduler)
        self.scheduler.clock_offset = real_time + AHEAD - EPOCH
        self.faults = Faults(
            night.chances, night.left_out, self.scheduler.stream, self.scheduler.say
        )
        self.folder = self.scheduler.folder = Folder(path, self.faults, night.latency, night.stalls)
        self.folder.fails_between, self.folder.slow = night.fails_between, night.slow
        self.rules = self.scheduler.rules = Rules()
        self.folder.removes = self.rules.removals.removes
        self.folder.committed = self._committed
        self.scheduler.world = self
        self.draws = self.scheduler.stream("people")
        self.synced = Synced()
        self.folder.synced = self.synced.note
        self.inputs = Inputs()
        self.enrichment = project.declared(
            shows_folders=night.shows_folders, makes_summaries=night.makes_summaries
        )
        self.runs: dict[str, str] = {}
        self.erasing: dict[int, set[int]] = {}
        self.is_over = False

    def _committed(self, call: str) -> None:
        self.rules.look()
        if call == "vacuum":
            self.rules.removals.check_files()

    def fail(self, message: str) -> None:
        self.scheduler.fail(message)

    def begin_run(self, kind: str) -> tuple[int, str]:
        """The number and the id of a run that begins."""
        number = len(self.runs) + 1
        self.runs[f"{kind}{number}"] = "at work"
        return number, f"{kind}{number}"

    def leased(self, day: str, run_id: str) -> contextlib.AbstractContextManager[leases.Lease]:
        return leases.leased(TABLE, day, run_id, wait=self.draws.choice(WAITS))

    @contextlib.contextmanager
    def told(self, name: str) -> Iterator[None]:
        """How the body may end: in its own way, or in one sentence."""
        try:
            yield
        except (DayTaken, PublishConflict, ProgramEnded) as error:
            self.runs[name] = f"{type(error).__name__}: {error}"
            self.scheduler.say(name, type(error).__name__)
        except (TidegateError, OSError) as error:  # the command says either in a sentence
            self.runs[name] = f"failed: {error}"
            self.scheduler.say(name, "failed")
            if not self.has_errors:
                self.fail(f"{name} failed: {error}\n{traceback.format_exc()}")
        except Exception as error:  # noqa: BLE001  # nobody may end by any other
            self.fail(f"{name} broke: {error!r}\n{traceback.format_exc()}")

    @property
    def has_errors(self) -> bool:
        """Whether a file operation has failed, after which anybody may."""
        return "error before a file operation" in self.faults.struck

    def rows_in(self, file: str) -> list[Row]:
        """The rows of a run's file, as the run wrote them."""
        name = str(Path(file).resolve().relative_to(Path(TABLE).resolve()))
        return self.rules.runs[name.split("/")[1]].files[name]

    def today(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(EPOCH + self.scheduler.now, dt.UTC)
