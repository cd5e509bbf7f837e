"""Formats previewed rows: request and answer side by side."""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jobs.clients.registry import client_for
from jobs.clients.request_counter import RequestCounts
from jobs.commands.previewing.preview import PreviewRow
from jobs.declare.http_lookup import HttpLookup
from jobs.declare.lookup import Lookup
from jobs.tables.records import run_bills
from jobs.wording import cell_text, counted, one_line

LONGEST = 600  # shown characters of a request or an answer


def heading(lookup: str, service: str, address: str, rows: int, day: str) -> str:
    where = f"{service}, {address}" if address else service
    return f"{lookup}  ({where})   {counted(rows, 'row')} of {day}"


def reported(
    row: PreviewRow,
    width: int,
    *,
    together: bool = False,
    hidden: bool = False,
    conditional: bool = False,
) -> Iterator[str]:
    """Yield the lines of a row.

    Args:
        row: The row.
        width: Characters of a line.
        together: Whether requests have keys of several rows.
        hidden: Whether everything with the keys is hidden.
        conditional: Whether the lookup is asked under a condition, without which keys are null.
    """
    latency = "" if row.latency_ms is None else f"  {row.latency_ms:,.0f} ms"
    attempts = f"  {counted(row.attempts, 'attempt')}" if row.attempts else ""
    yield f"{row.number:>4}  {_pairs(row.keys, hidden=hidden)}"
    if row.exchanges is None:
        yield "      the answer of an equal row"
    elif row.is_stored:
        yield "      the stored answer, without a call"
    elif hidden and row.exchanges:
        yield f"      {counted(len(row.exchanges), 'request')}, not shown: its keys are personal"
    elif not row.exchanges and row.attempts:
        yield f"      {'asked in a request with other rows' if together else 'no request was made'}"
    else:
        for exchange in row.exchanges:
            asked = " ".join(part for part in (exchange.request, exchange.sent) if part)
            status = "" if exchange.status is None else f"{exchange.status} "
            yield from side_by_side(asked, f"{status}{exchange.answer}", width)
    why = ": its condition does not hold, or a key is null"
    why = why if conditional and row.status == "skipped" else ""
    yield f"      {row.status}{why}{attempts}{latency}{_outcome(row, hidden=hidden)}"


def mask(lookup: Lookup) -> Callable[[str], str]:
    """Return a function that masks the service's secrets, which an answer may repeat."""
    masked: Callable[[str], str] = (
        str if lookup.http_service is None else getattr(client_for(lookup, 1), "masked", str)
    )
    return masked


def _outcome(row: PreviewRow, *, hidden: bool) -> str:
    if row.status in ("ok", "fallback"):
        return f"  {_pairs(row.answer, hidden=hidden)}"
    return "" if row.error is None or hidden else f"  {row.error}"


def _pairs(values: Mapping[str, Any], *, hidden: bool) -> str:
    return "  ".join(
        f"{name}={'***' if hidden else shown(value)}" for name, value in values.items()
    )


def shown(value: Any) -> str:
    text = one_line(value) if isinstance(value, str) else cell_text(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def side_by_side(left: str, right: str, width: int) -> Iterator[str]:
    column = max(20, (width - 9) // 2)
    lines = [_broken(left, column), _broken(right, column)]
    for number in range(max(map(len, lines))):
        asked, answered = (texts[number] if number < len(texts) else "" for texts in lines)
        yield f"      {asked:{column}} | {answered}".rstrip()


def _broken(text: str, width: int) -> list[str]:
    return textwrap.wrap(one_line(text, LONGEST), width, break_on_hyphens=False) or [""]


def bill(lookup: Lookup, counts: RequestCounts) -> str:
    """Return what the calls were billed, as `812 input_tokens, 40 output_tokens: 0.000146 USD`."""
    billed = run_bills.billed(lookup.facts(), counts.usage())
    units = ", ".join(counted(part.units, part.unit) for part in billed.parts)
    unknown = counted(counts.unknown_use, "request")
    missing = f"; the use of {unknown} is unknown (bill)" if counts.unknown_use else ""
    return f"billed {units}: {billed.cost} {billed.currency}{missing}"


def summary(lookup: Lookup, rows: Iterable[PreviewRow]) -> str:
    rows = list(rows)
    outcomes = Counter(row.status for row in rows)
    message = ", ".join(f"{count} {status}" for status, count in outcomes.most_common())
    latencies = sorted(
        row.latency_ms
        for row in rows
        if row.latency_ms is not None and row.status in ("ok", "miss")
    )
    took = ""
    if latencies:
        took = (
            f"; median answer time {latencies[len(latencies) // 2]:,.0f} ms, "
            f"longest {latencies[-1]:,.0f} ms"
        )
    shared = sum(row.exchanges is None for row in rows)
    equal = f"; {shared} had the answer of an equal row" if shared else ""
    doubt = "; is the address right, and the request?" if outcomes.keys() == {"miss"} else ""
    answers = [row.answer for row in rows if row.status == "ok"]
    names = answers[0] if answers else ()
    if empty := [name for name in names if all(answer[name] is None for answer in answers)]:
        doubt = f"; null in every answer: {', '.join(empty)}; is the name or the path right?"
    pages = lookup.pages if isinstance(lookup, HttpLookup) else None
    requests = [len(row.exchanges or ()) for row in rows if row.status == "ok"]
    if pages and max(requests, default=0) == 1:
        doubt += f"; no answer had a second page: does {pages.next} find the next one?"
    return f"{counted(len(rows), 'row')}: {message or 'none'}{equal}{took}{doubt}"
