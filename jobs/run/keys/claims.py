"""Lets concurrent runs with the same keys take turns: each claims shares of keys before its calls.

The keys of a lookup fall into 256 shares by their hash, the same in every run. A task claims some
shares of its keys by a file whose name lists them, asks the ledger which of these keys are still
open, calls for those, and deletes the file once the answers are stored. Shares that another run has
claimed come last, as do single keys that another run keeps to itself (kept_keys.py).

    <folder>/runs/<run_id>/claims/<task>-<attempt>-<shares, a bit each>

A claim holds for as long as its task renews its file; the file of a killed attempt expires, and the
next attempt of the task deletes it. A task waits only for a claim or a run that gives signs of
life, never for a task of the same run, and holds no claim on keys that it does not call for. So no
two tasks ever wait for each other.
"""

import logging
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.declare.lookup import Lookup
from jobs.errors import LedgerError
from jobs.ledger.keys import key_hashes
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.selection import Search, Seen
from jobs.ledger.store import LedgerFolder
from jobs.ledger.working_folders import BEAT, RUNS, by_run
from jobs.run.keys.hits import known_answers, open_folder, run_of_keys
from jobs.run.keys.kept_keys import BY_ROW, PREFETCHED, kept_among

SHARES = 256
RENEW_EVERY = 10.0  # s between two renewals of a claim
DEAD_AFTER = 30.0  # s without a renewal or a heartbeat, by the clock of the ledger's filesystem
ROWS_PER_BATCH = 1000
FEWEST_AHEAD = 200  # keys per lookup that are claimed and not stored yet
AHEAD_GROWS = 4  # factor, each half second or so that a task waits for its ledger
PART_TOGETHER = 4  # a file claims this part of the keys ahead
LONGEST_PAUSE = 5.0  # s between two looks of a task that waits
SAY_EVERY = 60.0  # s of waiting between two warnings
CLAIMS = "claims"
_CLAIM = re.compile(rf"{CLAIMS}/(\d+)-\d+-([0-9a-f]{{64}})")

_log = logging.getLogger("tidegate.ledger")

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SharedLookup:
    """A lookup whose keys other runs may want too.

    Attributes:
        seen: The records that the driver's search read: only later records can answer its missing
            keys.
    """

    plan: LedgerPlan
    lookup: Lookup
    seen: Seen = field(default_factory=Seen)


@dataclass
class _Claim:
    """A file that claims shares of a lookup."""

    folder: LedgerFolder
    name: str
    renewed: float
    rows: int = 0  # called, but not stored yet

    def write(self) -> None:
        self.folder.replace(self.name, b"{}")

    def renew(self, now: float) -> None:
        self.folder.renew(self.name, b"{}")
        self.renewed = now

    def delete(self) -> None:
        self.folder.delete(self.name)


class _Keys:
    """This task's keys of a lookup, and what other runs do with them."""

    def __init__(self, shared: SharedLookup, rows: npt.NDArray[np.int64], texts: pa.Array) -> None:
        """rows: places of the keys in the task's table."""
        self.shared, self.rows, self._texts = shared, rows, texts
        self.folder = open_folder(shared.plan)
        self._text_hashes = key_hashes(texts.to_pylist())
        self.shares = (self._text_hashes >> np.uint64(56)).astype(np.int64)
        self.done, self.taken, self.left = (np.zeros(len(rows), np.bool_) for _ in range(3))
        self.claimed: frozenset[int] = frozenset()  # by other runs, at the last look
        self._lists: dict[str, Mask] = {}
        own = shared.plan.run_id
        self._search = Search(self.folder, texts, seen=shared.seen, without=(own, run_of_keys(own)))

    def open(self, share: int) -> Mask:
        """Returns the keys of this share that are neither passed on nor answered."""
        found: Mask = (self.shares == share) & ~self.done & ~self.taken
        return found

    def free(self, share: int) -> Mask:
        """Returns the open keys that no other run keeps to itself."""
        found: Mask = self.open(share) & ~self.left
        return found

    @property
    def waits_for_lists(self) -> bool:
        return bool((self.left & ~self.done & ~self.taken).any())

    def look(self) -> dict[str, datetime | None]:
        """Sees which keys other runs claim or keep to themselves; returns this run's files."""
        runs = by_run(self.folder, self.folder.files(RUNS))
        own = runs.pop(self.shared.plan.run_id, {})
        now = own.get(BEAT)  # other files may predate a clock that was put back

        def is_alive(changed: datetime | None) -> bool:
            """Returns whether a file is recent; false also far ahead, as after a clock change."""
            return (
                now is None or changed is None or abs((now - changed).total_seconds()) < DEAD_AFTER
            )

        claimed: set[int] = set()
        lists = []
        for run, names in runs.items():
            if BEAT in names and is_alive(names[BEAT]):
                if BY_ROW not in names:  # the run has not decided yet
                    claimed.update(range(SHARES))
                lists += [f"{run}/{name}" for name in (PREFETCHED, BY_ROW) if name in names]
            for name, changed in names.items():
                if (found := _CLAIM.fullmatch(name)) and is_alive(changed):
                    claimed |= _shares_in(found[2])
        self.claimed = frozenset(claimed)
        self._leave(lists)
        return own

    def _leave(self, lists: Sequence[str]) -> None:
        """Leaves the listed keys to other runs, unless a time to live of 0 makes it useless."""
        self.left = np.zeros(len(self.rows), np.bool_)
        for name in lists if self.shared.plan.ttl.max_age_us()["ok"] != 0 else ():
            if name not in self._lists:
                try:
                    self._lists[name] = kept_among(self.folder, name, self._text_hashes)
                except FileNotFoundError:  # the run has released the keys, or ended
                    continue
            self.left |= self._lists[name]

    def find_answers(self) -> None:
        """Marks the keys that need no call any more."""
        known = known_answers(self._search, self.shared.lookup, self.shared.plan)["key"]
        self.done |= pc.is_in(self._texts, value_set=known.combine_chunks()).to_numpy(
            zero_copy_only=False
        )


class Claims:
    """The claims of an attempt of a task. `take` runs in the thread that reads the input,
    `finished` in the thread that yields.
    """

    def __init__(
        self,
        shared: Mapping[int, SharedLookup],
        task: int,
        attempt: int = 0,
        *,
        text: str,
        place: str,
        seed: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """shared: by the number in column `place`. text: the column of the keys' texts."""
        self._shared = shared
        self._name = f"{task}-{attempt}"
        self._of_task = f"{CLAIMS}/{task}-"
        self._text, self._place = text, place
        self._clock = clock
        self._dice = random.Random(seed * 1009 + task)  # only an order, not a secret
        self._pause = self._first_pause = min(one.plan.flush_seconds for one in shared.values())
        self._changed = threading.Condition()
        self._open: dict[tuple[int, int], _Claim] = {}  # by lookup and share
        self._rows = 0  # called, but not stored yet
        self._ahead = FEWEST_AHEAD * len(
            shared
        )  # a fast lookup's keys wait to be stored, and leave room for a slow lookup
        self._waits = self._progressed = self._ended = False
        self._renewing: threading.Thread | None = None

    def take(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows to call next, a share at a time, without keys that need no call."""
        tables = list(batches)
        if not tables:
            return
        table = pa.Table.from_batches(tables).combine_chunks()
        keys = {one: self._claimed_keys(one, table) for one in self._shared}
        for own in keys.values():
            self._take_over(own)
        groups = deque(
            (one, int(share)) for one, own in keys.items() for share in np.unique(own.shares)
        )
        self._dice.shuffle(groups)
        put_off, waited_since = 0, self._clock()
        while groups and not self._ended:
            one, share = group = groups.popleft()
            own = keys[one]
            if not own.open(share).any():
                continue
            if not self._may_claim(own, group):
                groups.append(group)
                put_off += 1
            else:
                some = self._with_more(own, group, groups)
                claim, claimed = self._claim(own, some)
                rows = self._rows_to_call(own, claimed)
                groups.extend((one, share) for share in some)  # some keys may be left to other runs
                put_off += len(some)
                if claim:
                    put_off, waited_since, self._pause = 0, self._clock(), self._first_pause
                    yield from self._called_next(table, one, own, claim, rows)
            # other runs work on all the rest: wait for their answers or their death
            if put_off >= len(groups):
                put_off = 0
                waited_since = self._wait({one for one, _ in groups}, keys, waited_since)

    def _claimed_keys(self, one: int, table: pa.Table) -> _Keys:
        rows = np.flatnonzero(table[self._place].to_numpy() == one)
        texts = table[self._text].combine_chunks().take(pa.array(rows))
        return _Keys(self._shared[one], rows, texts)

    def _take_over(self, own: _Keys) -> None:
        """Deletes the claims that earlier attempts of this task left."""
        run = f"{RUNS}/{own.shared.plan.run_id}"
        stale = [name for name in own.look() if name.startswith(self._of_task)]
        own.folder.delete(*(f"{run}/{name}" for name in stale))

    def _may_claim(self, own: _Keys, group: tuple[int, int]) -> bool:
        return (
            group not in self._open
            and group[1] not in own.claimed
            and bool(own.free(group[1]).any())
        )

    def _with_more(
        self, own: _Keys, group: tuple[int, int], groups: deque[tuple[int, int]]
    ) -> list[int]:
        one, share = group
        some, count = [share], int(own.free(share).sum())
        enough = self._ahead // PART_TOGETHER
        for other in [other for other in groups if other[0] == one] if count < enough else ():
            if self._may_claim(own, other):
                groups.remove(other)
                some.append(other[1])
                count += int(own.free(other[1]).sum())
                if count >= enough:
                    break
        return some

    def _claim(self, own: _Keys, shares: Sequence[int]) -> tuple[_Claim | None, Sequence[int]]:
        """Claims the shares, then asks the ledger what is still open. Returns the claim and its
        shares, without shares that others claim too: of two claims at the same moment each sees the
        other, and both give way.
        """
        for _ in range(2):
            bits = sum(1 << share for share in shares)
            name = f"{RUNS}/{own.shared.plan.run_id}/{CLAIMS}/{self._name}-{bits:064x}"
            claim = _Claim(own.folder, name, self._clock())
            claim.write()
            try:
                free = self._unclaimed(own, shares)
                if free == shares:
                    own.find_answers()
                    if self._clock() - claim.renewed >= RENEW_EVERY:
                        # so slow a search that another run may have taken the claim for dead
                        claim.renew(self._clock())
                        free = self._unclaimed(own, shares)
                if free == shares:
                    return claim, shares
            except BaseException:
                claim.delete()
                raise
            claim.delete()
            if not free:
                break
            shares = free
        return None, ()

    @staticmethod
    def _unclaimed(own: _Keys, shares: Sequence[int]) -> list[int]:
        own.look()
        return [share for share in shares if share not in own.claimed]

    def _rows_to_call(self, own: _Keys, shares: Sequence[int]) -> dict[int, npt.NDArray[np.int64]]:
        found = {share: np.flatnonzero(own.free(share)) for share in shares}
        for keys in found.values():
            own.taken[keys] = True
        return {share: keys for share, keys in found.items() if len(keys)}

    def _called_next(
        self,
        table: pa.Table,
        one: int,
        own: _Keys,
        claim: _Claim,
        found: Mapping[int, npt.NDArray[np.int64]],
    ) -> Iterator[pa.RecordBatch]:
        if not found:
            claim.delete()
            return
        rows = own.rows[np.concatenate([*found.values()])]
        with self._changed:
            claim.rows = len(rows)
            self._rows += len(rows)
            # replaced, because the renewing thread reads it without the lock
            self._open = self._open | {(one, share): claim for share in found}
        if self._renewing is None:
            self._renewing = threading.Thread(target=self._renew, name="ledger claims", daemon=True)
            self._renewing.start()
        yield from table.take(pa.array(rows)).to_batches(max_chunksize=ROWS_PER_BATCH)
        self._wait_for_room()

    def finished(self, batch: pa.RecordBatch) -> None:
        """Gives back the claims of which all rows have been stored."""
        shares = (
            (key_hashes(batch[self._text].to_pylist()) >> np.uint64(56)).astype(np.int64).tolist()
        )
        through = []
        with self._changed:
            for group in zip(batch[self._place].to_pylist(), shares, strict=True):
                claim = self._open[group]
                claim.rows -= 1
                self._rows -= 1
                if not claim.rows:
                    through.append(claim)
                    self._open = {
                        other: one for other, one in self._open.items() if one is not claim
                    }
            # the service is faster than rows leave the task
            if self._waits and self._rows < self._ahead / 2:
                self._ahead *= AHEAD_GROWS
            self._progressed = True
            self._changed.notify_all()
        for claim in through:
            claim.delete()

    def _renew(self) -> None:
        while not self._ended:
            with self._changed:
                self._changed.wait_for(lambda: self._ended, RENEW_EVERY / 2)
                claims = {id(claim): claim for claim in self._open.values()}.values()
            for claim in claims:
                if self._clock() - claim.renewed >= RENEW_EVERY / 2:
                    self._renew_one(claim)

    def _renew_one(self, claim: _Claim) -> None:
        try:
            claim.renew(self._clock())
            # deleted meanwhile: the renewal must not leave it behind
            if not any(claim is one for one in self._open.values()):
                claim.delete()
        except LedgerError as error:  # at worst other runs repeat its calls
            _log.warning("%s", error)

    def _wait_for_room(self) -> None:
        """Waits for room, so that claimed keys are called soon and do not block other runs."""
        with self._changed:
            self._waits = self._rows >= self._ahead
            while self._rows >= self._ahead and not self._ended:
                self._changed.wait(1.0)
            self._waits = False

    def _wait(self, waiting: set[int], keys: Mapping[int, _Keys], since: float) -> float:
        """Waits for claims of this task, or other runs. Returns since when nothing was free."""
        with self._changed:
            if not self._rows:
                self._progressed = False
            self._changed.wait_for(
                lambda: self._ended or self._progressed, self._pause * self._dice.uniform(0.5, 1.5)
            )
            has_progressed, self._progressed = self._progressed, False
        self._pause = self._first_pause if has_progressed else min(2 * self._pause, LONGEST_PAUSE)
        for one in waiting:
            keys[one].look()
            if keys[one].waits_for_lists:
                keys[one].find_answers()
        now = self._clock()
        if now - since < SAY_EVERY or has_progressed:
            return now if has_progressed else since
        for one in waiting:
            plan, count = keys[one].shared.plan, int((~keys[one].done & ~keys[one].taken).sum())
            _log.warning(
                "lookup %s: task %s of run %s waits for other runs, which ask %d of its keys",
                plan.lookup, self._name, plan.run_id, count,
            )  # fmt: skip
        return now

    def end(self) -> None:
        """Ends all waits, from any thread. Remaining claims expire, or go with the run's folder."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def _shares_in(bits: str) -> set[int]:
    number = int(bits, 16)
    return {share for share in range(SHARES) if number >> share & 1}
