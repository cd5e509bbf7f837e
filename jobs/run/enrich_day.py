"""The Spark program: one day of one enrichment, written and checked, not published. `python` and `spark-submit` both
run it.

    python jobs/run/enrich_day.py --enrichment enrichments.flights:flights --day 2013-01-10

Several days after --day share one Spark application, in sequence: a failed day does not stop the next one, but a
service that is down does.

Exit status: 0 written (and checked: red verdicts are in the record, not here), 2 the declaration or its input is
wrong, 3 stopped because a service is down or denies access, 1 anything else; of several days, that of the first that
was not written. The last line on stderr is the reason, in one sentence.
"""

import argparse
import contextlib
import json
import logging
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jobs.declare.calendar import require_day
from jobs.declare.loading import load
from jobs.errors import LOG_SAYS_MORE, DeclarationError, NoInput, RowFailed, RunStopped, TidegateError
from jobs.run.day import Report, run_day
from jobs.run.options import RunOptions
from jobs.run.spark_failures import sentence_of
from jobs.run.spark_session import session
from jobs.run.terminal import terminal
from jobs.tables import run_records

WROTE, FAILED, WRONG, STOPPED = 0, 1, 2, 3
LOOK_EVERY = 0.05  # s
LOG_VARIABLE = "TIDEGATE_SPARK_LOG"  # path of the file that takes what the program prints
AGAIN = "once that is fixed, run the same day again; published days stay as they are."


def main(arguments: list[str] | None = None) -> int:
    """Run the days from the command line. Never lets an exception of ours reach the user as a traceback."""
    options = _options(arguments)
    status = WROTE
    for day in options.day:
        alone = len(options.day) == 1 and not options.in_turn
        run_id = options.run_id if alone else run_id_of(options.run_id, day)
        ended, may_go_on = _one_day(options, day, run_id)
        status = status or ended
        if not may_go_on:
            break
    return status


def run_id_of(run_id: str, day: str) -> str:
    """The run of one day among the several of one Spark application, each with a folder and a record of its own."""
    return f"{run_id}-{day}"


def _one_day(options: argparse.Namespace, day: str, run_id: str) -> tuple[int, bool]:
    """Run a day and report its end. Returns its exit status, and whether to continue with later days."""
    reports: list[Report] = [terminal]
    try:
        enrichment = load(options.enrichment)
        require_day(day, every=enrichment.input.every)
        reports.append(progress_to(run_records.progress_file(enrichment.name, day)))
        rules = RunOptions(
            max_calls=options.max_calls,
            max_cost=options.max_cost,
            may_call=not options.no_calls,
            ignore_ttl=options.ignore_ttl,
        )
        with _spark_started_meanwhile(f"{enrichment.name} {day}"):
            run_day(enrichment, day, run_id, rules=rules, checks=options.checks, report=_all_of(reports))
        state = _decision(enrichment.name, day, run_id) if options.in_turn else "written"
    except TidegateError as error:
        stopped = isinstance(error, RunStopped | RowFailed)
        state = error.state if isinstance(error, RunStopped) else "failed"
        status = STOPPED if stopped else WRONG if isinstance(error, DeclarationError) else FAILED
        message = {"day": day, "state": state, "status": status, "reason": str(error), "next_step": AGAIN}
        message["no_input"] = isinstance(error, NoInput)
        _all_of(reports)({"kind": "stopped" if stopped else "failed", **message})
        return status, isinstance(error, DeclarationError | RowFailed) and not options.until_red
    except Exception as error:
        logging.getLogger("tidegate").exception("unexpected error")
        _all_of(reports)({"kind": "failed", "day": day, "reason": with_log(sentence_of(error)), "next_step": AGAIN})
        return FAILED, False
    return WROTE, state != "held back" or not options.until_red


@contextlib.contextmanager
def _spark_started_meanwhile(name: str) -> Iterator[None]:
    """Start the session while the run looks at its input and its services, where spark-submit has started Java already.

    An error is raised where the run asks for the session.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        yield
        return

    import pyspark.sql  # noqa: F401  # first: beside the imports of the preflight Java would wait for it longer

    def start() -> None:
        with contextlib.suppress(Exception):
            session(name)

    starting = threading.Thread(target=start, name="tidegate-spark")
    starting.start()
    try:
        yield
    finally:
        starting.join()  # before the reason is printed, which is the last line


def with_log(reason: str) -> str:
    log = os.environ.get(LOG_VARIABLE)
    return f"{reason}{LOG_SAYS_MORE}{log}" if log else reason


def _decision(enrichment: str, day: str, run_id: str, sleep: Callable[[float], None] = time.sleep) -> str:
    """Wait until the parent process has decided about the day, with which later checks compare. Returns its state."""
    while (record := run_records.of_run(enrichment, day, run_id)) is not None and record.state == "written":
        sleep(LOOK_EVERY)  # when the starter ends, this program is ended too: jobs/process/process_guard.py
    return "" if record is None else record.state


def _options(arguments: list[str] | None, new_id: Callable[[], uuid.UUID] = uuid.uuid4) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="enrich_day", description="Enrich one day: write its files and check them.")
    parser.add_argument("--enrichment", required=True, metavar="MODULE:NAME", help="as enrichments.flights:flights")
    parser.add_argument("--day", required=True, nargs="+", metavar="YYYY-MM-DD")
    parser.add_argument("--run-id", default=None, help="names the run's folder; by default a new one")
    parser.add_argument(
        "--in-turn", action="store_true", help="wait until somebody published a day, or held it back, before the next"
    )
    parser.add_argument("--until-red", action="store_true", help="end with the first day that is not published")
    parser.add_argument(
        "--checks", metavar="MODULE:FUNCTION", help="judges the written files, as data_quality.day:check"
    )
    parser.add_argument("--max-calls", type=int, metavar="N", help="stop, resumable, when so many calls were made")
    parser.add_argument("--max-cost", metavar="MONEY", help="the same for what they cost, as '5 USD'")
    parser.add_argument("--no-calls", action="store_true", help="answers out of the ledger only")
    parser.add_argument("--ignore-ttl", action="store_true", help="use answers of any age; only errors are asked again")
    options = parser.parse_args(arguments)
    options.run_id = options.run_id or new_id().hex
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", options.run_id):
        parser.error(f"--run-id {options.run_id!r}: letters, digits, '_', '.' and '-' only, as it names a folder.")
    return options


def _all_of(reports: list[Report]) -> Report:
    def report(event: dict[str, Any]) -> None:
        for one in reports:
            one(event)

    return report


def progress_to(path: Path) -> Report:
    """Write the last event, without long fields, to a file. It contains the progress before it, which may be unread."""
    progress: dict[str, Any] = {}

    def report(event: dict[str, Any]) -> None:
        short = {key: value for key, value in event.items() if key != "record"}
        if event["kind"] == "progress":
            progress["progress"] = short
        else:
            short |= progress
        run_records.replace(path, json.dumps(short))

    return report


def tidy_path(program: str) -> None:
    """Take from Python's path what a start as a program put there."""
    # Python puts the folder of a program first on its path, where our files would stand for libraries of their names
    sys.path[:] = [path for path in sys.path if path != str(Path(program).resolve().parent)]
    if str((spark := Path(os.environ.get("SPARK_HOME", ""))).parent) in sys.path:
        # pip installed this Spark, and has compiled the modules that spark-submit takes from an archive
        sys.path[:] = [path for path in sys.path if path != str(spark / "python" / "lib" / "pyspark.zip")]


if __name__ == "__main__":
    tidy_path(__file__)
    sys.exit(main())
