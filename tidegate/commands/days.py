"""The shared part of commands that run days: with the nightly job's checks, and a line per day."""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from data_quality.check import Cure
from data_quality.day_quality import REPORTS, DayQuality
from data_quality.next_step import cure
from jobs.declare.enrichment import Enrichment
from jobs.declare.finding.discovery import beside
from jobs.declare.values.table_conflicts import find_conflict
from jobs.declare.vendor_jobs import JobLookup
from jobs.errors import DeclarationError
from jobs.process import day_events
from jobs.process.day_events import DayEvent, DayResult, DayStage, DaysWarning
from jobs.process.day_options import DayOptions
from jobs.process.day_pipeline import DayPipeline
from jobs.process.spark_conf import SPARK_CONF
from jobs.process.spark_submit import spark_submit_from_environment
from jobs.run.engines.engine import ENGINE, LOCAL, SPARK
from jobs.run.plan.options import RunOptions
from jobs.schema.records import DayRecord
from jobs.tables.leases.day_leases import WAIT
from jobs.tables.records.run_bills import cost_so_far
from jobs.wording import counted, listed, priced, requested
from tidegate.commands.command import FAILED, RIGHT, STOPPED, WAITING, WRONG, named
from tidegate.commands.stages import Stages
from tidegate.terminal import GREEN, RED, YELLOW, write_coloured

PAUSE_GROWS, LONGEST_PAUSE = 1.5, 20  # factors: of the pause between looks, of the first pause


def open_pipeline(options: argparse.Namespace) -> DayPipeline:
    """Return the enrichment's pipeline. Raises DeclarationError for a conflict with another."""
    found = named(options)
    if message := find_conflict(found, beside(found)):
        raise DeclarationError(message)
    return pipeline(*found, options)


def pipeline(reference: str, enrichment: Enrichment, options: argparse.Namespace) -> DayPipeline:
    """Return the pipeline of days as commands with `add_wait` and `add_engine` run them."""
    submit = spark_submit_from_environment(options.engine, options.conf)
    return DayPipeline(
        reference=reference,
        enrichment=enrichment,
        quality=DayQuality(),
        submit=replace(submit, in_process=submit.engine == LOCAL),
        wait=options.wait,
    )


def add_caps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-calls",
        type=int,
        metavar="N",
        help="stop a day at this number of calls; the same command continues",
    )
    parser.add_argument(
        "--max-cost", metavar="MONEY", help="stop a day at this cost of its calls, such as '5 USD'"
    )


def given_caps(options: argparse.Namespace) -> list[str]:
    """Return the caps of the command line as options of the Spark program.

    Raises DeclarationError for an invalid cap, before Spark starts.
    """
    RunOptions(max_calls=options.max_calls, max_cost=options.max_cost)
    caps = {"--max-calls": options.max_calls, "--max-cost": options.max_cost}
    return [part for name, cap in caps.items() if cap is not None for part in (name, str(cap))]


def add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        type=float,
        default=WAIT,
        metavar="S",
        help=f"seconds to wait for another run of the day to end (default: {WAIT:.0f})",
    )


def waiting_for_jobs(
    pipeline: DayPipeline,
    days: Sequence[str],
    options: DayOptions,
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[DayEvent]:
    """Yield the events of the days; run days with open jobs again, until `seconds` are over."""
    first = [
        lookup.poll_every.total_seconds()
        for lookup in pipeline.enrichment.lookups
        if isinstance(lookup, JobLookup)
    ]
    until, pause = clock() + seconds, min(first, default=0.0)
    longest, cap_left = LONGEST_PAUSE * pause, dict[str, float]()
    while True:
        waiting = []
        for event in pipeline.run(days, options):
            if isinstance(event, DayResult) and event.code == WAITING:
                waiting.append(event)
            else:
                yield event
        if not waiting or clock() + pause > until:
            yield from waiting
            return
        days = [result.day for result in waiting]
        cap_left |= {
            result.day: result.cap_left for result in waiting if result.cap_left is not None
        }
        options = replace(options, cap_left=cap_left)
        sleep(pause)
        pause = min(PAUSE_GROWS * pause, longest)


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        choices=(SPARK, LOCAL),
        help=f"{LOCAL}: in one process, without Java (default: {ENGINE}, else {SPARK})",
    )
    add_conf(parser)


def add_conf(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"a setting of Spark, added to those of {SPARK_CONF}; may be repeated",
    )


def tell(enrichment: str, events: Iterable[DayEvent]) -> int:
    """Print progress and finished days. Returns the first unpublished day's exit status.

    It ends with the report: in a terminal its address, else its path on stderr.
    """
    stages = Stages(
        in_place=sys.stderr.isatty(),
        cost_so_far=lambda event: cost_so_far(event.run_id, enrichment, event.day),
    )
    status, reported = RIGHT, []
    for event in events:
        match event:
            case DayStage():
                stages.show(event)
            case DayResult(state=day_events.NOT_STARTED):
                print(event.reason, file=sys.stderr)
            case DayResult():
                stages.clear()
                _print(event)
                reported += [event.day] if event.record else []
                warn(event.day, *event.warnings, *event.unmade_summaries, *_doubts(event))
            case DaysWarning():
                warn(event.day, event.sentence)
                reported = []  # the report is not written
        if isinstance(event, DayResult):
            status = status or _status(event)
    if reported:
        page = REPORTS / enrichment / (reported[0] if len(reported) == 1 else "") / "index.html"
        if sys.stdout.isatty():
            print(f"report: {page.resolve().as_uri()}")
        else:
            print(f"report: {page}", file=sys.stderr)
    return status


def _print(result: DayResult) -> None:
    text, after = line(result), f"{result.day}  {result.state}"
    colour = GREEN if result.is_published else YELLOW if result.code == WAITING else RED
    sys.stdout.write(f"{result.day}  ")
    write_coloured(sys.stdout, result.state, colour)
    print(text.removeprefix(after), flush=True)


def warn(day: str, *sentences: str) -> None:
    for sentence in sentences:
        print(f"{day}  warning     {sentence}", flush=True)


def _doubts(result: DayResult) -> Iterator[str]:
    """Yield the checks that failed and hold no day back."""
    for verdict in result.record.verdicts if result.record else ():
        if verdict.status == "failed" and not verdict.holds_back:
            yield f"{verdict.check}: {verdict.sentence}"


def line(result: DayResult) -> str:
    if result.record is None:
        message = result.reason
    else:
        message = _counted(result.record) if result.is_published else _held_back(result.record)
    return f"{result.day}  {result.state:<10}  {message}"


def _held_back(record: DayRecord) -> str:
    """Return the reason, the report and, where it is the day's cure, the command that calls again
    for dead letters, also of stored answers that do not fit, which a plain run would use again.
    """
    declared = record.facts.declared
    message = (
        f"{record.reason.rstrip('.')}. See "
        f"{REPORTS / declared.enrichment / record.facts.day / 'index.html'}"
    )
    if cure(record, declared) is not Cure.REPLAY:
        return message
    letters = counted(record.dead_letters, "dead letter")
    return (
        f"{message}; once the cause is fixed, `tidegate replay {declared.enrichment} --day "
        f"{record.facts.day}` calls again for {letters} and nothing else"
    )


def _counted(record: DayRecord) -> str:
    figures = record.figures
    stored = sum(lookup.from_ledger for lookup in figures.lookups)
    letters = f", {counted(record.dead_letters, 'dead letter')}" if record.dead_letters else ""
    unread = f"; not read: {listed(record.facts.unread)}" if record.facts.unread else ""
    changes = f" ({record.facts.changes.sentence})" if record.facts.changes else ""
    shared = sum(lookup.shared for lookup in figures.lookups)
    same = f" ({counted(shared, 'answer')} shared)" if shared else ""
    cost = f"; {priced(figures.cost)}" if figures.cost else ""
    return (
        f"{counted(figures.rows_out, 'row')}{changes}, {requested(figures.calls, figures.jobs)}"
        f"{same}, {counted(stored, 'answer')} from the "
        f"ledger{letters}{cost}; version {record.published_version}{unread}"
    )


def _status(result: DayResult) -> int:
    if result.is_published:
        return FAILED if result.unmade else RIGHT
    return result.code if result.code in (WRONG, STOPPED, WAITING) else FAILED
