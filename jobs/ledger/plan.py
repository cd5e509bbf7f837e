"""What a task must know about the ledger and its permitted calls: plain data for the executors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.declare.ledger_settings import Ttl
from jobs.ledger.store import LedgerFolder

OF_REFRESH = "refresh-"  # prefix of the run id of parts with marks of a refresh
ROUNDING = 1e-6  # of a call of the dearest lookup, for rounding errors of repeated subtraction
OF_KEYS = "-keys"  # suffix of the run id of parts that a run writes during its prefetch


@dataclass(frozen=True)
class LedgerPlan:
    """The ledger of a lookup, for a run."""

    root: str  # absolute folder or URL
    lookup: str
    fingerprint: str  # of the request: jobs/ledger/declared_folder.py
    # names this run's parts: parts/<run_id>/<of_pass><partition>-<attempt>-<token>-<seq>.parquet
    run_id: str
    ttl: Ttl  # AnyAge if the run ignores it
    flush_rows: int
    flush_seconds: float
    hidden: bool = False  # key texts are hashed: a key reads a pii column
    # False: a mark is stored before each call; a mark without an answer means unknown
    idempotent: bool = True
    # the file of the run's stored answers, as an executor opens it
    index: str | None = None
    # of a further pass of a prefetch, which would take the parts of the pass before for those of
    # earlier attempts at its tasks
    of_pass: str = ""

    def open_folder(self) -> LedgerFolder:
        """Return a new object for the folder of the lookup's answers."""
        return LedgerFolder(self.root, self.lookup, self.fingerprint)


def run_of_keys(run_id: str) -> str:
    """Return the run id of parts that a run writes during its prefetch."""
    return f"{run_id}{OF_KEYS}"


@dataclass(frozen=True)
class CallCap:
    """What a run may spend on calls; a task that has spent its part stops the run.

    Attributes:
        message: As the user wrote it, for the sentence: "max_calls 500".
        parts: By number of the partition.
        weights: By lookup, what an attempt reserves: 1 for calls, for money its cost, or the most
            that it may cost, where only its answer reports.
        settled: By lookup, the cost of each unit, where an attempt may use another number of them
            than it reserves; empty for the other lookups, whose attempts cost their weight.
        keys: By lookup, the highest number of keys of a request, which share its weight.
    """

    message: str
    parts: tuple[float, ...]
    weights: tuple[float, ...]
    settled: tuple[Mapping[str, float], ...] = ()
    keys: tuple[int, ...] = ()

    def of_lookups(self, places: Sequence[int]) -> "CallCap":
        """Return the cap for some of the lookups."""
        return replace(
            self,
            weights=tuple(self.weights[place] for place in places),
            settled=tuple(self.settled[place] for place in places) if self.settled else (),
            keys=tuple(self.keys[place] for place in places) if self.keys else (),
        )

    def most_of_request(self, place: int) -> float:
        """Return the most that a request of the lookup at this place may cost."""
        return self.weights[place] * (self.keys[place] if self.keys else 1)
