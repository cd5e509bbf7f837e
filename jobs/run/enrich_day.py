"""The Spark program: one day of one enrichment, written and checked, not published. `python` and `spark-submit` both
run it.

    python jobs/run/enrich_day.py --enrichment enrichments.flights:flights --day 2013-01-10

Several days, after --day, are one Spark application, one after the other: a day that goes wrong by itself does not keep
the next one, a service that is down does.

Exit status: 0 written (and checked: red verdicts are in the record, not here), 2 the declaration or its input is
wrong, 3 stopped because a service is down or refuses us, 1 anything else; of several days, that of the first that was
not written. The last line on stderr is the reason, in one sentence.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import importlib
import json
import logging
import os
import platform
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.declare.enrichment import Enrichment, load, require_day
from jobs.errors import LOG_SAYS_MORE, DeclarationError, NoInput, RowFailed, RunStopped, TidegateError
from jobs.input.day import InputDay
from jobs.run import local_master
from jobs.run.coordinator import coordinator_of
from jobs.run.limiting_factor import TaskLoad, with_limits
from jobs.run.options import RunOptions, apply_options, bytes_of, ledger_of, stored_by
from jobs.run.preflight import preflight
from jobs.run.progress import RunProgress
from jobs.run.spark_failures import own_words, sentence_of
from jobs.run.terminal import terminal
from jobs.schema import DayFacts, DayMetrics, DayRecord, ShareGiven
from jobs.tables import run_records

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from jobs.run.request_metrics import RequestMetricsCollector

Report = Callable[[dict[str, Any]], None]
WROTE, FAILED, WRONG, STOPPED = 0, 1, 2, 3
LOOK_EVERY = 0.2  # s
PARALLELISM = "spark.sql.leafNodeDefaultParallelism"
LOG_VARIABLE = "TIDEGATE_SPARK_LOG"  # path of the file that takes what the program prints
AGAIN = "run the same day again once that is mended; days published before stay as they are."


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
    """Run a day and say how it ended, in the terminal and in the day's file. Returns its exit status, and whether the
    days after it are wanted and may go better.
    """
    reports: list[Report] = [terminal]
    try:
        enrichment = load(options.enrichment)
        require_day(day)
        reports.append(_progress_to(run_records.progress_file(enrichment.name, day)))
        rules = RunOptions(
            max_calls=options.max_calls,
            max_cost=options.max_cost,
            may_call=not options.no_calls,
            ignore_ttl=options.ignore_ttl,
        )
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
        _all_of(reports)({"kind": "failed", "day": day, "reason": _with_log(sentence_of(error)), "next_step": AGAIN})
        return FAILED, False
    return WROTE, state != "held back" or not options.until_red


def _with_log(reason: str) -> str:
    """Where a person finds more: Spark's traces are in the log that whoever started the program keeps."""
    log = os.environ.get(LOG_VARIABLE)
    return f"{reason}{LOG_SAYS_MORE}{log}" if log else reason


def _decision(enrichment: str, day: str, run_id: str) -> str:
    """Wait until the starter of this program has published the day or held it back: checks compare a day with those
    that are published. Returns the day's state.
    """
    while (record := run_records.of_run(enrichment, day, run_id)) is not None and record.state == "written":
        time.sleep(LOOK_EVERY)  # when the starter ends, this program is ended too: jobs/process/process_guard.py
    return "" if record is None else record.state


def _options(arguments: list[str] | None) -> argparse.Namespace:
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
    options.run_id = options.run_id or uuid.uuid4().hex
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", options.run_id):
        parser.error(f"--run-id {options.run_id!r}: letters, digits, '_', '.' and '-' only, as it names a folder.")
    return options


def run_day(
    enrichment: Enrichment,
    day: str,
    run_id: str,
    *,
    rules: RunOptions | None = None,
    checks: str | None = None,
    report: Report = lambda _event: None,
) -> DayRecord:
    """Check what can be checked, enrich, write, count, judge. Returns the record, saved; nothing is published.

    Raises DeclarationError before Spark starts, RunStopped when a service is down or refuses us or the cap on calls is
    used up, RowFailed for a policy "fail", LedgerError when answers cannot be kept. What was answered is in the ledger
    then: the same again asks for the rest.
    """
    rules = rules or RunOptions()
    input_day = preflight(enrichment, day)
    facts = _facts(enrichment, day, run_id, input_day)
    from jobs.run import metrics  # Spark is loaded once the declaration is known to be right
    from jobs.run.request_metrics import RequestMetricsCollector
    from jobs.run.windows import write_windows

    report({"kind": "started", "day": day, "run_id": run_id, "rows_total": input_day.rows})
    spark = session(f"{enrichment.name} {day}")
    _import_meanwhile(checks)
    started = time.monotonic()
    sent = RequestMetricsCollector(spark)
    try:
        facts, load = _write(spark, enrichment, facts, input_day, rules=rules, sent=sent, report=report)
    except Exception as error:
        raise own_words(error) from error
    facts = write_windows(spark, facts)
    job_s = time.monotonic() - started
    counted = metrics.count(facts.files, facts.declared, rows_in=input_day.rows, job_s=job_s)
    counted = sent.in_figures(_with_stored(counted, enrichment, run_id, rules), facts.declared)
    record = DayRecord(facts, with_limits(counted, load))
    report({"kind": "written", "record": json.loads(record.to_json())})
    if checks:
        with _stored_answers(spark, enrichment, record.facts, rules) as stored:
            judged = _named(checks)(spark, record.facts, record.figures, stored)
        record = replace(record, verdicts=tuple(judged.verdicts), pictures=judged.pictures)
    run_records.save(record)  # before it is told: whoever hears of it decides at once what becomes of the day
    if checks:
        report({"kind": "checked", "record": json.loads(record.to_json())})
    return record


def session(name: str) -> SparkSession:
    """Spark as the job needs it; master, memory and the like come from spark-submit, or are local."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers take another python
    settings = {
        "spark.speculation": "false",  # a second copy of a task would call the services a second time
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",  # the window over the input is counted in whole batches
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # a fifth of planning: who called, for each expression
        # workers give back what a batch took, else their memory grows with the rows: Arrow's own allocator has a heap
        # for each thread, and batches go from one to the next; glibc keeps ever larger blocks unless it has a bound
        "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
        "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": "1048576",
    }
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # under spark-submit
        submitted = _submitted()
        settings |= local_master.settings_of(submitted.get("spark.master", ""))
        settings["spark.ui.enabled"] = submitted.get("spark.ui.enabled", "false")
    else:
        settings |= local_master.settings_of("local[*]") | {"spark.ui.enabled": "false"}
        os.environ.update(local_master.environment_of("local[*]"))
    builder = SparkSession.builder.appName(f"tidegate {name}")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    keep_tasks(spark)
    return spark


def keep_tasks(spark: SparkSession) -> None:
    """Have every read of this day's files divide them alike: what is found of a task's keys must hold for its rows.

    Spark divides files by the slots that it has at the moment, and executors may come between two reads.
    """
    if not spark.sparkContext.getConf().contains(PARALLELISM):
        spark.conf.set(PARALLELISM, str(spark.sparkContext.defaultParallelism))


def _submitted() -> dict[str, str]:
    """What spark-submit was given."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # noqa: SLF001  # else there is no JVM yet that could say
    return dict(SparkConf().getAll())


def _facts(enrichment: Enrichment, day: str, run_id: str, input_day: InputDay) -> DayFacts:
    folder = Path(enrichment.output.path, "runs", run_id).resolve()
    if folder.exists():
        raise DeclarationError(f"run-id {run_id!r} was used before: {folder} exists. Every run needs one of its own.")
    types = input_day.spark_types()
    packages = ("pyspark", "pyarrow", "deltalake", "aiohttp", "sqlalchemy", "tidegate")
    return DayFacts(
        declared=enrichment.facts(),
        day=day,
        run_id=run_id,
        input_files=tuple(str(path.resolve()) for path in input_day.files),
        input_columns=tuple(input_day.names),
        input_types="" if types is None else types.json(),
        folder=str(folder),
        files=(),
        shares=(),
        started_at=_now(),
        finished_at="",
        versions={"python": platform.python_version(), **{name: version(name) for name in packages}},
    )


def _write(
    spark: SparkSession,
    enrichment: Enrichment,
    facts: DayFacts,
    input_day: InputDay,
    *,
    rules: RunOptions,
    sent: RequestMetricsCollector,
    report: Report,
) -> tuple[DayFacts, TaskLoad]:
    """Enrich and write; the folder is one that no reader who lists days ever looks into."""
    from jobs.run.enrich import prepare, write_out
    from jobs.run.ledger_session import prepare_ledger
    from jobs.run.window_sql import check_windows
    from jobs.tables.old_files import KEYS

    rows, plan = prepare(input_day.read(spark), enrichment)
    check_windows(rows, enrichment, plan.layout)
    plan = apply_options(plan, enrichment, facts.run_id, rules)
    scratch = Path(f"{facts.folder}{KEYS}")
    with (
        RunProgress(coordinator_of(spark), input_day.rows, report) as progress,
        prepare_ledger(
            rows,
            replace(plan, progress=progress.number),
            scratch=scratch,
            day=input_day,
            asking=progress.prefetching_keys,
            sent=sent,
        ) as run,
    ):
        written = write_out(rows, run.plan, facts.folder, sent)
    given = tuple(ShareGiven(one.task, one.shares, one.since) for one in written.given if one.since is not None)
    facts = replace(facts, files=written.files, shares=plan.shares, shares_given=given)
    return replace(facts, asked_by=run.asked_by, finished_at=_now()), progress.load()


def _with_stored(counted: DayMetrics, enrichment: Enrichment, run_id: str, rules: RunOptions) -> DayMetrics:
    """The figures with the answers that the run stored, and what all of them take, counted in the ledger itself."""
    ledgers = {lookup.name: ledger_of(enrichment, lookup, run_id, rules) for lookup in enrichment.lookups}
    stored = {name: None if ledger is None else stored_by(ledger) for name, ledger in ledgers.items()}
    size = sum(bytes_of(ledger) for ledger in ledgers.values() if ledger is not None) if enrichment.ledger else None
    lookups = tuple(replace(one, stored=stored[one.name]) for one in counted.lookups)
    return replace(counted, lookups=lookups, ledger_bytes=size)


def _stored_answers(
    spark: SparkSession, enrichment: Enrichment, facts: DayFacts, rules: RunOptions
) -> AbstractContextManager[Callable[[str], pa.Table | None]]:
    """What the ledger holds of the answers that were written, by the name of a lookup; for the checks."""
    from jobs.run.written_answers import stored_answers

    ledgers = [(lookup, ledger_of(enrichment, lookup, facts.run_id, rules)) for lookup in enrichment.lookups]
    kept = {lookup.name: (lookup, ledger) for lookup, ledger in ledgers if ledger is not None}
    return stored_answers(spark, facts, kept)


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")


def _import_meanwhile(checks: str | None) -> None:
    """Import the checks while Spark works: Great Expectations takes longer than all that the checks do on a small day.
    An error of theirs is raised where they are used.
    """
    module = (checks or "").partition(":")[0]
    if module and module not in sys.modules:
        threading.Thread(target=_import, args=(module,), name="tidegate-checks", daemon=True).start()


def _import(module: str) -> None:
    with contextlib.suppress(Exception):
        importlib.import_module(module)


def _named(reference: str) -> Any:
    """What `module:name` names. Raises DeclarationError when there is no such thing."""
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise DeclarationError(f"{reference!r} names nothing that can be loaded: {error}") from error


def _all_of(reports: list[Report]) -> Report:
    def report(event: dict[str, Any]) -> None:
        for one in reports:
            one(event)

    return report


def _progress_to(path: Path) -> Report:
    """Keeps the last event but the long ones in a file, for whoever watches from outside."""

    def report(event: dict[str, Any]) -> None:
        run_records.replace(path, json.dumps({key: value for key, value in event.items() if key != "record"}))

    return report


if __name__ == "__main__":
    # Python puts the folder of a program first on its path, where our files would stand for libraries of their names
    sys.path[:] = [path for path in sys.path if path != str(Path(__file__).resolve().parent)]
    sys.exit(main())
