"""The health file of a stream: what it has done, and that it lives; plain JSON for monitors."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jobs.schema import Facts
from jobs.tables import run_records

ROOT = Path("data/streams")
RUNNING = "running"
SHOWN = 20  # last batches in the file


@dataclass(frozen=True)
class BatchDone(Facts):
    """The rows of one day in one batch; the record of its run says the rest."""

    batch: int
    day: str
    run_id: str


@dataclass(frozen=True)
class StreamState(Facts):
    """A stream since its process began."""

    enrichment: str
    state: str  # running, and at its end as of a day: published, unchanged, failed, stopped: ...
    since: str  # ISO 8601, UTC
    updated_at: str  # the same; a few seconds ago while the stream lives
    query: str = ""  # Spark's id of it
    batches: int = 0
    rows: int = 0
    last_batch: int | None = None
    last: tuple[BatchDone, ...] = ()  # the last SHOWN, oldest first
    reason: str = ""  # one sentence; of a stream that failed or was stopped


def health_file(enrichment: str) -> Path:
    return ROOT / enrichment / "health.json"


def spark_log(enrichment: str) -> Path:
    return ROOT / enrichment / "spark.log"


def checkpoint_of(table: str) -> Path:
    """Beside the rows that it speaks of: who deletes the table begins anew. Readers of tables ignore names with _."""
    return Path(table).absolute() / "_stream"


def read(enrichment: str) -> StreamState | None:
    """The state in the health file; None where no stream ever began."""
    try:
        return StreamState.from_json(health_file(enrichment).read_text())
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write(state: StreamState) -> None:
    run_records.replace(health_file(state.enrichment), json.dumps(json.loads(state.to_json()), indent=1))


def now(clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)) -> str:
    """This moment, ISO 8601, UTC."""
    return clock().isoformat(timespec="milliseconds")
