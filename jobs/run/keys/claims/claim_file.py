"""Claims of shares of keys, by which concurrent runs with the same keys take turns.

The keys of a lookup fall into 256 shares by their hash, the same in every run. A task claims shares
by a file whose name lists them:

    <folder>/runs/<run_id>/claims/<task>-<attempt>-<shares, a bit each>

The rules, which together let two runs call for no key twice and never wait for each other:

1.  Claim, look, read, call. After it has written its file a task lists the claims of other runs,
    and only then reads the ledger. So of two claims to a share at the same moment each task sees
    the other's, and both delete their own and try again, in random order.
2.  Store, then delete. A claim is deleted after the answers of its keys are stored: who finds a
    share free finds these answers too.
3.  A claim holds while its task renews it. One that is DEAD_AFTER old, by the clock of the ledger's
    filesystem, is ignored: its task was killed, and another attempt of the task deletes it. A task
    whose search of the ledger takes half as long renews its claim, looks and searches again.
4.  A task claims no key that it does not call for, and waits only for claims and runs that give
    signs of life, never for its own run, whose tasks have different keys.

A run that found no other run needs no claims: it lists the keys that it keeps (kept_keys.py).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from jobs.ledger.store import LedgerFolder
from jobs.ledger.working_folders import RUNS

SHARES = 256
CLAIMS = "claims"
_NAME = re.compile(rf"{CLAIMS}/(\d+)-\d+-([0-9a-f]{{64}})")


def find_shares(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the share of each key. hashes: of the keys' texts."""
    return (hashes >> np.uint64(56)).astype(np.int64)


@dataclass
class Claim:
    """A task's claim of shares of a lookup's keys.

    Attributes:
        folder: Of the lookup's ledger.
        name: Of its file.
        renewed: When, by the task's clock.
    """

    folder: LedgerFolder
    name: str
    renewed: float

    def write(self) -> None:
        self.folder.replace(self.name, b"{}")

    def renew(self, now: float) -> None:
        self.folder.renew(self.name, b"{}")
        self.renewed = now

    def delete(self) -> None:
        self.folder.delete(self.name)


def claim_name(run_id: str, task: int, attempt: int, shares: Iterable[int]) -> str:
    """Return the name of a claim's file in the ledger's folder."""
    bits = sum(1 << share for share in shares)
    return f"{RUNS}/{run_id}/{CLAIMS}/{task}-{attempt}-{bits:064x}"


def claimed_shares(name: str) -> set[int]:
    """Return the shares that a file of a run claims; none if it is not a claim.

    Args:
        name: Relative to the run's folder.
    """
    found = _NAME.fullmatch(name)
    bits = int(found[2], 16) if found else 0
    return {share for share in range(SHARES) if bits >> share & 1}


def is_of_task(name: str, task: int) -> bool:
    """Return whether a file of a run is a claim of one of its tasks."""
    return name.startswith(f"{CLAIMS}/{task}-")
