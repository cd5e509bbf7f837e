"""Concurrent runs with the same keys take turns: each claims a share of the keys before it calls for them.

The keys of a lookup fall into 256 shares by their hash, the same in every run. A task claims a share of its keys by a
file in its run's folder, asks, and gives the claim back once the answers are stored. Keys of a share that another run
has claimed come last; what that run has answered by then is not asked. So do single keys that another run asks by row
(jobs/run/by_row.py).

    <folder>/runs/<run_id>/claims/<share>-<task>
"""

import random
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.ledger.abandoned import RUNS
from jobs.ledger.answers import ANSWERS
from jobs.ledger.keys import key_hashes
from jobs.ledger.plan import LedgerPlan
from jobs.ledger.store import ForeignFile, LedgerFolder
from jobs.run.by_row import DECIDING, LISTED, listed_among
from jobs.run.hits import BEAT, folder_of, run_of_keys

SHARES = 256
DEAD_AFTER = 30.0  # s without a beat, by the clock of the ledger's filesystem
ROWS_PER_BATCH = 1000
FEWEST_AHEAD = 200  # keys per lookup that are claimed and not stored yet
AHEAD_GROWS = 4  # times, each half a second or so that a task waits for its ledger
PART_TOGETHER = 4  # of those ahead: claimed in one look at the other runs' claims, which lists a folder


@dataclass
class _Place:
    """One lookup: its folder, this task's keys to call for, and the answers of others."""

    plan: LedgerPlan
    folder: LedgerFolder
    rows: np.ndarray  # of its keys in the task's table
    shares: np.ndarray  # of its keys
    texts: pa.Array
    hashes: np.ndarray  # of its keys' columns
    done: np.ndarray  # per key: another run has an answer
    taken: np.ndarray  # per key: passed on to be called
    left: np.ndarray  # per key: left to a run that calls for it by row
    types: str  # of the key's columns
    others: set[str]  # living runs at the last check
    read: set[str] = field(default_factory=set)  # their parts
    listed: dict[str, np.ndarray] = field(default_factory=dict)  # per run that calls by row: its keys

    @property
    def lasting(self) -> list[str]:
        """Outcomes that may be used: those with a time to live."""
        return [outcome for outcome, age in self.plan.ttl.max_age_us().items() if outcome in ANSWERS and age != 0]

    def open(self, share: int) -> np.ndarray:
        """Per key: of this share, not passed on, and not answered."""
        found: np.ndarray = (self.shares == share) & ~self.done & ~self.taken
        return found

    def free(self, share: int) -> np.ndarray:
        """The open keys that no other run calls by row."""
        found: np.ndarray = self.open(share) & ~self.left
        return found

    def look(self) -> dict[str, set[str]]:
        """Who lives, by run, and the shares that each has claimed: all, while it decides. A run without a beat for long
        is dead; so is one whose last beat is far ahead, from before the clock was put back.
        """
        beats: dict[str, datetime] = {}
        claims: dict[str, set[str]] = {}
        by_row = set()
        for info in self.folder.files(RUNS):
            parts = info.path[len(self.folder.path) + len(RUNS) + 2 :].split("/")
            if len(parts) == 2 and parts[1] == BEAT and info.mtime is not None:
                beats[parts[0]] = info.mtime
            elif len(parts) == 2 and parts[1] == DECIDING:
                claims.setdefault(parts[0], set()).update(f"{share:03d}" for share in range(SHARES))
            elif len(parts) == 2 and parts[1] == LISTED:
                by_row.add(parts[0])
            elif len(parts) == 3 and parts[1] == "claims":
                claims.setdefault(parts[0], set()).add(parts[2].split("-")[0])
        now = beats.get(self.plan.run_id)
        alive = {
            run
            for run, heartbeat in beats.items()
            if now is None or abs((now - heartbeat).total_seconds()) < DEAD_AFTER
        }
        alive -= {self.plan.run_id}
        self._leave(by_row & alive)
        return {run: claims.get(run, set()) for run in alive}

    def _leave(self, runs: set[str]) -> None:
        """Leave these runs the keys that they call by row, unless a time to live of 0 makes the answers useless."""
        self.left = np.zeros(len(self.rows), np.bool_)
        for run in runs if "ok" in self.lasting else ():
            if run not in self.listed:
                try:
                    self.listed[run] = listed_among(self.folder, run, self.hashes, self.types)
                except FileNotFoundError:  # the run has ended
                    continue
                except (pa.ArrowException, OSError) as error:
                    raise self.folder.unreadable(f"{RUNS}/{run}/{LISTED}", error) from error
            self.left |= self.listed[run]

    def read_answers(self, alive: set[str]) -> None:
        """Mark keys that other runs have answered since the last check, including runs that have ended."""
        for run in self.others | alive:
            for run_id in (run, run_of_keys(run)):
                for part in self.folder.parts(run_id):
                    if part not in self.read:
                        self._read(part)
        self.others = set(alive)

    def _read(self, part: str) -> None:
        try:
            table = self.folder.read_part(part)
        except (ForeignFile, FileNotFoundError):  # being written, so its answers belong to open claims
            return
        self.read.add(part)
        known = table.filter(pc.is_in(table["outcome"], value_set=pa.array(self.lasting, pa.string())))["key"]
        self.done |= pc.is_in(self.texts, value_set=known.combine_chunks()).to_numpy(zero_copy_only=False)


class Claims:
    """The claims of one task. `take` runs in the thread that reads the input, `finished` in the one that yields."""

    def __init__(
        self,
        plans: dict[int, LedgerPlan],
        others: Mapping[int, Sequence[str]],
        task: int,
        *,
        text: str,
        place: str,
        hashed: str,
        types: Mapping[int, str],
        seed: int,
    ) -> None:
        """plans: by the number that stands in the column `place`. others: runs that lived when this one began. text:
        the column of the key's text, hashed: that of its hash; types: of its columns, by place. Parts of this run are
        found under the plan's run_id.
        """
        self._plans = plans
        self._others = others
        self._task = task
        self._text, self._place, self._hashed, self._types = text, place, hashed, types
        self._dice = random.Random(seed * 1009 + task)  # an order, not a secret
        self._every = min(plan.flush_seconds for plan in plans.values())
        self._changed = threading.Condition()
        self._open: Counter[tuple[int, int]] = Counter()  # rows of each claimed share that are not stored yet
        self._ahead = FEWEST_AHEAD * len(plans)  # a fast lookup's keys wait to be stored, and leave the slow one's room
        self._waits = self._ended = False

    def take(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows whose keys are called next, share by share, without keys that another run has answered."""
        tables = list(batches)
        if not tables:
            return
        table = pa.Table.from_batches(tables).combine_chunks()
        places = {one: self._place_of(one, table) for one in self._plans}
        groups = deque((one, int(share)) for one, place in places.items() for share in np.unique(place.shares))
        self._dice.shuffle(groups)
        put_off = 0
        while groups and not self._ended:
            one, share = group = groups.popleft()
            place = places[one]
            if not place.open(share).any():
                continue
            if self._may_claim(place, group):
                some = self._with_more(place, group, groups)
                claimed = self._claim(place, some)
                groups.extend((one, share) for share in some)  # with keys that are left to others
                if claimed:
                    put_off = 0
                    yield from self._called_next(table, place, one, claimed)
                    continue
                put_off += len(some)
            else:
                groups.append(group)
                put_off += 1
            if put_off >= len(groups):  # others work on all the rest: wait for their answers or their death
                put_off = 0
                self._sleep(self._every * self._dice.uniform(0.5, 1.5))
                for waiting in {one for one, _ in groups}:
                    places[waiting].read_answers(set(places[waiting].look()))

    def _place_of(self, one: int, table: pa.Table) -> _Place:
        rows = np.flatnonzero(table[self._place].to_numpy() == one)
        texts = table[self._text].combine_chunks().take(pa.array(rows))
        plan = self._plans[one]
        hashes = table[self._hashed].combine_chunks().take(pa.array(rows)).to_numpy()
        done, taken, left = (np.zeros(len(rows), np.bool_) for _ in range(3))
        others = set(self._others.get(one, ()))
        return _Place(
            plan, folder_of(plan), rows, _shares_of(texts), texts, hashes, done, taken, left, self._types[one], others
        )

    def _may_claim(self, place: _Place, group: tuple[int, int]) -> bool:
        return group not in self._open and bool(place.free(group[1]).any())

    def _with_more(self, place: _Place, group: tuple[int, int], groups: deque[tuple[int, int]]) -> list[int]:
        one, share = group
        some, keys = [share], int(place.free(share).sum())
        enough = self._ahead // PART_TOGETHER
        for other in [other for other in groups if other[0] == one] if keys < enough else ():
            if self._may_claim(place, other):
                groups.remove(other)
                some.append(other[1])
                keys += int(place.free(other[1]).sum())
                if keys >= enough:
                    break
        return some

    def _called_next(
        self, table: pa.Table, place: _Place, one: int, claimed: Sequence[int]
    ) -> Iterator[pa.RecordBatch]:
        own = {share: np.flatnonzero(place.free(share)) for share in claimed}
        for share, keys in own.items():
            place.taken[keys] = True
            if not len(keys):
                self._give_back(place.plan, share)
        rows = place.rows[np.concatenate([*own.values()])]
        if not len(rows):
            return
        with self._changed:
            self._open.update({(one, share): len(keys) for share, keys in own.items() if len(keys)})
        yield from table.take(pa.array(rows)).to_batches(max_chunksize=ROWS_PER_BATCH)
        self._wait_for_room()

    def _claim(self, place: _Place, shares: Sequence[int]) -> list[int]:
        """Claim the shares that no other run has, then read others' answers. Simultaneous claimants all yield."""
        own = _unclaimed(shares, place.look())
        if not own:
            return []
        for share in own:
            place.folder.write(self._file(place.plan, share), b"{}")
        alive = place.look()
        kept = _unclaimed(own, alive)
        for share in set(own) - set(kept):
            self._give_back(place.plan, share)
        if kept:
            place.read_answers(set(alive))
        return kept

    def _file(self, plan: LedgerPlan, share: int) -> str:
        return f"{RUNS}/{plan.run_id}/claims/{share:03d}-{self._task}"

    def _give_back(self, plan: LedgerPlan, share: int) -> None:
        folder_of(plan).delete(self._file(plan, share))

    def finished(self, batch: pa.RecordBatch) -> None:
        shares = _shares_of(batch[self._text]).tolist()
        through = []
        with self._changed:
            for group, rows in Counter(zip(batch[self._place].to_pylist(), shares, strict=True)).items():
                self._open[group] -= rows
                if self._open[group] <= 0:
                    del self._open[group]
                    through.append(group)
            if self._waits and self._open.total() < self._ahead / 2:  # the service is faster than rows leave the task
                self._ahead *= AHEAD_GROWS
            self._changed.notify_all()
        for group in through:
            self._give_back(self._plans[group[0]], group[1])

    def _wait_for_room(self) -> None:
        """Wait for room, so that claimed keys are called soon and do not block other runs."""
        with self._changed:
            self._waits = self._open.total() >= self._ahead
            while self._open.total() >= self._ahead and not self._ended:
                self._changed.wait(1.0)
            self._waits = False

    def _sleep(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended, seconds)

    def end(self) -> None:
        """End all waits, from any thread. Remaining claims go with the run's folder."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def _unclaimed(shares: Sequence[int], alive: Mapping[str, set[str]]) -> list[int]:
    claimed = set().union(*alive.values())
    return [share for share in shares if f"{share:03d}" not in claimed]


def _shares_of(texts: pa.Array) -> np.ndarray:
    return (key_hashes(texts.to_pylist()) >> np.uint64(56)).astype(np.int64)
