"""Shows a declaration in a prompt and a notebook: a line per lookup, without secrets."""

import html
from collections.abc import Sequence

from jobs.declare.lookup import Lookup
from jobs.declare.values.env import Env
from jobs.declare.values.prices import price_text
from jobs.wording import one_line

HEADINGS = ("lookup", "address", "keys", "answers", "limits", "price")
LONGEST = 60  # characters of a cell


def as_text(title: str, lookups: Sequence[Lookup]) -> str:
    """Return the lookups as a text table under a title."""
    rows = [HEADINGS, *map(_cells, lookups)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join([title, *(f"  {line}" for line in lines)])


def as_html(title: str, lookups: Sequence[Lookup]) -> str:
    """Return the lookups as an HTML table under a title, for a notebook."""
    heads = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    rows = "".join(f"<tr>{_html_cells(_cells(lookup))}</tr>" for lookup in lookups)
    return f"<p>{html.escape(title)}</p><table><tr>{heads}</tr>{rows}</table>"


def _html_cells(cells: Sequence[str]) -> str:
    return "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)


def _cells(lookup: Lookup) -> tuple[str, ...]:
    written = lookup.as_written
    keys = ", ".join(
        name if name == text else f"{name}: {text}" for name, text in written.keys.items()
    )
    if written.when is not None:
        keys += f", when {written.when}"
    answers = ", ".join(column.name for column in lookup.columns)
    limits = [
        f"{lookup.concurrency:,} in flight",
        *(f"{rate.amount:,} {rate.of} per {rate.per}" for rate in lookup.rates),
    ]
    limits += [f"{budget.amount} per {budget.per}" for budget in lookup.budgets]
    cells = (lookup.name, _address(lookup), keys, answers, ", ".join(limits), _price(lookup))
    return tuple(one_line(cell, LONGEST) for cell in cells)


def _address(lookup: Lookup) -> str:
    """Return host and port, or the variable that holds the address, whose value may be a secret."""
    url = getattr(lookup.http_service or lookup, "url", "")
    if isinstance(url, Env):
        return f"${url.name}"
    try:
        return lookup.address
    except Exception:  # noqa: BLE001  # a prompt must not fail
        return ""


def _price(lookup: Lookup) -> str:
    return ", ".join(
        price_text([price])
        + (f" of {price.model}" if price.model else "")
        + (f" from {price.since}" if price.since else "")
        for price in lookup.prices
    )
