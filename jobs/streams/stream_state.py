"""The health file of a stream: its work so far and its last sign of life, as JSON for monitors."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from jobs.schema.facts import Facts
from jobs.schema.records import DayRecord
from jobs.storage import durable
from jobs.wording import counted, priced

ROOT = Path("data/streams")
RUNNING = "running"
SHOWN = 20  # last days of batches in the file


@dataclass(frozen=True)
class BatchDone(Facts):
    """The rows of a day in a batch."""

    batch: int
    day: str
    run_id: str
    rows: int
    calls: int
    from_ledger: int
    dead_letters: int
    version: int | None  # of the table with these rows
    warnings: tuple[str, ...] = ()
    cost: dict[str, float] = field(default_factory=dict)  # by currency

    @classmethod
    def of(cls, batch: int, record: DayRecord) -> Self:
        return cls(
            batch, record.facts.day, record.facts.run_id,
            rows=record.figures.rows_out,
            calls=record.figures.calls,
            from_ledger=sum(lookup.from_ledger for lookup in record.figures.lookups),
            dead_letters=record.dead_letters,
            version=record.published_version,
            warnings=record.warnings,
            cost={currency: float(cost) for currency, cost in record.figures.cost.items()},
        )  # fmt: skip

    def in_words(self) -> str:
        """Return a line, and another line for each warning."""
        which = f"batch {self.batch}  {self.day}"
        letters = f", {counted(self.dead_letters, 'dead letter')}" if self.dead_letters else ""
        cost = f"; {priced(self.cost)}" if self.cost else ""
        line = (
            f"{which}  {counted(self.rows, 'row')}, {counted(self.calls, 'call')}, "
            f"{counted(self.from_ledger, 'answer')} from the ledger{letters}{cost}; version "
            f"{self.version}"
        )
        return "\n".join([line, *(f"{which}  warning: {warning}" for warning in self.warnings)])


@dataclass(frozen=True)
class StreamState(Facts):
    """The state of a stream since its process began."""

    enrichment: str
    state: str  # running; at its end the state of a day: published, unchanged, failed, stopped: ...
    since: str  # ISO 8601, UTC
    updated_at: str  # ISO 8601, UTC; a few seconds ago while the stream lives
    query: str = ""  # Spark's id of it
    batches: int = 0
    rows: int = 0
    rows_late: int = 0  # late for their task, or for the watermark of the batches before
    last_batch: int | None = None
    last: tuple[BatchDone, ...] = ()  # the last SHOWN or all of the last batch, oldest first
    reason: str = ""  # a sentence, if the stream failed or was stopped


def health_file(enrichment: str) -> Path:
    return ROOT / enrichment / "health.json"


def spark_log(enrichment: str) -> Path:
    return ROOT / enrichment / "spark.log"


def checkpoint_path(table: str) -> Path:
    """Return the checkpoint's folder, inside the table's: deleting the table also resets the
    stream. Readers of tables ignore names with _.
    """
    return Path(table).absolute() / "_stream"


def read(enrichment: str) -> StreamState | None:
    """Return the state in the health file; None if no stream ever began."""
    try:
        return StreamState.from_json(health_file(enrichment).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write(state: StreamState) -> None:
    text = json.dumps(json.loads(state.to_json()), indent=1)
    durable.replace(health_file(state.enrichment), text.encode())
