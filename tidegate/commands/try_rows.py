"""`tidegate try`: shows requests and answers of real calls for a day's first rows."""

import argparse
import shutil
import sys
from functools import partial

import pyarrow as pa

from jobs.clients.request_counter import counts_of
from jobs.commands.previewing import preview_text
from jobs.commands.previewing.preview import PreviewRow, first_rows, preview_rows, with_answers
from jobs.commands.previewing.preview_keys import evaluate_keys
from jobs.declare.chains import levels
from jobs.declare.enrichment import Enrichment
from jobs.declare.lookup import Lookup
from jobs.declare.values.type_checks import require_count
from jobs.declare.vendor_jobs import refuse_jobs
from jobs.errors import DeclarationError
from jobs.run.plan.preflight import preflight
from tidegate.commands.command import (
    FAILED,
    RIGHT,
    Command,
    add_enrichment,
    given_or_last_day,
    named,
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    parser.add_argument(
        "--rows", type=int, default=20, help="number of rows to preview (default: 20)"
    )
    parser.add_argument(
        "--day", metavar="YYYY-MM-DD", help="day of the input (default: the last one)"
    )
    parser.add_argument(
        "--lookup",
        metavar="NAME",
        help="only this lookup (default: every lookup, one after the other)",
    )
    parser.add_argument(
        "--show-personal",
        action="store_true",
        help="also show personal keys (made of columns in pii)",
    )
    parser.add_argument(
        "--discard",
        action="store_true",
        help="use no ledger: call for each row, and store no answer",
    )


def _run(options: argparse.Namespace) -> int:
    enrichment = named(options).enrichment
    require_count("--rows", options.rows)
    lookups = _chosen(options, enrichment)
    day = given_or_last_day(options, enrichment)
    rows = first_rows(preflight(enrichment, day), options.rows)
    of_level = levels(enrichment.lookups)
    is_late = {lookup.name: of_level[place] > 0 for place, lookup in enumerate(enrichment.lookups)}
    if options.lookup and is_late[options.lookup]:
        raise DeclarationError(
            f"lookup {options.lookup} reads answers of other lookups, which must be asked first. "
            "Leave out --lookup."
        )
    evaluate = partial(evaluate_keys, enrichment, tell=_tell, show_personal=options.show_personal)
    # before the first call
    at_once = [lookup for lookup in lookups if not is_late[lookup.name]]
    keys = dict(zip([lookup.name for lookup in at_once], evaluate(at_once, rows), strict=True))
    right = True
    for lookup in lookups:
        if is_late[lookup.name]:
            (keys[lookup.name],) = evaluate([lookup], rows)
        done = _try(options, enrichment, lookup, keys[lookup.name], day)
        if not options.lookup:
            rows = with_answers(rows, lookup, done)
        right &= all(row.status in ("ok", "miss", "skipped", "fallback") for row in done)
    return RIGHT if right else FAILED


def _chosen(options: argparse.Namespace, enrichment: Enrichment) -> list[Lookup]:
    """Return the lookups to try. Raises DeclarationError if one must not be called here."""
    lookups = [lookup for lookup in enrichment.lookups if options.lookup in (None, lookup.name)]
    if not lookups:
        known = ", ".join(lookup.name for lookup in enrichment.lookups)
        raise DeclarationError(
            f"{enrichment.name} has no lookup {options.lookup!r}. It has: {known}."
        )
    refuse_jobs(lookups, "a preview")
    not_repeatable = [lookup.name for lookup in lookups if not lookup.repeatable]
    if not_repeatable:
        raise DeclarationError(
            f"lookup {not_repeatable[0]}: idempotent=False: a run could not know of the calls that "
            "are made here, and would make them again. Try the others with --lookup, and this one "
            "at a service for tests, declared idempotent."
        )
    return lookups


def _try(
    options: argparse.Namespace, enrichment: Enrichment, lookup: Lookup, keys: list[pa.Array],
    day: str,
) -> list[PreviewRow]:  # fmt: skip
    """Call a lookup for these keys, and print each row as it is answered. Returns the rows."""
    count = len(keys[0])
    print(preview_text.heading(lookup.name, lookup.service_name, lookup.address, count, day))
    width = shutil.get_terminal_size((120, 24)).columns
    hidden = enrichment.has_personal_key(lookup) and not options.show_personal
    done, masked = [], preview_text.mask(lookup)
    for row in preview_rows(enrichment, lookup, keys, discard=options.discard):
        done.append(row)
        for line in preview_text.reported(
            row, width, together=lookup.batch_size > 1, hidden=hidden,
            conditional=lookup.when is not None,
        ):  # fmt: skip
            print(masked(line), flush=True)
    print(f"      {preview_text.summary(lookup, done)}")
    print(f"      {preview_text.bill(lookup, counts_of(lookup.name))}\n" if lookup.prices else "")
    return done


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


COMMAND = Command(_add_arguments, _run)
