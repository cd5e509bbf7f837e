"""`tidegate diff`: prints what differs between two versions of a published day; makes no call."""

import argparse
from collections.abc import Iterator
from typing import Any

from jobs.commands.diffing.diff import Difference, Side, diff
from jobs.errors import DeclarationError
from jobs.wording import cell_text, counted
from tidegate.commands.command import (
    Command,
    add_day,
    add_enrichment,
    add_json_object,
    named,
    named_day,
    print_found,
)
from tidegate.commands.lines import aligned, entry


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser)
    add_day(parser)
    for option, default in (("--from", "the publication before"), ("--to", "the last one")):
        parser.add_argument(
            option,
            dest={"--from": "first", "--to": "last"}[option],
            metavar="VERSION|RUN",
            help=f"version of the table, or run of the day (default: {default})",
        )
    add_json_object(parser)


def _run(options: argparse.Namespace) -> int:
    enrichment = named(options).enrichment
    day = named_day(options, enrichment)
    if day is None:
        raise DeclarationError("no day is given: write --day 2013-01-10.")
    found = diff(enrichment, day, options.first, options.last)
    return print_found(options, found, difference_lines(found))


def difference_lines(found: Difference) -> Iterator[str]:
    yield f"{found.enrichment}  {found.day}"
    sides = (found.before, found.after)
    rows = [
        ("", "from", "to"),
        ("version", *(_version(side) for side in sides)),
        ("run", *(side.run_id for side in sides)),
        ("rows", *(f"{side.rows:,}" for side in sides)),
        *_outcomes(found.before, found.after),
        ("calls", *("" if side.calls is None else f"{side.calls:,}" for side in sides)),
        ("cost", *(", ".join(f"{m} {c}" for c, m in side.cost.items()) for side in sides)),
    ]
    checks = dict.fromkeys([*found.before.checks, *found.after.checks])
    for check in checks:
        states = [side.checks.get(check, "") for side in sides]
        if states[0] != states[1]:
            rows.append((check, *states))
    yield from aligned([row for row in rows if any(row[1:])])
    yield ""
    yield (
        f"{counted(found.changed, 'row')} changed, {found.added:,} added, {found.removed:,} "
        f"removed, {found.unchanged:,} unchanged"
    )
    for name, columns in (("new", found.new_columns), ("lost", found.lost_columns)):
        if columns:
            yield f"{name} columns: {', '.join(columns)}"
    for change in found.columns:
        yield f"{change.column}  {counted(change.cells, 'cell')}"
        for example in change.examples:
            change_text = f"{cell_text(example['from'])} -> {cell_text(example['to'])}"
            yield from entry("", f"{_pairs(example['row'])}  {change_text}", 2)
    for name, examples in (("added", found.added_rows), ("removed", found.removed_rows)):
        if examples:
            yield from entry(f"{name}: ", ", ".join(map(_pairs, examples)), 0)


def _version(side: Side) -> str:
    return "never published" if side.version is None else str(side.version)


def _outcomes(before: Side, after: Side) -> Iterator[tuple[str, str, str]]:
    for lookup in dict.fromkeys([*before.outcomes, *after.outcomes]):
        counts = [side.outcomes.get(lookup, {}) for side in (before, after)]
        for outcome in sorted({*counts[0], *counts[1]}):
            first, last = (f"{count.get(outcome, 0):,}" for count in counts)
            yield f"{lookup} {outcome}", first, last


def _pairs(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={cell_text(value)}" for name, value in values.items())


COMMAND = Command(_add_arguments, _run)
