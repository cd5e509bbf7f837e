"""`tidegate status`: prints the last days of all tables, what is wrong first; no call."""

import argparse
import datetime as dt
import itertools
from collections.abc import Iterator, Sequence

from jobs.declare.values.calendar import name_unit
from jobs.declare.values.type_checks import require_count
from jobs.wording import counted, listed, priced
from orchestration.common.table_status import (
    DayStatus,
    Status,
    TableStatus,
    Work,
    add_costs,
    make_status,
    read_table,
    read_tables,
)
from tidegate.commands.command import (
    FAILED,
    RIGHT,
    Command,
    add_json_object,
    add_package,
    named,
    print_found,
)
from tidegate.commands.lines import aligned, entry

DAYS = 14
HEADINGS = ("table", "day", "state", "rows", "calls", "cost", "readers see", "published at")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "enrichment",
        nargs="?",
        metavar="ENRICHMENT",
        help="only this enrichment, a line per day (default: all)",
    )
    add_package(parser)
    parser.add_argument(
        "--days",
        type=int,
        default=DAYS,
        metavar="N",
        help=f"number of days to look back (default: {DAYS})",
    )
    add_json_object(parser)


def _run(options: argparse.Namespace) -> int:
    require_count("--days", options.days)

    now = dt.datetime.now(dt.UTC)
    if options.enrichment:
        found = make_status([read_table(named(options).enrichment, options.days, now)], now)
    else:
        found = read_tables(options.package, options.days, now)
    print_found(options, found, _lines(found, each_day=options.enrichment is not None))
    return FAILED if any(table.rank[0] == 0 for table in found.tables) else RIGHT


def _lines(found: Status, *, each_day: bool) -> Iterator[str]:
    for table in found.tables:
        yield from _wrong(table)
    rows = []
    for table in found.tables:
        if each_day:
            shown = [day if day.published_at else None for day in table.days]
            rows += [_row(table, *day) for day in zip(table.days, shown, strict=True)][::-1]
        elif table.last is not None:
            rows.append(_row(table, table.last, table.seen, f"none of the last {len(table.days)}"))
    if rows:
        yield from aligned([HEADINGS, *rows], right=(3, 4))
    idle = [table.enrichment for table in found.tables if not table.days and not table.error]
    if idle:
        yield f"No run yet: {listed(idle, 10)}."
    for span, work in (
        ("the last 24 hours", [table.last_24_hours for table in found.tables]),
        (f"{found.at[:7]}, UTC", [table.this_month for table in found.tables]),
    ):
        yield from _work(span, work)


def _work(span: str, work: Sequence[Work]) -> Iterator[str]:
    if runs := sum(day.runs for day in work):
        rows, calls = sum(day.rows for day in work), sum(day.calls for day in work)
        done = (counted(rows, "row"), counted(calls, "call")) if rows or calls else ()
        figures = (counted(runs, "run"), *done, priced(add_costs(*(day.cost for day in work))))
        yield f"Runs of {span}: {', '.join(text for text in figures if text)}."


def _wrong(table: TableStatus) -> Iterator[str]:
    if table.error:
        yield f"{table.enrichment}  WRONG"
        yield from entry("", table.error, 2)
        yield ""
    for day in reversed(table.bad):
        if not day.is_missing or day is table.last:
            yield f"{table.enrichment}  {day.day}  {day.state.upper()}"
            yield from entry("", day.reason, 2)
            yield from entry("", still_seen(day.version, day.published_at), 2)
            yield from entry("next: ", day.next_step, 2)
            yield ""
    missing = [day for day in table.bad if day.is_missing and day is not table.last]
    if missing:
        count = counted(len(missing), name_unit([day.day for day in missing]))
        yield f"{table.enrichment}  {count} of the last {len(table.days)} MISSING"
        yield from entry("", listed(_spans(table.days), 10), 2)
        yield ""


def still_seen(version: int | None, published_at: str | None) -> str:
    """Return what readers see of a day whose last run is not published; empty if nothing."""
    if published_at is None:
        return ""
    return f"readers still see version {version}, published at {_minute(published_at)} UTC"


def _minute(moment: str) -> str:
    return moment[:16].replace("T", " ")


def _spans(days: Sequence[DayStatus]) -> list[str]:
    """Return the missing days before the last, those in a row as `2013-01-08 to 2013-01-10`."""
    spans = []
    for is_missing, group in itertools.groupby(days[:-1], lambda day: day.is_missing):
        names = [day.day for day in group]
        if is_missing:
            spans.append(names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}")
    return spans


def _row(
    table: TableStatus, day: DayStatus, shown: DayStatus | None, nothing: str = "nothing"
) -> Sequence[str]:
    version = "" if shown is None or shown.version is None else f", version {shown.version}"
    return (
        table.enrichment,
        day.day,
        day.state,
        "" if day.rows is None else f"{day.rows:,}",
        "" if day.calls is None else f"{day.calls:,}",
        priced(day.cost),
        f"{shown.day}{version}" if shown else nothing,
        _minute((shown and shown.published_at) or ""),
    )


COMMAND = Command(_add_arguments, _run)
