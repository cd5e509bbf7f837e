"""Removes texts that may name a forgotten row: records, reports, logs, progress files."""

import contextlib
import dataclasses
import math
from dataclasses import dataclass, field

from jobs.declare.enrichment import Enrichment
from jobs.errors import TidegateError
from jobs.process.publish_decision import Quality
from jobs.schema.records import DayRecord
from jobs.storage.stored_files import is_there
from jobs.streams import stream_state
from jobs.tables.delta.asked_keys import KeysOf, asks, files_of_days
from jobs.tables.records import run_records
from jobs.tables.records.published_runs import last_published

FORGOTTEN = "Removed by `tidegate forget`, because this may have named a forgotten row."


@dataclass(frozen=True)
class KeyTraces:
    """The days and runs with the keys.

    Attributes:
        shown: Published days.
        days: Days of all runs.
        reported: Runs whose files exist.
    """

    shown: set[str] = field(default_factory=set)
    days: set[str] = field(default_factory=set)
    reported: set[tuple[str, str]] = field(default_factory=set)

    def may_be_named(self, day: str, run_id: str) -> bool:
        return day in self.days or (day, run_id) not in self.reported


def find_traces(enrichment: Enrichment, keys: KeysOf) -> KeyTraces:
    """Find the days with a key in the files of all existing runs."""
    found, shown = KeyTraces(), _shown(enrichment)
    for record in run_records.load(enrichment.name):
        run = record.facts.day, record.facts.run_id
        files = shown.get(run, list(record.facts.published_files))
        if all(map(is_there, files)):
            found.reported.add(run)
            if any(asks(file, keys) for file in files):
                found.days.add(record.facts.day)
                if run in shown:
                    found.shown.add(record.facts.day)
    return found


def _shown(enrichment: Enrichment) -> dict[tuple[str, str], list[str]]:
    files: dict[str, list[str]] = {}
    for day, file in files_of_days(enrichment):
        files.setdefault(day, []).append(file)
    records_of = {
        day: last_published(enrichment.name, day, table=enrichment.output.path) for day in files
    }
    return {
        (day, record.facts.run_id): files[day]
        for day, record in records_of.items()
        if record is not None
    }


def clean_records(enrichment: Enrichment, asked: KeyTraces, quality: Quality) -> int:
    """Remove evidence, sentences and reasons that may name a row. Returns changed records."""
    cleaned = 0
    # of killed processes, as no run is at work
    run_records.remove_drafts(enrichment.name, math.inf)
    for torn in run_records.torn(enrichment.name):  # it may contain anything and is of no use
        run_records.remove(enrichment.name, enrichment.output.path, torn)
        cleaned += 1
    for record in run_records.load(enrichment.name):
        if not asked.may_be_named(record.facts.day, record.facts.run_id):
            continue
        verdicts = tuple(
            dataclasses.replace(verdict, evidence=(), sentence=FORGOTTEN)
            for verdict in record.verdicts
        )
        new = dataclasses.replace(record, verdicts=verdicts, reason=record.reason and FORGOTTEN)
        if new != record:
            _keep(new, quality)
            run_records.save(new)  # last, so that an interrupted removal is repeated
            cleaned += 1
    for run in run_records.unwritten(enrichment.name):  # no files show its rows
        if run.reason != FORGOTTEN:
            run_records.save_unwritten(
                dataclasses.replace(run, reason=FORGOTTEN), enrichment.output.path
            )
            cleaned += 1
    return cleaned


def _clean_stream(enrichment: str) -> None:
    """Empty the log of a stream, which is open while the stream lives, and remove the reason of its
    end: they do not tell of which days they are.
    """
    with (
        contextlib.suppress(FileNotFoundError),
        stream_state.spark_log(enrichment).open("r+") as log,
    ):
        log.truncate()
    state = stream_state.read(enrichment)
    if state is not None and state.reason:
        stream_state.write(dataclasses.replace(state, reason=FORGOTTEN))


def _keep(record: DayRecord, quality: Quality) -> None:
    try:
        quality.keep(record)
    except Exception as error:  # an error of a database driver
        raise TidegateError(str(error)) from error


def delete_logs(enrichment: Enrichment, asked: KeyTraces) -> int:
    """Delete logs of runs that may name a row, and all progress files, and clean what a stream
    says of its batches. Returns the number of logs of runs.
    """
    _clean_stream(enrichment.name)
    deleted = 0
    for day, run_id, log in run_records.run_logs(enrichment.name):
        if asked.may_be_named(day, run_id):
            # days of a Spark application share a log in the first day's folder
            log.resolve().unlink(missing_ok=True)
            log.unlink(missing_ok=True)
            deleted += 1
    for progress in run_records.progress_files(enrichment.name):  # only a running run needs them
        progress.unlink(missing_ok=True)
    return deleted
