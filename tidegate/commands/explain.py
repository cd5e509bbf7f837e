"""`tidegate explain`: prints where the cells of a published row come from; no call."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.commands.explaining.explain import Explained, ExplainedLookup, explain
from jobs.errors import DeclarationError
from jobs.wording import cell_text, counted, one_line
from tidegate.commands.command import (
    Command,
    add_enrichment,
    add_json_object,
    given_day,
    named,
    print_found,
)
from tidegate.commands.lines import entry

NAMES = 12  # characters of the names of entries
LONGEST = 600  # shown characters of an answer


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    parser.add_argument(
        "--row",
        nargs="+",
        action="extend",
        required=True,
        metavar="COLUMN=VALUE",
        help="values that identify a row, such as order_id=17",
    )
    parser.add_argument(
        "--column",
        metavar="NAME",
        help="only the lookup that makes this column (default: every lookup)",
    )
    parser.add_argument(
        "--day", metavar="YYYY-MM-DD", help="published day (default: the newest that has the row)"
    )
    parser.add_argument(
        "--show-personal", action="store_true", help="also show personal values (pii)"
    )
    add_json_object(parser)


def _run(options: argparse.Namespace) -> int:
    enrichment = named(options).enrichment
    row: dict[str, str] = {}
    for part in options.row:
        name, sign, value = part.partition("=")
        if not (name and sign):
            raise DeclarationError(f"--row {part}: write COLUMN=VALUE, such as order_id=17.")
        if row.setdefault(name, value) != value:
            raise DeclarationError(f"--row {part}: {name}={row[name]} is given too; leave one out.")
    found = explain(
        enrichment,
        row,
        column=options.column,
        day=given_day(options, enrichment),
        show_personal=options.show_personal,
    )
    return print_found(options, found, _lines(found))


def _lines(found: Explained) -> Iterator[str]:
    version = "" if found.version is None else f", version {found.version}"
    yield f"{found.enrichment}  {found.day}{version}, run {found.run_id}"
    yield from entry(f"{'row':{NAMES}}", _pairs(found.row), 2)
    if found.source_file:
        place = f"row {found.source_row} of {found.source_file}"
        yield from entry(f"{'read from':{NAMES}}", place, 2)
    for lookup in found.lookups:
        yield ""
        yield f"{lookup.lookup}  {lookup.outcome_in_words}"
        for name, text in _entries(lookup):
            if text:
                yield from entry(f"{name:{NAMES}}", text, 2)


def _entries(lookup: ExplainedLookup) -> Iterator[tuple[str, str]]:
    yield "columns", _pairs(lookup.columns)
    yield "error", lookup.error or ""
    for part in lookup.key or lookup.expressions:
        value = "" if lookup.key is None else f"={cell_text(lookup.key[part])}"
        expression = lookup.expressions.get(part)  # it may have had another name when written
        yield "key", f"{part}{value}{f'  from {expression}' if expression else ''}"
    yield "", lookup.key_text or ""
    if lookup.key_text is not None:
        request = lookup.request or "not shown: its key is personal (--show-personal)"
        yield "request", f"{request}  to {lookup.service}"
    if lookup.attempts:
        took = "" if lookup.latency_ms is None else f", {lookup.latency_ms:,.0f} ms"
        yield "attempts", f"{lookup.attempts}{took}"
    if lookup.answered_at is not None:
        by = f", by run {lookup.run_id}" if lookup.run_id else ""
        run_of = f" of {lookup.run_of}" if lookup.run_of else ""
        yield "answered", f"{lookup.answered_at}{by}{run_of}"
    yield "price", lookup.price
    yield "ledger", lookup.stored
    yield "answer", one_line(lookup.response or "", LONGEST)
    if lookup.answered_at is not None:
        more = ", ..." if lookup.used_by > len(lookup.rows) else ""
        rows = ": " + ", ".join(map(_pairs, lookup.rows)) + more if lookup.rows else ""
        yield "used by", f"{counted(lookup.used_by, 'other row')} of the day{rows}"


def _pairs(values: Mapping[str, Any]) -> str:
    return "  ".join(f"{name}={cell_text(value)}" for name, value in values.items())


COMMAND = Command(_add_arguments, _run)
