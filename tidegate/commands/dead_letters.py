"""`tidegate dead-letters`: prints rows that got no answer, by reason or each, of all days."""

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jobs.commands.replaying.dead_letters import (
    DayLetters,
    LetterGroup,
    find_dead_letters,
    group_letters,
    shown_letter,
)
from jobs.declare.enrichment import Enrichment
from jobs.errors import DeclarationError, TidegateError
from jobs.schema.columns import LETTER_COLUMNS
from jobs.schema.facts import Facts
from jobs.wording import counted, listed, one_line
from tidegate.commands.command import (
    RIGHT,
    WRONG,
    Command,
    add_enrichment,
    add_json_object,
    all_declared,
    given_day,
    named,
    print_json,
)
from tidegate.commands.lines import entry

LONGEST = 600  # shown characters of an answer


@dataclass(frozen=True)
class Letters(Facts):
    """The object of --json."""

    enrichment: str
    letters: int
    removed: int
    groups: tuple[Any, ...]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_enrichment(parser, optional=True)
    parser.add_argument(
        "--day", metavar="YYYY-MM-DD", help="only the letters of this day (default: all days)"
    )
    add_where(parser)
    parser.add_argument(
        "--each", action="store_true", help="print a line for each letter, not for each reason"
    )
    parser.add_argument(
        "--csv",
        type=Path,
        metavar="FILE",
        help="write the letters to this file, personal columns included",
    )
    add_json_object(parser)


def add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--where", metavar="TEXT", help="only letters with this text in their reason"
    )


def _run(options: argparse.Namespace) -> int:
    if options.enrichment is not None:
        _tell(options, named(options).enrichment)
        return RIGHT
    if options.csv is not None:
        raise DeclarationError("--csv writes the columns of one table: name its enrichment.")
    ended = set[int]()
    for _, enrichment in all_declared(options):
        if not options.json:
            print(enrichment.name)
        try:
            _tell(options, enrichment)
            ended.add(RIGHT)
        except TidegateError as error:
            print(error, file=sys.stderr)
            ended.add(error.status)
    # not every enrichment has a run of the day, which is WRONG
    return min(ended - {RIGHT, WRONG} or ended)


def _tell(options: argparse.Namespace, enrichment: Enrichment) -> None:
    found = find_dead_letters(enrichment, given_day(options, enrichment), options.where or "")
    if options.csv is not None:
        _write_csv(options.csv, [row for day in found for row in day.rows])
    if options.json:
        count = sum(len(letters.rows) for letters in found)
        removed = sum(letters.removed for letters in found)
        groups = tuple(group_letters(enrichment, found))
        print_json(Letters(enrichment.name, count, removed, groups))
    elif options.csv is not None or options.each:
        for line in _each(found, partial(shown_letter, enrichment), all_lines=options.csv is None):
            print(line)
    else:
        for line in _by_reason(group_letters(enrichment, found), found):
            print(line)


def _write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    columns = dict.fromkeys(name for row in rows for name in row)  # days may differ in row_id
    with path.open("w", newline="", encoding="utf-8", errors="replace") as file:
        writer = csv.DictWriter(file, list(columns))
        writer.writeheader()
        writer.writerows(rows)


def _each(
    found: Sequence[DayLetters], shown: Callable[[Any], dict[str, Any]], *, all_lines: bool
) -> Iterator[str]:
    for day in found:
        for row in map(shown, day.rows if all_lines else ()):
            yield f"{row['_lookup']}  {row['_status']}  {_letter(row)}".rstrip()
        count = counted(len(day.rows), "dead letter")
        if day.rows:
            yield f"{day.day}  {count} of run {day.run_id} ({day.state})"
    yield from _summary(found)


def _by_reason(groups: Sequence[LetterGroup], found: Sequence[DayLetters]) -> Iterator[str]:
    for group in groups:
        days = listed(group.days, 3)
        held_back = f", {group.held_back:,} held back" if group.held_back else ""
        letters = counted(group.letters, "letter")
        yield f"{group.lookup}  {group.status}  {letters}{held_back}  {days}"
        none = (
            "its vendor was down, or a replay of other letters, or a remap, left it out: `tidegate "
            "replay` calls for it"
            if group.status == "not_asked"
            else "no reason is recorded, or its key is personal: --csv writes the error"
        )
        yield from entry("", group.reason or none, 2)
        yield from entry("as: ", _letter(group.sample), 2)
        if group.answer is not None:
            yield from entry("answer: ", one_line(group.answer, LONGEST), 2)
        yield ""
    yield from _summary(found)


def _letter(row: dict[str, Any]) -> str:
    identity = "  ".join(
        f"{name}={one_line(str(value))}"
        for name, value in row.items()
        if name not in LETTER_COLUMNS
    )
    return f"{row['_key']}  {identity}  {row['_error'] or ''}"


def _summary(found: Sequence[DayLetters]) -> Iterator[str]:
    days = [day for day in found if day.rows]
    if not days:
        yield "no dead letters"
    elif len(found) != 1:
        count = counted(sum(len(day.rows) for day in days), "dead letter")
        yield f"{count} of {counted(len(days), 'day')}"
    yield from removed_letters((day.day, day.removed) for day in found)


def removed_letters(days: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Yield a line for each day whose letters are removed."""
    for day, removed in days:
        if removed:
            count = counted(removed, "letter")
            yield f"{day}  vacuum removed the files of its {count}. Run the day again."


COMMAND = Command(_add_arguments, _run)
