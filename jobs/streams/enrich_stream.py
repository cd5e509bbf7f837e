"""The Spark program of a stream: enriches, checks and publishes each micro-batch. spark-submit runs
it.

    spark-submit jobs/streams/enrich_stream.py --enrichment enrichments.flights:flights \
        --available-now --quality data_quality.day_quality:DayQuality

Exit status as of jobs/run/enrich_day.py: 0 all that is new is published, 2 the declaration or its
input is wrong, 3 stopped because a service is down or denies access, 1 anything else, such as a
batch that is held back. The last line on stderr is the reason, in a sentence.
"""

import argparse
import logging
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.loading import load
from jobs.declare.vendor_jobs import refuse_jobs
from jobs.errors import DayTaken, DeclarationError, RunStopped, TidegateError
from jobs.run.checks_hook import named
from jobs.run.engines.spark_failures import explain_error
from jobs.run.engines.spark_session import session
from jobs.run.enrich_day import FAILED, WROTE, tidy_path, with_log
from jobs.schema.records import DayRecord
from jobs.streams import stream_state
from jobs.streams.micro_batches import BatchHeldBack, MicroBatches
from jobs.streams.stream_files import query_id
from jobs.streams.stream_state import SHOWN, BatchDone, StreamState
from jobs.tables.leases.day_leases import WAIT
from jobs.tables.leftovers import delete_what_crashes_left
from jobs.tables.records import run_records
from jobs.wording import printable

BEAT = 5  # s between two updates of the health file
# by default Spark skips files a week older than the newest file, which would lose rows silently
FOR_EVER = "36500d"


@dataclass(frozen=True)
class Trigger:
    """When batches begin.

    Attributes:
        every: Seconds between two batches; None: at once, until nothing is new.
        most_files: In a batch; None: all.
    """

    every: float | None = None
    most_files: int | None = None

    def writer_options(self) -> dict[str, Any]:
        """Return the arguments of Spark's `trigger`."""
        if self.every is None:
            return {"availableNow": True}
        return {"processingTime": f"{round(self.every * 1000)} milliseconds"}

    def reader_options(self) -> dict[str, Any]:
        """Return the options of Spark's file source."""
        return {} if self.most_files is None else {"maxFilesPerTrigger": self.most_files}


class Stream:
    """A stream, from its start to its end."""

    def __init__(self, enrichment: Enrichment, quality: Any, *, wait: float) -> None:
        refuse_jobs(enrichment.lookups, "a stream")
        self._enrichment = enrichment
        self._checkpoint = stream_state.checkpoint_path(enrichment.output.path)
        since = run_records.now()
        self._state = StreamState(enrichment.name, stream_state.RUNNING, since, since)
        self._quality, self._wait = quality, wait
        self._saving = threading.Lock()  # batches run in a thread of Spark's gateway

    def run(self, trigger: Trigger) -> None:
        """Run until nothing is new, or for ever. Raises the error of the batch that failed."""
        stream_state.write(self._state)
        try:
            delete_what_crashes_left(self._enrichment)
            self._follow(trigger)
        except Exception as error:
            self._save(state=end_state(error), reason=explain_failure(error))
            raise
        self._save(state="published" if self._state.batches else "unchanged")

    def _follow(self, trigger: Trigger) -> None:
        spark = session(f"{self._enrichment.name} stream")
        batches = MicroBatches(
            spark,
            self._enrichment,
            self._checkpoint,
            self._quality,
            wait=self._wait,
            published=self._note,
        )
        watched = batches.source.watched()
        files = (
            spark.readStream.schema("value STRING").option("pathGlobFilter", watched.names)
            .option("maxFileAge", FOR_EVER).options(**trigger.reader_options())
            .text(watched.folders)
        )  # fmt: skip  # only the files' names are used here
        query = (
            files.writeStream.queryName(self._enrichment.name).foreachBatch(batches)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(**trigger.writer_options()).start()
        )  # fmt: skip
        try:
            while not query.awaitTermination(BEAT):
                self._save()
        except Exception:
            if batches.error is not None:
                raise batches.error from None
            raise
        finally:
            query.stop()

    def _note(self, number: int, records: Sequence[DayRecord], late: int) -> None:
        done = [BatchDone.of(number, record) for record in records]
        with self._saving:
            state = self._state
            self._write(
                query=query_id(self._checkpoint), batches=state.batches + 1, last_batch=number,
                rows=state.rows + sum(batch.rows for batch in done),
                rows_late=state.rows_late + late,
                last=(*state.last, *done)[-max(SHOWN, len(done)):],
            )  # fmt: skip

    def _save(self, **changed: Any) -> None:
        with self._saving:
            self._write(**changed)

    def _write(self, **changed: Any) -> None:
        self._state = replace(self._state, updated_at=run_records.now(), **changed)
        stream_state.write(self._state)


def end_state(error: Exception) -> str:
    """Return the state of a stream that this error ended, in the words of a day's state."""
    match error:
        case RunStopped():
            return error.state
        case BatchHeldBack():
            return "held back"
        case DayTaken():
            return "not started"
        case DeclarationError():
            return "wrong"
    return "failed"


def explain_failure(error: Exception) -> str:
    """Return the reason in a sentence, and the log's name only if the log says more."""
    return str(error) if isinstance(error, TidegateError) else with_log(explain_error(error))


def main(arguments: list[str] | None = None) -> int:
    """Run a stream from the command line. Our exceptions never reach the user as a traceback."""
    options = _options(arguments)
    try:
        stream = Stream(load(options.enrichment), named(options.quality)(), wait=options.wait)
        stream.run(Trigger(options.trigger, options.most_files))
    except Exception as error:
        if not isinstance(error, TidegateError):
            logging.getLogger("tidegate").exception("unexpected error")
        print(printable(explain_failure(error)), file=sys.stderr)
        return getattr(error, "status", FAILED)
    return WROTE


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="enrich_stream", description="Enrich what is new, check and publish it."
    )
    parser.add_argument(
        "--enrichment",
        required=True,
        metavar="MODULE:NAME",
        help="such as enrichments.flights:flights",
    )
    parser.add_argument(
        "--quality", required=True, metavar="MODULE:CLASS", help="the checks and their verdicts"
    )
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument("--available-now", action="store_true", help="end when nothing is new")
    when.add_argument(
        "--trigger", type=float, metavar="S", help="between the beginnings of two batches, for ever"
    )
    parser.add_argument("--most-files", type=int, metavar="N", help="in one batch")
    parser.add_argument(
        "--wait", type=float, default=WAIT, metavar="S", help="for a run of a day that is ending"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    tidy_path(__file__)
    sys.exit(main())
