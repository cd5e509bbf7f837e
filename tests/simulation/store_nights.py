"""python -m tests.simulation.store_nights FROM TO: plays what rests on requests to an object store.

Several processes want one lock, do a piece of work under it and save a record of it; any of them
may be killed at each of its requests, and a request may fail before or after it was carried out.
Listings lag behind. The judge is the store itself: what it has, and since when.
"""

import json
import os
import random
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

from jobs.errors import TidegateError
from jobs.storage import object_lock
from jobs.storage.object_lock import EXPIRES, LockLost, LockTaken, ObjectLock, held
from jobs.tables.records import record_copies
from tests.simulation import night_at_work
from tests.simulation.faults import Faults
from tests.simulation.object_store import SimulatedObjects
from tests.simulation.processes import Process
from tests.simulation.product import install
from tests.simulation.scheduler import EPOCH, Scheduler
from tests.simulation.storage import ObjectStore

PLACE, TABLE = "s3://bucket/lock", "s3://bucket/table"
LONGEST = 3600.0  # s
QUIET_AFTER = 300.0  # s
WAIT = 600.0  # s; for the lock
SLOW = 0.4  # s; of a store's answers, of which a few take longer than a lock lives
TRIES = 3  # of a process to get the lock


class StoreNight:
    """A night of one store. The root thread starts the processes and looks at what they leave."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.draws = random.Random(f"store:{seed}")
        self.scheduler = Scheduler(f"store:{seed}", preempts=self.draws.choice((0.1, 0.5)))
        night_at_work.begin(self.scheduler)
        chances = {
            "kill at a file": self.draws.choice((0.0, 0.02, 0.1, 0.3)),
            "error before a file operation": self.draws.choice((0.0, 0.0, 0.1)),
            "error after a file operation": self.draws.choice((0.0, 0.0, 0.1)),
        }
        self.faults = Faults(chances, (), self.scheduler.stream, self.scheduler.say)
        self.store = ObjectStore(self.draws.choice((0.001, 0.05, SLOW)), self.faults)
        self.store.fails_between = (0.0, QUIET_AFTER)
        self.store.may_kill = lambda process: process.name != "root"
        self.store.kill = self.scheduler.kill
        self.objects = SimulatedObjects(self.store, self.draws.choice((0.0, 2.0, 30.0)))
        object_lock.objects = record_copies.objects = self.objects  # type: ignore[assignment]
        self.folder = folder
        self.confirmed: dict[Process, float] = {}  # who works under the lock, and its last write
        self.taken: list[str] = []  # tokens, in the order of their holders
        self.saved: dict[str, bytes] = {}  # records that their process was told are saved

    def play(self) -> list[str]:
        workers = [
            self.scheduler.spawn(f"host{number}", self._work)
            for number in range(self.draws.choice((2, 3, 5)))
        ]
        self.scheduler.after(QUIET_AFTER, self._calm)
        for worker in workers:
            self._end(worker)
        self.scheduler.sleep(QUIET_AFTER)
        self._end(self.scheduler.spawn("last", self._work))
        if not self.taken or not self.taken[-1].startswith("last"):
            self.scheduler.fail("the lock was not free at the end")
        for wait, is_whole in ((0.0, False), (self.objects.lag, True)):
            self.scheduler.sleep(wait)
            self._end(self.scheduler.spawn("reader", partial(self._read_all, is_whole=is_whole)))
        failures = [*self.scheduler.failures]
        self.scheduler.finish()
        night_at_work.end()
        return failures

    def _calm(self) -> None:
        self.faults.is_quiet = True

    def _end(self, process: Process) -> None:
        if not self.scheduler.wait_for(process, LONGEST):
            self.scheduler.fail(f"{process} has not ended\n{self.scheduler.describe()}")

    # -- who wants the lock
    # ----------------------------------------------------------------------------------------------
    def _work(self) -> None:
        me = self.scheduler.me().process
        for attempt in range(TRIES):
            token = f"{me}-{attempt}"
            try:
                with held(PLACE, {}, wait=WAIT, token=partial(_named, token)) as lock:
                    self._took(token)
                    self._work_under(lock, token)
            except (LockTaken, LockLost, OSError, TidegateError) as error:
                self.scheduler.say(token, type(error).__name__)
                if not self.faults.struck and self.store.latency < SLOW:
                    self.scheduler.fail(f"{token} ended without a fault by {error!r}")
            finally:
                self.confirmed.pop(me, None)
            self.scheduler.sleep(self.scheduler.jitter.random())

    def _work_under(self, lock: ObjectLock, token: str) -> None:
        for _ in range(3):
            self.scheduler.sleep(self.scheduler.jitter.choice((0.1, 4.0, 9.0, 30.0)))
            lock.confirm()
            self._is_confirmed(token)
        folder = self.folder / str(self.scheduler.me().process)
        record, data = folder / "2024-05-01" / f"{token}.json", token.encode()
        record_copies.save(TABLE, folder, record, data)
        self.saved[record.relative_to(folder).as_posix()] = data
        record_copies.fetch(TABLE, folder)

    def _took(self, token: str) -> None:
        """Nobody else works under the lock, unless it was silent for longer than it may be."""
        now = self.scheduler.now
        for other, at in self.confirmed.items():
            if not other.is_dead and now - at < EXPIRES:
                self.scheduler.fail(
                    f"two holders: {token}, and {other}, heard {now - at:.1f} s ago"
                )
        self.taken.append(token)
        self._is_confirmed(token)

    def _is_confirmed(self, token: str) -> None:
        """The store has the holder's word, or had it until it was too old."""
        file = self.store.files[PLACE]
        written = file.mtime - EPOCH
        holder = json.loads(file.data)["token"]
        if holder != token and self.scheduler.now - written < EXPIRES:
            self.scheduler.fail(f"{token} was told that it holds the lock, and {holder} does")
        self.confirmed[self.scheduler.me().process] = written

    # -- who reads the records
    # ----------------------------------------------------------------------------------------------
    def _read_all(self, *, is_whole: bool) -> None:
        """Another host has all records once listings have caught up."""
        folder = self.folder / "reader"
        record_copies.fetch(TABLE, folder)
        for name, data in self.saved.items():
            found = (folder / name).read_bytes() if (folder / name).exists() else None
            if found != data and (found is not None or is_whole):
                self.scheduler.fail(f"record {name} is not on another host")


def _fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _named(token: str, _bytes: int) -> str:
    return token


def main() -> int:
    install()
    first, last = map(int, sys.argv[1:])
    struck: Counter[str] = Counter()
    failed = holders = 0
    for seed in range(first, last):
        with tempfile.TemporaryDirectory(dir=_fast_folder()) as folder:
            night = StoreNight(seed, Path(folder))
            failures = night.play()
        struck += night.faults.struck
        holders += len(night.taken)
        failed += bool(failures)
        for failure in failures[:2]:
            print(f"NIGHT {seed} FAILED at {failure}", flush=True)
    faults = ", ".join(f"{number} {name}" for name, number in struck.most_common())
    print(f"{last - first} nights, {failed} failed; {holders} holders; faults: {faults or 'none'}")
    sys.stdout.flush()
    return bool(failed)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a night
        command = [sys.executable, "-m", "tests.simulation.store_nights", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    os._exit(main())  # without waiting for the threads that carried the nights
