"""The Spark program: writes and checks a day of an enrichment, without publishing it. `python` and
`spark-submit` both run it.

    python jobs/run/enrich_day.py --enrichment enrichments.flights:flights --day 2013-01-10

Several days after --day share a Spark application and run one after the other. A failed day does
not stop the next day, but a service that is down does.

Exit status: 0 written (and checked: red verdicts are in the record, not here), 2 the declaration or
its input is wrong, 3 stopped because a service is down or denies access, 10 waiting for jobs of a
vendor, 1 anything else; of several days, that of the first day that was not written. The last line
on stderr is the reason, in a sentence.
"""

import argparse
import gc
import json
import logging
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.loading import load
from jobs.declare.values.calendar import require_day
from jobs.errors import (
    LOG_SAYS_MORE,
    DeclarationError,
    RowFailed,
    RunStopped,
    RunWaits,
    TidegateError,
)
from jobs.run.day import run_day
from jobs.run.day_run import Report
from jobs.run.engines.engine import LOCAL, SPARK
from jobs.run.engines.spark_failures import explain_error
from jobs.run.plan.options import RunOptions
from jobs.run.terminal import Terminal
from jobs.storage import durable
from jobs.storage.machine import low_limits
from jobs.tables.records import run_records
from jobs.task.worker_daemon import prefer_compiled_spark

WROTE, FAILED, WRONG = 0, TidegateError.status, DeclarationError.status
STOPPED, WAITING = RunStopped.status, RunWaits.status
SETTLED = "settled"  # kind of the last event of a day with --jobs-only that need not wait
LOOK_EVERY = 0.05  # s
LOG_VARIABLE = "TIDEGATE_SPARK_LOG"  # path of the file that gets the program's output


@dataclass(frozen=True)
class DayEnd:
    """The end of a day for the program: its exit status, and whether later days may run."""

    status: int
    may_go_on: bool = True


def main(arguments: list[str] | None = None) -> int:
    """Run the days from the command line. Shows no TidegateError as a traceback."""
    options = _options(arguments)
    several = len(options.day) > 1 or options.in_turn
    status = WROTE
    with _message_stream(options.log) as messages:
        terminal = Terminal(messages)
        for day in options.day:
            run_id = day_run_id(options.run_id, day) if several else options.run_id
            end = _Day(options, day, run_id, terminal).run()
            status = status or end.status
            if not end.may_go_on:
                break
    return status


@contextmanager
def _message_stream(log: Path | None) -> Iterator[TextIO]:
    """Yield the stream for messages: stderr, or a file, which then gets the log too."""
    if log is None:
        yield sys.stderr
        return
    messages = log.open("w", encoding="utf-8", errors="backslashreplace")
    logger, handler = logging.getLogger(), _LogLines(messages)
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        with suppress(OSError):
            messages.close()


class _LogLines(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # of logging
        """Leave out what a full disk does not take, where logging prints a traceback."""


def day_run_id(run_id: str, day: str) -> str:
    """Return the run id of a day among several, each of which has its folder and record."""
    return f"{run_id}-{day}"


class _Day:
    """Writes and checks a day, and waits until it is published or held back."""

    def __init__(
        self, options: argparse.Namespace, day: str, run_id: str, terminal: Report
    ) -> None:
        self._options, self._day, self._run_id = options, day, run_id
        self._terminal = terminal
        self._to_file: Report | None = None  # set once the day is known to exist

    def run(self) -> DayEnd:
        options = self._options
        try:
            enrichment, rules = self._begin()
            if options.jobs_only:
                from jobs.run.jobs_first import settle_day  # imports Spark's types

                left = settle_day(enrichment, self._day, self._run_id, rules, checks=options.checks)
                self._report({"kind": SETTLED, "day": self._day, "cap_left": left})
                return DayEnd(WROTE)
            record = run_day(
                enrichment, self._day, self._run_id, rules=rules, checks=options.checks,
                compared=options.compared, engine=options.engine, report=self._report,
            )  # fmt: skip
            state = (
                _wait_for_decision(enrichment.name, self._day, self._run_id)
                if options.in_turn
                else record.state
            )
        except Exception as error:  # noqa: BLE001  # the user gets a sentence for any error
            return self._failed(error)
        return DayEnd(WROTE, state not in ("held back", "failed") or not options.until_red)

    def _begin(self) -> tuple[Enrichment, RunOptions]:
        """Return what is run, and by which rules."""
        options = self._options
        enrichment = load(options.enrichment)
        require_day(self._day, every=enrichment.input.every)
        self._to_file = progress_to(run_records.progress_file(enrichment.name, self._day))
        rules = RunOptions(
            max_calls=options.max_calls,
            max_cost=options.max_cost,
            cap_left=options.cap_left.get(self._day),
            may_call=not options.no_calls,
            ignore_ttl=options.ignore_ttl,
            only=json.loads(options.only_keys.read_text(encoding="utf-8"))
            if options.only_keys
            else {},
        )
        return enrichment, rules

    def _failed(self, error: Exception) -> DayEnd:
        """Report why the day is not written, or not checked."""
        if not isinstance(error, TidegateError):
            logging.getLogger("tidegate").error("unexpected error", exc_info=error)
            reason = with_log(f"{explain_error(error)}{low_limits()}", self._options.log)
            self._report({"kind": "failed", "day": self._day, "reason": reason})
            return DayEnd(FAILED, may_go_on=False)
        stopped = isinstance(error, RunStopped | RowFailed)
        event: dict[str, Any] = {
            "kind": "stopped" if stopped else "failed",
            "day": self._day,
            "state": error.state,
            "status": error.status,
            "reason": str(error),
        }
        if isinstance(error, RunWaits):
            event["cap_left"] = error.cap_left
        self._report(event)
        is_of_day = isinstance(error, DeclarationError | RowFailed)
        may_go_on = is_of_day and not self._options.until_red
        return DayEnd(error.status, may_go_on or isinstance(error, RunWaits))

    def _report(self, event: dict[str, Any]) -> None:
        self._terminal(event)
        if self._to_file is not None:
            self._to_file(event)


def with_log(reason: str, log: Path | None = None) -> str:
    path = log or os.environ.get(LOG_VARIABLE)
    return f"{reason}{LOG_SAYS_MORE}{path}" if path else reason


def _wait_for_decision(
    enrichment: str, day: str, run_id: str, sleep: Callable[[float], None] = time.sleep
) -> str:
    """Wait until the parent process has decided about the day; return the day's state.

    Later checks compare with the decided day.
    """
    while (
        record := run_records.of_run(enrichment, day, run_id)
    ) is not None and record.state == "written":
        if run_records.has_end(enrichment, day, run_id):
            return "failed"  # the starter could not publish the day
        # the end of the starter ends this program too: jobs/process/process_guard.py
        sleep(LOOK_EVERY)
    return "" if record is None else record.state


OPTIONS: dict[str, dict[str, Any]] = {
    "--enrichment": {
        "required": True, "metavar": "MODULE:NAME", "help": "such as enrichments.flights:flights",
    },
    "--day": {"required": True, "nargs": "+", "metavar": "YYYY-MM-DD"},
    "--run-id": {"help": "names the run's folder; by default a new one"},
    "--in-turn": {
        "action": "store_true",
        "help": "wait until somebody published a day, or held it back, before the next",
    },
    "--until-red": {
        "action": "store_true", "help": "end with the first day that is not published",
    },
    "--checks": {
        "metavar": "MODULE:FUNCTION",
        "help": "judges the written files, such as data_quality.day:check",
    },
    "--max-calls": {
        "type": int, "metavar": "N", "help": "stop, resumable, when so many calls were made",
    },
    "--max-cost": {"metavar": "MONEY", "help": "the same for what they cost, such as '5 USD'"},
    "--cap-left": {
        "type": json.loads, "default": {}, "metavar": "JSON",
        "help": "by day, what earlier runs of the command left of its cap",
    },
    "--jobs-only": {
        "action": "store_true", "help": "submit and read jobs of vendors, and no row",
    },
    "--no-calls": {"action": "store_true", "help": "answers out of the ledger only"},
    "--only-keys": {
        "type": Path, "metavar": "JSON",
        "help": "with --no-calls: call for these, lookup -> keys, and no others",
    },
    "--ignore-ttl": {
        "action": "store_true", "help": "use answers of any age; only errors are asked again",
    },
    "--compared": {
        "type": Path, "metavar": "FOLDER", "help": "of files that say which rows changed, by day",
    },
    "--engine": {"choices": (SPARK, LOCAL), "help": "by default the environment's"},
    "--log": {"type": Path, "metavar": "FILE", "help": "for messages, in place of stderr"},
}  # fmt: skip


def _options(
    arguments: list[str] | None, new_id: Callable[[], uuid.UUID] = uuid.uuid4
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="enrich_day", description="Enrich one day: write its files and check them."
    )
    for name, facts in OPTIONS.items():
        parser.add_argument(name, **facts)
    options = parser.parse_args(arguments)
    options.run_id = options.run_id or new_id().hex
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", options.run_id):
        parser.error(
            f"--run-id {options.run_id!r}: letters, digits, '_', '.' and '-' only, as it "
            "names a folder."
        )
    return options


def progress_to(path: Path) -> Report:
    """Return a reporter that writes the last event, without its record, to a file.

    An event that is no progress contains the last progress too, because nobody may have read that.
    If the disk is full, progress is dropped; for any other event OSError is raised.
    """
    progress: dict[str, Any] = {}

    def report(event: dict[str, Any]) -> None:
        short = {key: value for key, value in event.items() if key != "record"}
        if event["kind"] == "progress":
            progress["progress"] = short
        else:
            short |= progress
        with suppress(OSError) if event["kind"] == "progress" else nullcontext():
            durable.replace(path, json.dumps(short).encode())

    return report


def tidy_path(program: str) -> None:
    """Remove the program's folder from Python's path.

    Python puts it first, so a file there would hide a library of the same name.
    """
    sys.path[:] = [path for path in sys.path if path != str(Path(program).resolve().parent)]
    prefer_compiled_spark()


if __name__ == "__main__":
    tidy_path(__file__)
    gc.set_threshold(50_000, 20, 100)  # modules are no garbage
    status = main()
    gc.freeze()  # otherwise the collector scans every object at exit
    sys.exit(status)
