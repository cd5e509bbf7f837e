"""`tidegate stream`: enriches files as they come, each once: until nothing is new, or for ever."""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from jobs.declare.values.type_checks import require_count
from jobs.errors import DeclarationError
from jobs.streams.stream_pipeline import (
    BatchPublished,
    StreamEnded,
    StreamEvent,
    StreamStarting,
    run_stream,
)
from jobs.streams.stream_state import BatchDone
from jobs.wording import counted
from orchestration.common.day_results import EXIT_CODES, result
from orchestration.common.report_server import report_url
from orchestration.common.states import CRASHED, PUBLISHED
from tidegate.commands.command import Command, add_enrichment
from tidegate.commands.days import add_conf, add_wait, open_pipeline

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

LONGEST_PAUSE = 86_400.0  # s


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument(
        "--available-now", action="store_true", help="end when no file is new, for schedules"
    )
    when.add_argument(
        "--trigger",
        metavar="10s",
        help="time between two looks for new files; runs until it is stopped",
    )
    parser.add_argument(
        "--most-files", type=int, metavar="N", help="files in one batch (default: all that are new)"
    )
    parser.set_defaults(engine=None)  # a stream needs Spark
    add_conf(parser)
    add_wait(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        help="print a JSON object per batch and day, and one at the end",
    )


def _run(options: argparse.Namespace) -> int:
    given = (
        ["--available-now"]
        if options.available_now
        else ["--trigger", str(seconds(options.trigger))]
    )
    if options.most_files is not None:
        require_count("--most-files", options.most_files)
        given += ["--most-files", str(options.most_files)]
    pipeline = open_pipeline(options)
    return _tell(pipeline.enrichment.name, run_stream(pipeline, given), as_json=options.json)


def seconds(text: str) -> float:
    """Return the seconds of a time such as 500ms, 10s or 2m. Raises DeclarationError."""
    found = re.fullmatch(r"(\d+)(ms|s|m|h)", text)
    if found is None or not 0 < (pause := int(found[1]) * UNITS[found[2]]) <= LONGEST_PAUSE:
        raise DeclarationError(
            f"--trigger is {text!r}; it must be a time of up to 24h, such as 500ms, 10s or 2m."
        )
    return pause


def _tell(enrichment: str, events: Iterator[StreamEvent], *, as_json: bool) -> int:
    """Print a line or an object per day of a batch and at the end. Returns the exit status."""
    status = 0
    for event in events:
        match event:
            case StreamStarting():
                print(f"starting Spark, which logs to {event.log}", file=sys.stderr, flush=True)
            case BatchPublished():
                print(
                    json.dumps(_object(enrichment, event.done))
                    if as_json
                    else event.done.in_words(),
                    flush=True,
                )
            case StreamEnded():
                status = _tell_end(enrichment, event, as_json=as_json)
    return status


def _object(enrichment: str, done: BatchDone) -> dict[str, Any]:
    return result(enrichment, done.day, PUBLISHED, "") | {
        "batch": done.batch,
        "run_id": done.run_id,
        "report": report_url(enrichment, done.day),
        "warnings": list(done.warnings),
        "figures": {
            "rows": done.rows,
            "calls": done.calls,
            "answers_from_ledger": done.from_ledger,
            "dead_letters": done.dead_letters,
            "cost": done.cost,
            "version": done.version,
        },
    }


def _tell_end(enrichment: str, end: StreamEnded, *, as_json: bool) -> int:
    if end.warning:
        print(f"warning: {end.warning}", file=sys.stderr, flush=True)
    if as_json:
        state = CRASHED if end.crashed else end.state
        message = result(enrichment, None, state, end.reason) | {
            "batches": end.batches,
            "rows": end.rows,
        }
        print(json.dumps(message), flush=True)
        return EXIT_CODES[state]
    if end.reason:
        print(end.reason, file=sys.stderr, flush=True)
    print(f"{counted(end.batches, 'batch', 'batches')}, {counted(end.rows, 'row')}", flush=True)
    return end.code


COMMAND = Command(_add_arguments, _run, needs=("spark",))
