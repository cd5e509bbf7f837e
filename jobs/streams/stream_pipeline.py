"""Runs a stream as a separate process under a guard, and yields its events, batch by batch."""

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.errors import DayTaken, DeclarationError
from jobs.process.day_events import FAILED
from jobs.process.day_pipeline import DayPipeline
from jobs.process.program_end import ended
from jobs.process.program_thread import WaitForEnd
from jobs.run.engines.engine import ENGINE, LOCAL
from jobs.streams import stream_state
from jobs.streams.stream_files import check_streamable
from jobs.streams.stream_state import BatchDone, StreamState
from jobs.tables.leases.day_leases import leased

PROGRAM = Path(__file__).resolve().parent / "enrich_stream.py"
LOOK_EVERY = 0.1  # s between two reads of the health file
RENDER_EVERY = 60.0  # s between two renderings of the report while the stream runs


@dataclass(frozen=True)
class StreamStarting:
    """Spark starts, and logs to this file."""

    log: Path


@dataclass(frozen=True)
class BatchPublished:
    """The rows of a day in a batch, which readers now see."""

    done: BatchDone


@dataclass(frozen=True)
class StreamEnded:
    """The end of a stream.

    Attributes:
        state: As of a day; published if any batch is.
        reason: A sentence; empty for a stream that did its work.
        code: Exit status of its program.
        batches: Number of completed batches.
        rows: Number of published rows.
        crashed: It was killed or broke off.
        warning: A sentence about the report, or empty.
    """

    state: str
    reason: str
    code: int
    batches: int
    rows: int
    crashed: bool = False
    warning: str = ""


StreamEvent = StreamStarting | BatchPublished | StreamEnded


def run_stream(pipeline: DayPipeline, options: Sequence[str]) -> Iterator[StreamEvent]:
    """Run an enrichment's stream to its end, in a single process, with options of the program such
    as --available-now. Closing the iterator ends Spark.

    Raises:
        DeclarationError: No stream can read this input, the verdicts or the report could not be
            stored, or the table's folder is not writable.
        DayTaken: The stream is already running.
    """
    enrichment, name = pipeline.enrichment, pipeline.enrichment.name
    check_streamable(enrichment)
    if pipeline.submit.is_remote:
        raise DeclarationError(
            f"{name}: TIDEGATE_SPARK_MASTER is {pipeline.submit.master!r}; Spark Connect would run "
            "the batches in its "
            "server, away from the leases of the table. Name a master for a stream, as local[2]."
        )
    if pipeline.submit.engine == LOCAL:
        raise DeclarationError(f"{name}: a stream needs Spark; {ENGINE} is {LOCAL!r}.")
    pipeline.require_ready()
    quality = type(pipeline.quality)
    named = f"{quality.__module__}:{quality.__qualname__}"
    given = ["--enrichment", pipeline.reference, "--quality", named]
    folder, log = stream_state.checkpoint_path(enrichment.output.path), stream_state.spark_log(name)
    try:
        with leased(str(folder), "the stream", uuid.uuid4().hex, wait=pipeline.wait) as lease:
            stream_state.health_file(name).unlink(missing_ok=True)  # of an earlier process
            yield StreamStarting(log)
            with pipeline.submit.program_started(
                PROGRAM, [*given, "--wait", str(pipeline.wait), *options],
                name=f"{pipeline.reference} stream", log=log, leases=[lease],
            ) as wait:  # fmt: skip
                yield from _Follower(pipeline, log).events(wait)
    except DayTaken as taken:
        raise DayTaken(f"{name}: {taken}") from None


class _Follower:
    """Reads the health file until the program ends."""

    def __init__(self, pipeline: DayPipeline, log: Path) -> None:
        self._pipeline, self._log = pipeline, log
        self._name = pipeline.enrichment.name
        self._reported: set[str] = set()  # runs

    def events(self, wait: WaitForEnd) -> Iterator[StreamEvent]:
        code, rendered = None, time.monotonic()
        while code is None:
            code = wait(LOOK_EVERY)
            state = stream_state.read(self._name)
            new = [] if state is None else list(self._published(state))
            yield from new
            if new and code is None and time.monotonic() - rendered > RENDER_EVERY:
                self._pipeline.render()
                rendered = time.monotonic()
        yield self._end(state, code)

    def _published(self, state: StreamState) -> Iterator[BatchPublished]:
        yield from (
            BatchPublished(done) for done in state.last if done.run_id not in self._reported
        )
        self._reported = {done.run_id for done in state.last}

    def _end(self, state: StreamState | None, code: int) -> StreamEnded:
        warning = self._pipeline.render()
        batches, rows = (state.batches, state.rows) if state else (0, 0)
        # the program could not write its end
        if state is None or state.state == stream_state.RUNNING:
            result = ended(code, self._log)
            return StreamEnded(FAILED, result.reason, code, batches, rows, result.crashed, warning)
        return StreamEnded(state.state, state.reason, code, batches, rows, warning=warning)
