"""Draws whole declarations, with their input, from seeds."""

import datetime as dt
import itertools
import math
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

from tests.jobs.run.drawn.declarations import Drawn
from tests.jobs.run.drawn.input_files import COLUMNS, FORMATS, in_format
from tests.jobs.run.drawn.looks import draw_look
from tests.jobs.run.drawn.natures import ONCE, Look
from tests.jobs.run.drawn.shown import ICEBERG, PARQUET

AUTHS = ("", "", "", "oauth header", "oauth body", "bearer", "basic", "header", "query")
ACTS = (
    "run", "run", "days", "capped", "replay", "remap", "refresh", "try", "forget", "forget",
    "price", "version", "judges", "required", "column", "error ttl", "budget",
)  # fmt: skip
LATER = ("reshape", "gain", "drop", "mistype", "strict", "fewer", "miss ttl", "when")
TEXTS = (
    "", "a", "a/b", "..", "ä", "a\u0308", "漢字", "😀", " padded ", "1e5", "null", "?x=1&y", "%2F",
    '"', "a\nb", "\\", "x" * 300, "0", "A", "+", "#", "{k}", "\u200b", "true",
)  # fmt: skip


def draw(seed: int) -> Drawn:
    """The declaration of this seed."""
    draws = random.Random(f"declaration:{seed}")
    form = random.Random(f"form:{seed}").choice(FORMATS)
    rows = [in_format(form, row) for row in _draw_rows(draws)]
    looks: list[Look] = []
    for name in "abc"[: draws.choice((1, 1, 2, 2, 3))]:
        looks.append(draw_look(draws, seed, name, looks))
    if len(looks) > 1 and draws.random() < 0.35:
        looks[:2] = _as_waterfall(draws, looks)
    looks = _at_one_service(looks, seed)
    auth = {look.service: draws.choice(AUTHS) for look in looks if look.service}
    for place, look in enumerate(looks):
        if look.kind == "pages" and auth[look.service].startswith("oauth"):
            # a token that is renewed within pages repeats them, and so what happens only once
            moods = tuple(mood for mood in look.moods if mood not in ONCE)
            looks[place] = replace(look, moods=moods)
    drawn = Drawn(
        looks, _draw_days(seed, rows), draws.choice((1, 1, 2, 3)), auth,
        draws.choice(("ordered", "unordered")), draws.choices(ACTS, k=draws.choice((2, 3, 4))),
        form=form,
    )  # fmt: skip
    more = random.Random(f"more:{seed}")
    is_alone = sum(bool(look.prices) for look in looks) == 1
    drawn.bounds_itself = more.random() < 0.5 and is_alone
    if more.random() < 0.3:
        drawn.acts.insert(more.randint(0, len(drawn.acts)), "repair")
    later = random.Random(f"later:{seed}")
    drawn.shown = later.choice(({}, {}, {}, {"iceberg": ICEBERG}, {"parquet": PARQUET}))
    for act in later.choices(LATER, k=later.choice((0, 0, 1, 2))):
        drawn.acts.insert(later.randint(0, len(drawn.acts)), act)
    return drawn


def draw_later(draws: random.Random, seed: int, name: str, before: list[Look]) -> Look:
    """A lookup that is added later, without a budget."""
    return replace(draw_look(draws, seed, name, before), budget=Decimal(0))


def _at_one_service(looks: list[Look], seed: int) -> list[Look]:
    """The lookups, possibly two of them at one service, with its prices and its budget."""
    can_share = [look for look in looks if look.kind in ("http", "body", "coroutine")]
    can_share = [
        other for other in can_share if not other.bills_use and "on_timeout" not in other.policies
    ]
    if len(can_share) < 2 or random.Random(f"service:{seed}").random() < 0.5:
        return looks
    first, second = can_share[:2]
    fields = {name: value for name, value in second.fields.items() if name != "model"}
    if first.model:
        fields["model"] = first.fields["model"]
    shared = ("service", "prices", "budget", "has_older_prices", "in_thousands", "model", "stop_on")
    facts = {name: getattr(first, name) for name in shared}
    return [replace(look, fields=fields, **facts) if look is second else look for look in looks]


def _draw_rows(draws: random.Random) -> list[dict[str, Any]]:
    count, nulls = draws.choice((3, 10, 25, 40, 60)), draws.choice((0.0, 0.1, 0.3))
    return [
        {"id": number}
        | {
            name: None if draws.random() < nulls else _draw_value(draws, kind)
            for name, kind in COLUMNS.items()
        }
        for number in range(count)
    ]


def _draw_days(seed: int, rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by their day, at least one in each."""
    draws = random.Random(f"days:{seed}")
    ends = draws.sample(range(1, len(rows)), draws.choice((0, 0, 1, 2)))
    starts = [0, *sorted(ends), len(rows)]
    parts = [rows[start:end] for start, end in itertools.pairwise(starts)]
    return {f"2026-01-{number:02}": part for number, part in enumerate(parts, start=1)}


def _draw_value(draws: random.Random, kind: str) -> Any:
    few = draws.randrange(20)
    if kind == "text":
        return draws.choice((*TEXTS, *(f"key {few + number}" for number in range(len(TEXTS)))))
    if kind == "date":
        return dt.date(2026, 1, 1) + dt.timedelta(days=few // 2)
    if kind == "time":
        micros = draws.choice((0, 0, 1, 500_000))
        at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        return at + dt.timedelta(hours=few // 2, microseconds=micros)
    return draws.choice({
        "number": (0, -1, 2**53 + 1, -(2**63), 2**63 - 1, few),
        "double": (0.0, -0.0, math.nan, math.inf, 0.1, 1e20, 1e-7, float(few)),
        "decimal": (Decimal("-0.0001"), Decimal("12345678901234.5678"), Decimal(few)),
        "bool": (True, False),
    }[kind])  # fmt: skip


def _as_waterfall(draws: random.Random, looks: list[Look]) -> list[Look]:
    """The first two lookups as the vendors of a waterfall, where that can be."""
    read = [sql for look in looks for sql, _ in look.keys.values()] + [look.when for look in looks]
    vendors = looks[:2]
    if any(sql.startswith(("a_", "b_")) for sql in read):
        return vendors
    if not all(look.has_cache for look in vendors):
        return vendors
    members = tuple(member for member in vendors[0].members if member in vendors[1].members)
    accept, accepts = draws.choice((("", _any), ("w_n > 20", _above_20)))
    facts = {
        "members": members, "waterfall": "w", "accept": accept, "accepts": accepts,
        "spills": draws.choice(((), ("error",))),
    }  # fmt: skip
    return [replace(look, **facts) for look in vendors]


def _any(_values: dict[str, Any]) -> bool:
    return True


def _above_20(values: dict[str, Any]) -> bool:
    return values["n"] is not None and values["n"] > 20
