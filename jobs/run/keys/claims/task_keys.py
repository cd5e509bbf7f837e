"""A task's keys of one lookup: which are answered, passed on, or another run's."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.declare.lookup import Lookup
from jobs.ledger.keys import key_hashes
from jobs.ledger.plan import LedgerPlan, run_of_keys
from jobs.ledger.selection import Search, Seen
from jobs.ledger.working_folders import BEAT, RUNS, by_run, is_alive
from jobs.run.keys.claims.claim_file import SHARES, claimed_shares, find_shares
from jobs.run.keys.hits import known_answers
from jobs.run.keys.kept_keys import BY_ROW, PREFETCHED, kept_among

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


class TaskKeys:
    """This task's keys of a lookup, and what other runs do with them.

    A key is pending until its rows are passed on to be called or its answer is found. Other runs
    keep pending keys from this task by claims, of shares, or by lists, of single keys. What others
    do is known as of the last `look`. Only the thread that reads the input uses it.

    Attributes:
        shared: The lookup.
        rows: The places of the keys in the task's table.
        folder: The lookup's folder of the ledger.
        shares: The share of each key.
    """

    def __init__(self, shared: SharedLookup, rows: npt.NDArray[np.int64], texts: pa.Array) -> None:
        self.shared, self.rows, self._texts = shared, rows, texts
        self.folder = shared.plan.open_folder()
        self._text_hashes = key_hashes(texts.to_pylist())
        self.shares = find_shares(self._text_hashes)
        self._pending = np.ones(len(rows), np.bool_)
        self._listed = np.zeros(len(rows), np.bool_)  # by other runs
        self._claimed: set[int] = set()  # shares, by other runs
        self._lists: dict[str, Mask] = {}
        run_id = shared.plan.run_id
        self._search = Search(
            self.folder, texts, seen=shared.seen, without=(run_id, run_of_keys(run_id))
        )

    @property
    def count_pending(self) -> int:
        return int(self._pending.sum())

    @property
    def waits_for_lists(self) -> bool:
        return bool((self._listed & self._pending).any())

    def is_pending(self, share: int) -> bool:
        return bool(((self.shares == share) & self._pending).any())

    def is_claimed(self, share: int) -> bool:
        """Return whether another run claims this share."""
        return share in self._claimed

    def free(self, share: int) -> npt.NDArray[np.int64]:
        """Return the pending keys of this share that no list gives to another run."""
        return np.flatnonzero((self.shares == share) & self._pending & ~self._listed)

    def pass_on(self, share: int) -> npt.NDArray[np.int64]:
        """Return the rows of the free keys of this share, which are not pending any more."""
        keys = self.free(share)
        self._pending[keys] = False
        return self.rows[keys]

    def look(self) -> list[str]:
        """Read which keys other runs claim or list. Returns the names of this run's files."""
        runs = by_run(self.folder, self.folder.files(RUNS))
        files = runs.pop(self.shared.plan.run_id, {})
        now = files.get(BEAT)  # other files may predate a clock that was put back
        self._claimed = set()
        lists = []
        for run, names in runs.items():
            if BEAT in names and is_alive(names[BEAT], now):
                if BY_ROW not in names:  # the run has not decided yet
                    self._claimed.update(range(SHARES))
                lists += [f"{run}/{name}" for name in (PREFETCHED, BY_ROW) if name in names]
            for name, changed in names.items():
                if is_alive(changed, now):
                    self._claimed |= claimed_shares(name)
        self._read_lists(lists)
        return list(files)

    def _read_lists(self, names: Sequence[str]) -> None:
        """Leave the listed keys to other runs, unless a time to live of 0 makes that useless."""
        self._listed = np.zeros(len(self.rows), np.bool_)
        for name in names if self.shared.plan.ttl.max_age_us()["ok"] != 0 else ():
            if name not in self._lists:
                try:
                    self._lists[name] = kept_among(self.folder, name, self._text_hashes)
                except FileNotFoundError:  # the run has released the keys, or ended
                    continue
            self._listed |= self._lists[name]

    def find_answers(self) -> None:
        """Read the ledger: keys that need no call any more are not pending."""
        known = known_answers(self._search, self.shared.lookup, self.shared.plan)["key"]
        self._pending &= ~pc.is_in(self._texts, value_set=known.combine_chunks()).to_numpy(
            zero_copy_only=False
        )
