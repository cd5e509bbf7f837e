"""What a task needs to know of the ledger and of the calls it may make: plain data that travels to the executors."""

from dataclasses import dataclass

from jobs.declare.ledger_settings import Ttl

OF_REFRESH = "refresh-"  # begins the run id of parts with marks of a refresh
OF_KEYS = "-keys"  # ends the run id of parts that a run writes during its prefetch


@dataclass(frozen=True)
class LedgerPlan:
    """The ledger of one lookup, for one run."""

    root: str  # absolute folder or URL
    lookup: str
    fingerprint: str  # of the request: jobs/ledger/declared_folder.py
    run_id: str  # names this run's parts: parts/<run_id>/<partition>-<attempt>-<seq>.parquet
    ttl: Ttl  # already FOR_EVER where the run ignores it
    flush_rows: int
    flush_seconds: float
    hidden: bool = False  # key texts are hashed: a key reads a pii column
    idempotent: bool = True  # False: a mark is stored before each call; a mark without an answer means unknown
    # of the file of the run's stored answers, as an executor opens it; a bare name is one by SparkContext.addFile
    index: str | None = None


@dataclass(frozen=True)
class CallCap:
    """What a run may spend on calls, each attempt counted; a task that has spent its part stops the run.

    parts: per partition, by number. weights: per lookup, what one attempt costs (1 for calls, a price for money).
    """

    message: str  # as the user wrote it, for the sentence: "max_calls 500"
    parts: tuple[float, ...]
    weights: tuple[float, ...]
