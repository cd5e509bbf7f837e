"""Takes a task's keys by turns with other runs: claims shares, calls for their keys, gives back.

The rules between runs are those of claim_file.py.
"""

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from jobs.ledger.keys import key_hashes
from jobs.ledger.working_folders import DEAD_AFTER, RUNS
from jobs.run.keys.claims.claim_file import Claim, claim_name, find_shares, is_of_task
from jobs.run.keys.claims.open_claims import Group, OpenClaims
from jobs.run.keys.claims.task_keys import SharedLookup, TaskKeys

ROWS_PER_BATCH = 1000
LONGEST_PAUSE = 5.0  # s between two looks of a task that waits
SAY_EVERY = 60.0  # s of waiting between two warnings

_log = logging.getLogger("tidegate.ledger")


class Claims:
    """The claims of an attempt of a task. `take` runs in the thread that reads the input,
    `finished` in the thread that yields; what both use is in `OpenClaims`.
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
        """Create the claims of an attempt.

        Args:
            shared: The lookups, by their number in the column `place`.
            task: The number of the task.
            attempt: The number of the attempt.
            text: The name of the column with the keys' texts.
            place: The name of the column with the number of each key's lookup.
            seed: The same seed gives the same order of shares.
            clock: Seconds that never go back.
        """
        self._shared = shared
        self._task, self._attempt = task, attempt
        self._text, self._place = text, place
        self._clock = clock
        self._dice = random.Random(seed * 1009 + task)  # only an order, not a secret
        self._open = OpenClaims(len(shared), clock)
        self._keys: dict[int, TaskKeys] = {}
        self._pause = self._first_pause = min(
            shared_keys.plan.flush_seconds for shared_keys in shared.values()
        )
        self._waits_since = clock()

    def take(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows to call next, a share at a time, without keys that need no call."""
        tables = list(batches)
        if not tables:
            return
        table = pa.Table.from_batches(tables).combine_chunks()
        self._keys = {place: self._select_keys(place, table) for place in self._shared}
        for keys in self._keys.values():
            self._delete_left_claims(keys)
        groups = deque(
            (place, int(share))
            for place, keys in self._keys.items()
            for share in np.unique(keys.shares)
        )
        self._dice.shuffle(groups)
        put_off = 0  # groups since the last claim
        self._waits_since = self._clock()
        while groups and not self._open.has_ended:
            group = groups.popleft()
            if not self._keys[group[0]].is_pending(group[1]):
                continue
            looked_at, claim = [group], None
            if self._may_claim(group):
                looked_at = self._with_more(group, groups)
                claim, claimed = self._claim(looked_at)
            groups.extend(looked_at)  # some keys may be left to other runs
            put_off += len(looked_at)
            if claim is not None:
                put_off, self._waits_since = 0, self._clock()
                self._pause = self._first_pause
                yield from self._called_next(table, claim, claimed)
            # other runs have claimed all remaining groups: wait for their answers or their end
            if put_off >= len(groups):
                put_off = 0
                self._wait({place for place, _ in groups})

    def _select_keys(self, place: int, table: pa.Table) -> TaskKeys:
        rows = np.flatnonzero(table[self._place].to_numpy() == place)
        texts = table[self._text].combine_chunks().take(pa.array(rows))
        return TaskKeys(self._shared[place], rows, texts)

    def _delete_left_claims(self, keys: TaskKeys) -> None:
        """Delete the claims that earlier attempts of this task left."""
        run = f"{RUNS}/{keys.shared.plan.run_id}"
        left = [name for name in keys.look() if is_of_task(name, self._task)]
        keys.folder.delete(*(f"{run}/{name}" for name in left))

    def _may_claim(self, group: Group) -> bool:
        place, share = group
        keys = self._keys[place]
        return (
            not self._open.has(group) and not keys.is_claimed(share) and len(keys.free(share)) > 0
        )

    def _with_more(self, group: Group, groups: deque[Group]) -> list[Group]:
        """Return the group and others of its lookup, removed from `groups`, for one claim."""
        place, share = group
        keys, together = self._keys[place], [group]
        count, enough = len(keys.free(share)), self._open.keys_together
        for other in [other for other in groups if other[0] == place] if count < enough else ():
            if self._may_claim(other):
                groups.remove(other)
                together.append(other)
                count += len(keys.free(other[1]))
                if count >= enough:
                    break
        return together

    def _claim(self, groups: Sequence[Group]) -> tuple[Claim | None, Sequence[Group]]:
        """Claim groups of a lookup, then search the ledger for the answers of their keys.

        Returns:
            The claim and its groups, without those that other runs claim too.
        """
        keys = self._keys[groups[0][0]]
        for _ in range(2):
            shares = [share for _, share in groups]
            name = claim_name(keys.shared.plan.run_id, self._task, self._attempt, shares)
            claim = Claim(keys.folder, name, self._clock())
            claim.write()
            try:
                free = _unclaimed(keys, groups)
                while free == groups:
                    keys.find_answers()
                    if self._clock() - claim.renewed < DEAD_AFTER / 2:
                        return claim, groups
                    # so slow a search that another run may have taken the claim for dead, and
                    # called: the next search reads only what was stored since
                    claim.renew(self._clock())
                    free = _unclaimed(keys, groups)
            except BaseException:
                claim.delete()
                raise
            claim.delete()
            if not free:
                break
            groups = free
        return None, ()

    def _called_next(
        self, table: pa.Table, claim: Claim, groups: Sequence[Group]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the claimed keys that are pending, and wait for room."""
        found = {group: self._keys[group[0]].pass_on(group[1]) for group in groups}
        found = {group: rows for group, rows in found.items() if len(rows)}
        if not found:
            claim.delete()
            return
        rows = np.concatenate([*found.values()])
        self._open.add(claim, found, len(rows))
        yield from table.take(pa.array(rows)).to_batches(max_chunksize=ROWS_PER_BATCH)
        self._open.wait_for_room()

    def finished(self, batch: pa.RecordBatch) -> None:
        """Give back the claims of which all rows have been stored."""
        shares = find_shares(key_hashes(batch[self._text].to_pylist())).tolist()
        self._open.stored(zip(batch[self._place].to_pylist(), shares, strict=True))

    def _wait(self, waiting: set[int]) -> None:
        """Wait for claims of this task or of other runs, then read again what they have done.

        Args:
            waiting: The numbers of the lookups with pending keys.
        """
        has_progressed = self._open.wait_for_progress(self._pause * self._dice.uniform(0.5, 1.5))
        self._pause = self._first_pause if has_progressed else min(2 * self._pause, LONGEST_PAUSE)
        for place in waiting:
            self._keys[place].look()
            if self._keys[place].waits_for_lists:
                self._keys[place].find_answers()
        now = self._clock()
        if has_progressed:
            self._waits_since = now
        elif now - self._waits_since >= SAY_EVERY:
            self._waits_since = now
            for place in waiting:
                plan = self._keys[place].shared.plan
                _log.warning(
                    "lookup %s: task %s of run %s waits for other runs, which ask %d of its keys",
                    plan.lookup, f"{self._task}-{self._attempt}", plan.run_id,
                    self._keys[place].count_pending,
                )  # fmt: skip

    def end(self) -> None:
        """End all waits, from any thread. Remaining claims expire, or go with the run's folder."""
        self._open.end()


def _unclaimed(keys: TaskKeys, groups: Sequence[Group]) -> list[Group]:
    keys.look()
    return [group for group in groups if not keys.is_claimed(group[1])]
